/* SPDX-License-Identifier: BSD-2-Clause
 *
 * From an authenticated socket to a link that is up:
 *
 *   attach   memory, queue pair (INIT), receives posted; our card ->
 *            <- their card: checked, queue pair to RTR and RTS; "ready" ->
 *            <- "ready": the link is up
 *
 * No key to any memory leaves this process before the handshake is over, and none is believed.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "transport/verbs/verbs.h"

static bool tell(struct verbs_link *l, const void *data, size_t bytes)
{
    ssize_t n = send(l->tcp.fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

    /* Nothing else waits in this socket's buffer: it takes a few bytes whole. */
    return n == (ssize_t)bytes;
}

static bool send_card(struct verbs_transport *t, struct verbs_link *l)
{
    struct spr_verbs_card card = {.magic = SPR_VERBS_MAGIC,
                                  .version = SPR_VERBS_VERSION,
                                  .link_layer = t->device.port.link_layer,
                                  .mtu = (uint8_t)t->device.port.active_mtu,
                                  .queue_pair = l->qp->qp_num,
                                  .first_sequence = l->first_sequence,
                                  .lid = t->device.port.lid,
                                  .area = l->own};

    memcpy(card.gid, t->device.gid.raw, sizeof card.gid);
    return tell(l, &card, sizeof card);
}

spr_status verbs_attach(struct spr_tcp *tcp, struct spr_tcp_link *tl)
{
    struct verbs_transport *t = verbs_of(&tcp->base);
    struct verbs_link *l = verbs_link_of(tl);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = l};
    struct spr_error error = {0};
    spr_status status;

    assert(l->phase == VERBS_NONE);
    l->phase = VERBS_CARDS;
    spr_list_init(&l->hungry);
    t->unfinished++;
    t->link_count++;
    verbs_regions_update(t);
    status = verbs_link_memory(t, l, &error);
    if (status == SPR_OK)
        status = verbs_qp_create(t, l, &error);
    if (status == SPR_OK) {
        l->unposted = VERBS_RECEIVE_DEPTH;
        status = verbs_post_receives(l);
    }
    if (status == SPR_OK && epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, tl->fd, &ev))
        status = SPR_ERR_SYSTEM;
    if (status)
        verbs_fail(t, l, status, "%s", error.text[0] ? error.text : "cannot set up a queue pair");
    else if (!send_card(t, l))
        verbs_fail(t, l, SPR_ERR_LINK, "connection lost while queue pairs are connected");
    return SPR_IN_PROGRESS;
}

/* What a peer may make this rank write to is its own business; but the arithmetic has to hold. */
static const char *check_area(const struct spr_verbs_area *a)
{
    uint32_t least = SPR_VERBS_PAYLOAD + SPR_FRAME_BYTES;

    if (a->small < 1 || a->large < 1 || spr_verbs_slot_count(a) > SPR_VERBS_SLOTS)
        return "number of slots";
    if (a->small_bytes < least || a->small_bytes > a->large_bytes || a->small_bytes % 64 ||
        a->large_bytes % 64 || a->large_bytes < SPR_VERBS_PAYLOAD + SPR_FRAME_MAX_PAYLOAD ||
        a->large_bytes > 2 * SPR_FRAME_MAX_PAYLOAD)
        return "size of slots";
    return a->address > UINT64_MAX - spr_verbs_area_bytes(a) ? "address of slots" : NULL;
}

static const char *check_card(const struct verbs_transport *t, const struct spr_verbs_card *c)
{
    if (c->magic != SPR_VERBS_MAGIC || c->version != SPR_VERBS_VERSION)
        return "version";
    if (c->link_layer != t->device.port.link_layer)
        return "link layer";
    if (c->mtu < IBV_MTU_256 || c->mtu > IBV_MTU_4096)
        return "MTU";
    return check_area(&c->area);
}

static int take_card(struct verbs_transport *t, struct verbs_link *l)
{
    const char ready = SPR_VERBS_READY, *wrong = check_card(t, &l->theirs);
    struct spr_error error = {0};
    spr_status status;

    if (wrong) {
        verbs_fail(t, l, SPR_ERR_PROTO, "the %s of its queue pair makes no sense here", wrong);
        return 1;
    }
    l->remote = l->theirs.area;
    status = verbs_qp_connect(t, l, &error);
    if (status)
        verbs_fail(t, l, status, "%s", error.text);
    else if (!tell(l, &ready, 1))
        verbs_fail(t, l, SPR_ERR_LINK, "connection lost while queue pairs are connected");
    else
        l->phase = VERBS_READY;
    return 1;
}

void verbs_up(struct verbs_transport *t, struct verbs_link *l)
{
    char local[VERBS_DEVICE_TEXT], remote[VERBS_GID_TEXT];

    l->phase = VERBS_UP;
    t->unfinished--;
    spr_debug(SPR_SUB_NET, "verbs: rank %d: %s, queue pair %u, to GID %s, queue pair %u",
              l->tcp.link.peer, verbs_device_print(&t->device, local, sizeof local), l->qp->qp_num,
              verbs_gid_print((const union ibv_gid *)l->theirs.gid, remote, sizeof remote),
              l->theirs.queue_pair);
    spr_tcp_up(&l->tcp);
}

/* End of file or an error: no more is read. */
static int end_of_socket(struct verbs_transport *t, struct verbs_link *l, int error)
{
    (void)epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, l->tcp.fd, NULL);
    l->gone_error = error;
    if (!l->gone)
        t->gone++;
    l->gone = true;
    return 1;
}

int verbs_socket_drive(struct verbs_transport *t, struct verbs_link *l)
{
    uint8_t byte = 0, *into = &byte;
    size_t wants = 1;
    ssize_t n;

    if (l->tcp.fd < 0 || l->gone || l->phase == VERBS_ENDING || l->phase == VERBS_OVER)
        return 0;
    if (l->phase == VERBS_CARDS) {
        into = (uint8_t *)&l->theirs + l->card_received;
        wants = sizeof l->theirs - l->card_received;
    }
    n = recv(l->tcp.fd, into, wants, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    if (n <= 0)
        return end_of_socket(t, l, n < 0 ? errno : 0);
    if (l->phase == VERBS_CARDS) {
        l->card_received += (size_t)n;
        return l->card_received == sizeof l->theirs ? take_card(t, l) : 1;
    }
    if (byte != SPR_VERBS_READY || l->ready)
        verbs_fail(t, l, SPR_ERR_PROTO, "unexpected bytes on the socket of a queue pair");
    l->ready = true;
    /* A first frame may have been quicker. */
    if (l->phase == VERBS_READY)
        verbs_up(t, l);
    return 1;
}

void verbs_detach(struct verbs_transport *t, struct verbs_link *l)
{
    if (l->phase == VERBS_NONE)
        return;
    verbs_qp_destroy(l);
    verbs_link_memory_free(l);
    spr_list_remove(&l->hungry);
    t->link_count--;
    l->phase = VERBS_NONE;
}
