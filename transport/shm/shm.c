/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Shared-memory transport: the operations, progress and sleep.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/shm/private.h"
#include "transport/shm/socket.h"

/* A look at the sockets costs a system call: one in this many idle calls of progress(); a call that
 * moved frames counts as BUSY_WEIGHT. So a dead peer is seen within a fraction of a millisecond. */
#define SOCKETS_EVERY 256
#define BUSY_WEIGHT 16

/* ---- Links ---- */

static void enqueue(struct spr_shm_link *link, struct spr_tx *tx)
{
    tx->next = NULL;
    tx->failed = false;
    if (link->tail)
        link->tail->next = tx;
    else
        link->head = tx;
    link->tail = tx;
    if (!link->uncopied)
        link->uncopied = tx;
}

/* Return what is copied, or everything when the link is down. */
static int return_sent(struct spr_shm_link *link)
{
    const struct spr_link_events *events = link->base.transport->params.events;
    int n = 0;

    while (link->head && (link->head != link->uncopied || link->base.state == SPR_LINK_DOWN)) {
        struct spr_tx *tx = link->head;

        if (tx == link->uncopied) {
            tx->failed = true;
            link->uncopied = tx->next;
        }
        link->head = tx->next;
        if (!link->head)
            link->tail = NULL;
        events->sent(&link->base, tx);
        n++;
    }
    return n;
}

/* Explicitly: close() does not take it out of epoll while a forked child has it too. */
static void close_source(struct spr_shm *t, int *fd)
{
    if (*fd < 0)
        return;
    spr_shm_epoll_set(t, EPOLL_CTL_DEL, *fd, 0, NULL);
    close(*fd);
    *fd = -1;
}

/* The end of the socket, also where a forked child has it, too. To the peer it is that of this
 * process, unless it is told that this one goes on, and has cut the link in the middle. */
static void hang_up(const struct spr_shm_link *link, bool cut)
{
    const char word = SPR_SHM_CUT;

    if (link->socket < 0)
        return;
    if (cut && send(link->socket, &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        spr_debug(SPR_SUB_SHM, "tell rank %d that the link is cut: %s", link->base.peer,
                  strerror(errno));
    (void)shutdown(link->socket, SHUT_RDWR);
}

/* Close what a link has open; its memory stays mapped until the transport is closed. `broken`:
 * because of an error. */
static void shut(struct spr_shm_link *link, bool broken)
{
    struct spr_shm *t = spr_shm_of_link(link);

    hang_up(link, broken || link->uncopied);
    link->base.state = SPR_LINK_DOWN;
    if (link->conn)
        spr_shm_conn_close(t, link->conn);
    link->conn = NULL;
    close_source(t, &link->socket);
    close_source(t, &link->pidfd);
    if (link->bell >= 0)
        close(link->bell);
    link->bell = -1;
}

void spr_shm_link_down(struct spr_shm_link *link, spr_status why, const char *text)
{
    if (link->base.state == SPR_LINK_DOWN)
        return;
    spr_debug(SPR_SUB_SHM, "link to rank %d is down: %s", link->base.peer, text);
    shut(link, why != SPR_ERR_RANK_LOST);
    /* Slots that the peer holds are not used again: it may still read them. */
    return_sent(link);
    if (!link->cut)
        link->base.transport->params.events->down(&link->base, why, text);
}

static int link_progress(struct spr_shm_link *link)
{
    int n = 0;

    if (link->base.state == SPR_LINK_UP) {
        n += spr_shm_receive(link);
        n += spr_shm_flush(link);
        if (link->fault)
            spr_shm_link_down(link, link->fault, link->fault_text);
        else if (link->gone && !spr_shm_has_frame(link) && link->was_cut)
            spr_shm_link_down(link, SPR_ERR_LINK, "the process has cut the link");
        else if (link->gone && !spr_shm_has_frame(link))
            spr_shm_link_down(link, SPR_ERR_RANK_LOST, "the process ended or closed its socket");
    }
    if (link->head)
        n += return_sent(link);
    return n;
}

static void link_free(struct spr_shm_link *link)
{
    shut(link, false);
    spr_shm_view_unmap(&link->view);
    spr_pool_destroy(&link->copies);
    spr_free(link);
}

/* ---- Operations ---- */

static void shm_close(struct spr_transport *base)
{
    struct spr_shm *t = spr_shm_of(base);

    for (int i = 0; i < t->link_count; i++)
        link_free(t->links[i]);
    spr_shm_sockets_close(t);
    spr_shm_slots_destroy(&t->slots);
    spr_shm_own_destroy(&t->own);
    spr_free(t->by_rank);
    spr_free(t);
}

static spr_status shm_open(const struct spr_transport_params *params,
                           struct spr_transport **transport, struct spr_error *error)
{
    size_t ranks = (size_t)params->size;
    struct spr_shm *t = spr_calloc(1, sizeof(*t));
    spr_status status;

    if (!t)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for a transport");
    t->base = (struct spr_transport){.ops = &spr_transport_shm, .params = *params};
    t->epoll = t->listener = t->bell = t->timer = -1;
    t->own.fd = -1;
    spr_list_init(&t->conns);
    t->by_rank = spr_calloc(2 * ranks, sizeof(struct spr_shm_link *));
    if (!t->by_rank) {
        status = spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for %d links", params->size);
        goto undo;
    }
    t->links = t->by_rank + ranks;
    status = spr_shm_own_create(&t->own, (uint32_t)params->rank, (uint32_t)params->size,
                                params->epoch, params->options->shm_slots, error);
    if (status)
        goto undo;
    if (!spr_shm_slots_init(&t->slots, &t->own.layout)) {
        status = spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the list of slots");
        goto undo;
    }
    status = spr_shm_sockets_open(t, error);
    if (status)
        goto undo;
    *transport = &t->base;
    return SPR_OK;
undo:
    shm_close(&t->base);
    return status;
}

static void shm_address(struct spr_transport *t, void *address)
{
    memset(address, 0, SPR_ADDRESS_BYTES);
    memcpy(address, spr_shm_of(t)->name, sizeof(spr_shm_of(t)->name));
}

/* Same boot and same network namespace (abstract sockets belong to it), same user. */
static const char *shm_unusable(const struct spr_peer_info *mine, const struct spr_peer_info *peer)
{
    const uint32_t offered = 1u << SPR_T_SHM;

    if (!(mine->transports & peer->transports & offered))
        return "one of them has no shared memory";
    if (memcmp(mine->boot_id, peer->boot_id, sizeof(mine->boot_id)) != 0)
        return "they are on different hosts";
    if (mine->net_namespace != peer->net_namespace)
        return "they are in different network namespaces";
    return mine->uid == peer->uid ? NULL : "they belong to different users";
}

static spr_status shm_connect(struct spr_transport *base, int peer,
                              const struct spr_peer_info *info, struct spr_link **link,
                              struct spr_error *error)
{
    struct spr_shm *t = spr_shm_of(base);
    struct spr_shm_link *l;
    spr_status status;

    assert(peer >= 0 && peer < base->params.size && peer != base->params.rank);
    assert(!t->by_rank[peer]);
    l = spr_calloc(1, sizeof(*l));
    if (!l)
        return spr_error_set(error, SPR_ERR_NOMEM, peer, "no memory for a link");
    l->source = SPR_SHM_LINK;
    l->base = (struct spr_link){.transport = base, .peer = peer, .state = SPR_LINK_CONNECTING};
    l->bell = l->socket = l->pidfd = -1;
    l->out = spr_shm_own_area(&t->own, peer);
    spr_pool_init(&l->copies, SPR_SHM_INLINE, 64, 0);
    if (base->params.rank > peer) {
        status = spr_shm_conn_start(t, l, info->address[SPR_T_SHM]);
        if (status) {
            spr_free(l);
            return spr_error_set(error, status, peer, "no memory for a connection");
        }
    }
    t->by_rank[peer] = l;
    t->links[t->link_count++] = l;
    t->sockets_due = true; /* the peer may have connected already */
    *link = &l->base;
    return SPR_OK;
}

static void shm_send(struct spr_link *base, struct spr_tx *tx)
{
    struct spr_shm_link *link = spr_shm_link_of(base);

    assert(tx->header.bytes <= SPR_FRAME_MAX_PAYLOAD);
    enqueue(link, tx);
    /* Copied at once when nothing waits before it; progress() returns it. */
    if (link->uncopied == tx)
        spr_shm_flush(link);
}

static void shm_kill(struct spr_link *base)
{
    struct spr_shm_link *link = spr_shm_link_of(base);

    link->cut = true;
    if (base->state != SPR_LINK_DOWN)
        shut(link, false);
}

static int shm_progress(struct spr_transport *base)
{
    struct spr_shm *t = spr_shm_of(base);
    bool sockets = t->sockets_due || t->unfinished || t->until_sockets == 0;
    int n = 0;

    if (t->armed) {
        t->armed = false;
        atomic_store_explicit(&spr_shm_own_header(&t->own)->sleeping, 0, memory_order_seq_cst);
        sockets = true;
    }
    if (sockets) {
        t->until_sockets = SOCKETS_EVERY;
        n += spr_shm_sockets_progress(t);
    }
    for (int i = 0; i < t->link_count; i++) {
        struct spr_shm_link *link = t->links[i];

        if (link->head || link->gone || link->fault || spr_shm_has_frame(link))
            n += link_progress(link);
    }
    t->until_sockets -= n ? (unsigned)spr_min_size(BUSY_WEIGHT, t->until_sockets) : 1;
    return n;
}

static int shm_fd(struct spr_transport *base) { return spr_shm_of(base)->epoll; }

/* progress() has something to do for this link. */
static bool link_has_work(const struct spr_shm_link *link)
{
    if (link->head && (link->head != link->uncopied || link->base.state == SPR_LINK_DOWN))
        return true;
    if (link->base.state != SPR_LINK_UP)
        return false;
    return link->fault || link->gone ||
           atomic_load_explicit(&link->next->turn, memory_order_seq_cst) == link->consumed + 1;
}

static spr_status shm_arm(struct spr_transport *base)
{
    struct spr_shm *t = spr_shm_of(base);
    _Atomic uint64_t *sleeping = &spr_shm_own_header(&t->own)->sleeping;
    uint64_t word = SPR_SHM_WAKE_FRAMES;
    bool busy = t->sockets_due;

    for (int i = 0; i < t->link_count; i++)
        if (t->links[i]->uncopied)
            word |= SPR_SHM_WAKE_ROOM;
    t->generation += SPR_SHM_GENERATION;
    atomic_store_explicit(sleeping, t->generation | word, memory_order_seq_cst); /* step (1) */
    for (int i = 0; i < t->link_count && !busy; i++)                             /* step (2) */
        busy = link_has_work(t->links[i]) ||
               ((word & SPR_SHM_WAKE_ROOM) && spr_shm_has_room_news(t->links[i]));
    if (!busy) {
        t->armed = true;
        return SPR_OK;
    }
    /* Stays armed when it was: then the bell may have rung, and progress() is to take that in. */
    atomic_store_explicit(sleeping, 0, memory_order_seq_cst);
    return SPR_IN_PROGRESS;
}

static bool shm_idle(struct spr_transport *base)
{
    struct spr_shm *t = spr_shm_of(base);

    for (int i = 0; i < t->link_count; i++)
        if (t->links[i]->head)
            return false;
    return true;
}

/* What is copied lies in memory that the peer has mapped. */
static bool shm_delivered(struct spr_link *link)
{
    return !((const struct spr_shm_link *)link)->uncopied;
}

static spr_status shm_mem_register(struct spr_transport *t, void *memory, size_t bytes,
                                   bool writable)
{
    (void)t, (void)memory, (void)bytes, (void)writable;
    return SPR_OK; /* nothing to do: payloads are copied by the CPU */
}

static void shm_mem_deregister(struct spr_transport *t, void *memory, size_t bytes)
{
    (void)t, (void)memory, (void)bytes;
}

const struct spr_transport_ops spr_transport_shm = {
    .name = "shm",
    .memory = true,
    .open = shm_open,
    .address = shm_address,
    .unusable = shm_unusable,
    .connect = shm_connect,
    .send = shm_send,
    .release = spr_shm_release,
    .kill = shm_kill,
    .progress = shm_progress,
    .fd = shm_fd,
    .arm = shm_arm,
    .idle = shm_idle,
    .delivered = shm_delivered,
    .close = shm_close,
    .mem_register = shm_mem_register,
    .mem_deregister = shm_mem_deregister,
};
