/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The end of a link. First the queue pair goes to the error state, so that the device neither reads
 * nor writes for it; then all its work requests come back, and with them the frames whose data they
 * read; then the link is told to be down.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/verbs/verbs.h"

/* Work requests of a stopped queue pair come back at once; if not, it is destroyed. */
#define DRAIN_S 1.0

static const struct {
    enum ibv_wc_status status;
    const char *hint;
} hints[] = {
    {IBV_WC_RETRY_EXC_ERR, "the peer does not answer: its host, its port or the path is gone, or a "
                           "firewall drops UDP port 4791"},
    {IBV_WC_RNR_RETRY_EXC_ERR, "the peer has posted no receives; please report this"},
    {IBV_WC_REM_ACCESS_ERR, "a write to memory that was taken back, or never given"},
    {IBV_WC_REM_OP_ERR, "the peer's device failed"},
    {IBV_WC_REM_INV_REQ_ERR, "the peer's device refuses the request"},
    {IBV_WC_LOC_PROT_ERR, "memory was deregistered while it was sent"},
    {IBV_WC_LOC_LEN_ERR, "a message is larger than this device takes"},
    {IBV_WC_WR_FLUSH_ERR, "the queue pair had failed before; the peer may know why"},
};

static const char *hint_of(enum ibv_wc_status status)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(hints); i++)
        if (hints[i].status == status)
            return hints[i].hint;
    return "see the log of the kernel";
}

static void stop(struct verbs_transport *t, struct verbs_link *l)
{
    if (l->tcp.fd >= 0)
        (void)epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, l->tcp.fd, NULL);
    for (uint32_t i = 0; i < VERBS_LANES; i++)
        verbs_qp_stop(&l->lane[i]);
    spr_list_remove(&l->hungry);
    t->unfinished += l->phase == VERBS_UP;
    l->phase = VERBS_ENDING;
    l->drain_ns = spr_now_ns(t->tcp.base.params.clock) + spr_tcp_seconds_ns(DRAIN_S);
    spr_tcp_wake(&t->tcp, &l->tcp);
}

void verbs_fail(struct verbs_transport *t, struct verbs_link *l, spr_status why, const char *fmt,
                ...)
{
    va_list args;

    if (l->phase == VERBS_ENDING || l->phase == VERBS_OVER)
        return;
    l->fault = why;
    va_start(args, fmt);
    vsnprintf(l->fault_text, sizeof l->fault_text, fmt, args);
    va_end(args);
    stop(t, l);
}

void verbs_socket_gone(struct verbs_transport *t, struct verbs_link *l)
{
    char text[80];

    if (l->gone_error)
        verbs_fail(t, l, spr_tcp_errno_status(l->gone_error), "%s",
                   spr_tcp_errno_text(l->gone_error, text, sizeof text));
    else if (l->phase == VERBS_UP)
        verbs_fail(t, l, SPR_ERR_RANK_LOST, "connection closed by the peer");
    else
        verbs_fail(t, l, SPR_ERR_LINK, "connection closed while queue pairs are connected");
}

bool verbs_at_end_of_file(const struct verbs_link *l)
{
    char byte;

    return l->tcp.fd >= 0 && recv(l->tcp.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void verbs_wc_failed(struct verbs_transport *t, struct verbs_link *l, const struct ibv_wc *wc)
{
    char local[VERBS_DEVICE_TEXT], remote[VERBS_GID_TEXT];
    uint32_t lane = verbs_wc_lane(wc);

    if (l->phase == VERBS_ENDING || l->phase == VERBS_OVER)
        return;
    if (verbs_at_end_of_file(l)) {
        verbs_socket_gone(t, l);
        return;
    }
    /* The opcode of a failed completion is not valid: what was posted is. */
    verbs_fail(
        t, l, SPR_ERR_LINK, "%s: %s (vendor error %#x), %s to GID %s: %s",
        wc->wr_id & VERBS_RECEIVE_ID ? "receive" : "RDMA write", ibv_wc_status_str(wc->status),
        wc->vendor_err, verbs_device_print(&l->lane[lane].rail->device, local, sizeof local),
        verbs_gid_print((const union ibv_gid *)l->theirs.end[lane].gid, remote, sizeof remote),
        hint_of(wc->status));
}

int verbs_drain(struct verbs_transport *t, struct verbs_link *l)
{
    int steps = 0;

    if (verbs_awaits(l) && spr_now_ns(t->tcp.base.params.clock) < l->drain_ns) {
        spr_tcp_wake(&t->tcp, &l->tcp); /* look again */
        return 0;
    }
    for (uint32_t i = 0; i < VERBS_LANES; i++) {
        struct verbs_lane *lane = &l->lane[i];
        if (lane->wr_first == lane->wr_next)
            continue;
        /* Nothing of it is under way after this. */
        verbs_qp_destroy(lane);
        steps += verbs_completed(t, l, lane, lane->wr_next - 1, false);
    }
    l->phase = VERBS_OVER;
    t->unfinished--;
    /* Killed: only the frames are returned. */
    if (l->tcp.over)
        return steps + spr_tcp_return_queue(&l->tcp);
    spr_tcp_lose(&l->tcp, l->fault, l->fault_text);
    return steps + 1;
}

void verbs_kill(struct spr_link *link)
{
    struct verbs_link *l = verbs_link_of(spr_tcp_link_of(link));
    struct verbs_transport *t = verbs_of(link->transport);

    if (link->state == SPR_LINK_DOWN)
        return;
    if (l->phase != VERBS_NONE && l->phase != VERBS_ENDING && l->phase != VERBS_OVER)
        stop(t, l);
    /* An end of file would mean that all has been sent. */
    if (l->tcp.fd >= 0 && verbs_under_way(l))
        spr_tcp_reset(l->tcp.fd);
    if (!spr_tcp_cut(&l->tcp) || l->tcp.fd < 0)
        return;
    close(l->tcp.fd);
    l->tcp.fd = -1;
}
