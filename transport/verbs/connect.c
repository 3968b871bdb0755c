/* SPDX-License-Identifier: BSD-2-Clause
 *
 * From an authenticated socket to a link that is up:
 *
 *   attach   memory, queue pair (INIT), receives posted; our card ->
 *            <- their card: checked, queue pair to RTR and RTS; "ready" ->
 *            <- "ready": the link is up
 *
 * The queue pair is connected with what the cards say, here, or by rdma_cm (cm_link.c), when both
 * offer that in their cards.
 *
 * No key to any memory leaves this process before the handshake is over, and none is believed.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/log.h"
#include "transport/verbs/verbs.h"

static bool tell(struct verbs_link *l, const void *data, size_t bytes)
{
    ssize_t n = send(l->tcp.fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

    /* Nothing else waits in this socket's buffer: it takes a few bytes whole. */
    return n == (ssize_t)bytes;
}

static bool send_card(const struct verbs_transport *t, struct verbs_link *l)
{
    struct spr_verbs_card card = {.magic = SPR_VERBS_MAGIC,
                                  .version = SPR_VERBS_VERSION,
                                  .lanes = (uint16_t)l->lanes,
                                  .area = l->own,
                                  .flags = l->offers_cm ? SPR_VERBS_OFFERS_CM : 0};

    memcpy(card.nonce, l->nonce, sizeof card.nonce);

    for (uint32_t i = 0; i < l->lanes; i++) {
        const struct verbs_lane *lane = &l->lane[i];
        const struct verbs_device *d = &lane->rail->device;
        card.end[i] = (struct spr_verbs_end){.queue_pair = lane->qp->qp_num,
                                             .first_sequence = lane->first_sequence,
                                             .lid = d->port.lid,
                                             .link_layer = d->port.link_layer,
                                             .mtu = (uint8_t)verbs_mtu(t, d),
                                             .rkey = l->slots_mr[lane->rail->number]->rkey,
                                             .cm = lane->rail->cm};
        memcpy(card.end[i].gid, d->gid.raw, sizeof card.end[i].gid);
    }
    return tell(l, &card, sizeof card);
}

/* Queue pairs with their receives, on the rails in turns. */
static spr_status make_lanes(struct verbs_transport *t, struct verbs_link *l,
                             struct spr_error *error)
{
    spr_status status = SPR_OK;

    for (; l->lanes < verbs_lanes(t) && status == SPR_OK; l->lanes++) {
        struct verbs_lane *lane = &l->lane[l->lanes];
        lane->rail = &t->rail[l->lanes % t->rails];
        status = verbs_qp_create(t, lane, error);
        lane->unposted = VERBS_RECEIVE_DEPTH;
        if (status == SPR_OK)
            status = verbs_post_receives(l, lane);
    }
    return status;
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
    l->offers_cm = verbs_cm_offered(t);
    verbs_regions_update(t);
    status = verbs_link_memory(t, l, &error);
    if (status == SPR_OK)
        status = make_lanes(t, l, &error);
    if (status == SPR_OK && getrandom(l->nonce, sizeof l->nonce, 0) != (ssize_t)sizeof l->nonce)
        status = SPR_ERR_SYSTEM;
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

/* As many queue pairs as both have are connected. */
static const char *check_card(struct verbs_link *l)
{
    const struct spr_verbs_card *c = &l->theirs;

    if (c->magic != SPR_VERBS_MAGIC || c->version != SPR_VERBS_VERSION)
        return "version";
    if (c->lanes < 1 || c->lanes > VERBS_LANES)
        return "number";
    l->lanes = c->lanes < l->lanes ? c->lanes : l->lanes;
    for (uint32_t i = 0; i < l->lanes; i++) {
        if (c->end[i].link_layer != l->lane[i].rail->device.port.link_layer)
            return "link layer";
        if (c->end[i].mtu < IBV_MTU_256 || c->end[i].mtu > IBV_MTU_4096)
            return "MTU";
    }
    return check_area(&c->area);
}

bool verbs_say(struct verbs_link *l, char word) { return tell(l, &word, 1); }

void verbs_ready(struct verbs_transport *t, struct verbs_link *l)
{
    if (!verbs_say(l, l->by_cm ? SPR_VERBS_READY_CM : SPR_VERBS_READY)) {
        verbs_fail(t, l, SPR_ERR_LINK, "connection lost while queue pairs are connected");
        return;
    }
    l->phase = VERBS_READY;
    if (l->ready)
        verbs_up(t, l);
}

void verbs_connect_by_cards(struct verbs_transport *t, struct verbs_link *l)
{
    struct spr_error error = {0};
    spr_status status = SPR_OK;

    for (uint32_t i = 0; i < l->lanes && status == SPR_OK; i++) {
        struct verbs_path path;
        verbs_path_by_cards(t, l, i, &path);
        status = verbs_qp_connect(t, l, i, &path, &error);
    }
    if (status)
        verbs_fail(t, l, status, "%s", error.text);
    else
        verbs_ready(t, l);
}

static int take_card(struct verbs_transport *t, struct verbs_link *l)
{
    const char *wrong = check_card(l);

    if (wrong) {
        verbs_fail(t, l, SPR_ERR_PROTO, "the %s of its queue pairs makes no sense here", wrong);
        return 1;
    }
    l->remote = l->theirs.area;
    if (l->offers_cm && (l->theirs.flags & SPR_VERBS_OFFERS_CM))
        verbs_cm_start(t, l);
    else
        verbs_connect_by_cards(t, l);
    return 1;
}

void verbs_up(struct verbs_transport *t, struct verbs_link *l)
{
    char local[VERBS_DEVICE_TEXT], remote[VERBS_GID_TEXT];

    l->phase = VERBS_UP;
    l->cm_due_ns = 0;
    t->unfinished--;
    for (uint32_t i = 0; i < l->lanes; i++) {
        const struct verbs_lane *lane = &l->lane[i];
        const struct spr_verbs_end *to = &l->theirs.end[i];
        spr_debug(SPR_SUB_NET, "verbs: rank %d: %s, queue pair %u, to GID %s, queue pair %u, by %s",
                  l->tcp.link.peer, verbs_device_print(&lane->rail->device, local, sizeof local),
                  lane->qp->qp_num,
                  verbs_gid_print((const union ibv_gid *)to->gid, remote, sizeof remote),
                  to->queue_pair, l->by_cm ? "rdma_cm" : "cards");
    }
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

/* A word of the peer. False: not one that it may say now. */
static bool take_word(struct verbs_transport *t, struct verbs_link *l, uint8_t word)
{
    uint8_t ready = l->by_cm ? SPR_VERBS_READY_CM : SPR_VERBS_READY;

    /* Both may have failed, or one after the other was ready: these words crossed ours. */
    if (l->fell_back && (word == SPR_VERBS_FALL_BACK || word == SPR_VERBS_READY_CM))
        return true;
    if (word == SPR_VERBS_FALL_BACK && l->by_cm && l->phase != VERBS_UP) {
        verbs_cm_give_up(t, l);
        return true;
    }
    if (word != ready || l->ready)
        return false;
    l->ready = true;
    /* A first frame may have been quicker. */
    if (l->phase == VERBS_READY)
        verbs_up(t, l);
    return true;
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
    if (!take_word(t, l, byte))
        verbs_fail(t, l, SPR_ERR_PROTO, "unexpected bytes on the socket of a queue pair");
    return 1;
}

void verbs_detach(struct verbs_transport *t, struct verbs_link *l)
{
    if (l->phase == VERBS_NONE)
        return;
    /* The end of the socket explains that of the ids. */
    if (l->tcp.fd >= 0)
        (void)shutdown(l->tcp.fd, SHUT_WR);
    verbs_cm_detach(l);
    for (uint32_t i = 0; i < VERBS_LANES; i++)
        verbs_qp_destroy(&l->lane[i]);
    verbs_link_memory_free(l);
    spr_list_remove(&l->hungry);
    t->link_count--;
    l->phase = VERBS_NONE;
}
