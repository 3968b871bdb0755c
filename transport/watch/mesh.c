/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/watch/mesh.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "transport/tcp/tcp.h"
#include "transport/watch/guardian.h"

/* Keeps a connection of the mesh from being taken for one of the data path. */
#define PURPOSE 0x6d657368u /* "mesh" */
#define MOVES 64            /* passes before the lock is given up, and beats are due again */

struct peer {
    struct spr_link *link; /* NULL: none */
    bool left, beating;    /* said so; a beat is still under way to it */
    bool up;               /* it was, and may have gone down since */
    /* Found in an upcall, told when the lock is free. */
    bool news, death;
    char text[112];
};

struct spr_mesh {
    struct spr_mesh_params params;
    struct spr_auth_key key;
    struct spr_counters counters; /* the transport's; nobody reads them */
    struct spr_transport *transport;
    struct spr_pool frames;
    struct peer *peers; /* size entries */
    uint32_t epoch;

    pthread_mutex_t lock;
    pthread_t thread;
    bool has_thread, stop, news;
    int wake_fd;
    int guardian_fd; /* -1: none, or it has all connections */
    int links, given;
};

/* Frames --------------------------------------------------------------------------------------- */

static void compose(const struct spr_mesh *m, struct spr_frame *f, enum spr_mesh_word word,
                    int about)
{
    memset(f, 0, sizeof *f);
    f->type = SPR_FRAME_DATA;
    f->epoch = m->epoch;
    f->operation = word;
    f->arg = (uint32_t)about;
    if (word == SPR_MESH_BEAT && m->params.progress)
        f->arg64 = atomic_load_explicit(m->params.progress, memory_order_relaxed);
    spr_frame_seal(f);
}

static void say(struct spr_mesh *m, int to, enum spr_mesh_word word, int about)
{
    struct peer *p = &m->peers[to];
    struct spr_tx *tx;

    if (!p->link || p->link->state != SPR_LINK_UP || p->left)
        return;
    if (word == SPR_MESH_BEAT && p->beating)
        return; /* it does not read: one in the queue is enough */
    tx = spr_pool_get(&m->frames);
    if (!tx)
        return; /* the next beat may find memory */
    memset(tx, 0, sizeof *tx);
    compose(m, &tx->header, word, about);
    p->beating |= word == SPR_MESH_BEAT;
    m->transport->ops->send(p->link, tx);
}

static void on_sent(struct spr_link *link, struct spr_tx *tx)
{
    struct spr_mesh *m = link->channel;

    if (tx->header.operation == SPR_MESH_BEAT)
        m->peers[link->peer].beating = false;
    spr_pool_put(&m->frames, tx);
}

static void note(struct spr_mesh *m, int rank, bool death, const char *text)
{
    struct peer *p = &m->peers[rank];

    if (p->news)
        return;
    p->news = m->news = true;
    p->death = death;
    snprintf(p->text, sizeof p->text, "%s", text);
}

static void share(struct spr_mesh *m, struct spr_link *link)
{
    struct spr_frame last_words;

    if (m->guardian_fd < 0)
        return;
    compose(m, &last_words, SPR_MESH_DIED, m->params.rank);
    if (spr_guardian_give(m->guardian_fd, spr_tcp_link_of(link)->fd, &last_words) &&
        ++m->given < m->links)
        return;
    close(m->guardian_fd);
    m->guardian_fd = -1;
}

static void on_up(struct spr_link *link)
{
    struct spr_mesh *m = link->channel;

    m->peers[link->peer].up = true;
    spr_debug(SPR_SUB_WATCH, "control connection to rank %d", link->peer);
    share(link->channel, link);
    say(link->channel, link->peer, SPR_MESH_BEAT, 0);
}

static spr_status on_header(struct spr_link *link, const struct spr_frame *f, struct spr_rx *rx)
{
    const struct spr_mesh *m = link->channel;
    const char *why;
    spr_status status = spr_frame_check(f, &why);

    rx->sink = SPR_SINK_DROP;
    rx->into = NULL;
    if (status == SPR_OK && (f->type != SPR_FRAME_DATA || f->bytes || f->epoch != m->epoch ||
                             f->operation < SPR_MESH_BEAT || f->operation > SPR_MESH_EXPELLED ||
                             f->arg >= (uint32_t)m->params.size))
        status = SPR_ERR_PROTO;
    return status;
}

static void on_payload(struct spr_link *link, const struct spr_frame *f, const void *data,
                       void *token)
{
    struct spr_mesh *m = link->channel;
    int from = link->peer, about = (int)f->arg;
    char text[112];

    (void)data, (void)token;
    switch (f->operation) {
    case SPR_MESH_BEAT:
        m->params.heard(m->params.ctx, from, f->arg64);
        return;
    case SPR_MESH_LEFT:
        m->peers[from].left = true;
        m->params.left(m->params.ctx, from);
        return;
    case SPR_MESH_DIED:
        if (about == m->params.rank) /* we live */
            return;
        if (about == from)
            snprintf(text, sizeof text, "its process died (robust futex, told by its guardian)");
        else
            snprintf(text, sizeof text, "its process died (robust futex, told by rank %d)", from);
        note(m, about, true, text);
        return;
    default: /* EXPELLED */
        if (about != m->params.rank)
            return;
        m->peers[from].left = true; /* for this rank: it lives on, whatever becomes of the link */
        note(m, about, false, "expelled");
        return;
    }
}

/* Only an end of file proves that the process has ended: a reset may come from the network. */
static void on_down(struct spr_link *link, spr_status why, const char *what)
{
    struct spr_mesh *m = link->channel;
    char text[112];

    if (m->peers[link->peer].left)
        return;
    /* Whoever was never reached may be alive and well: the watch says so, and does without. */
    if (!m->peers[link->peer].up) {
        spr_info(SPR_SUB_WATCH, "no control connection to rank %d: %s", link->peer, what);
        return;
    }
    snprintf(text, sizeof text, "its control connection: %s", what);
    note(m, link->peer, why == SPR_ERR_RANK_LOST, text);
}

static const struct spr_link_events link_events = {
    .up = on_up,
    .header = on_header,
    .payload = on_payload,
    .sent = on_sent,
    .down = on_down,
};

/* The thread ----------------------------------------------------------------------------------- */

static void tell_news(struct spr_mesh *m)
{
    for (int r = 0; r < m->params.size; r++) {
        struct peer *p = &m->peers[r];
        bool news, death;
        char text[sizeof p->text];
        pthread_mutex_lock(&m->lock);
        news = p->news;
        death = p->death;
        memcpy(text, p->text, sizeof text);
        p->news = false;
        pthread_mutex_unlock(&m->lock);
        if (news)
            m->params.lost(m->params.ctx, r, text, death);
    }
}

static void sleep_for(struct spr_mesh *m, uint64_t ns)
{
    struct pollfd fds[] = {{.fd = m->transport->ops->fd(m->transport), .events = POLLIN},
                           {.fd = m->wake_fd, .events = POLLIN}};
    struct timespec t = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    uint64_t count;

    if (ppoll(fds, SPR_ARRAY_LEN(fds), &t, NULL) > 0 && fds[1].revents)
        (void)!read(m->wake_fd, &count, sizeof count);
}

/* Not for as long as there is something: whoever connects without a pause must not keep the beats
 * from leaving. */
static void move(struct spr_mesh *m)
{
    for (int i = 0; i < MOVES && m->transport->ops->progress(m->transport) > 0; i++)
        ;
}

static void *mesh_main(void *arg)
{
    struct spr_mesh *m = arg;
    uint64_t due = 0;
    bool stop = false;

    pthread_setname_np(pthread_self(), "spr-mesh");
    while (!stop) {
        bool news, armed;
        uint64_t now = spr_monotonic_ns();
        pthread_mutex_lock(&m->lock);
        if (now >= due) {
            due = now + m->params.interval_ns;
            for (int r = 0; r < m->params.size; r++)
                say(m, r, SPR_MESH_BEAT, 0);
        }
        move(m);
        armed = m->transport->ops->arm(m->transport) == SPR_OK;
        stop = m->stop;
        news = m->news;
        m->news = false;
        pthread_mutex_unlock(&m->lock);
        if (news)
            tell_news(m);
        else if (armed && !stop)
            sleep_for(m, due > now ? due - now : 0);
    }
    return NULL;
}

static void wake(struct spr_mesh *m)
{
    uint64_t one = 1;

    (void)!write(m->wake_fd, &one, sizeof one); /* a full counter wakes as well */
}

static void start_guardian(struct spr_mesh *m)
{
    const char *path = m->params.options->guardian;
    struct spr_error reason = {0};

    if (m->params.board_fd < 0 || !path || !*path)
        return;
    if (spr_guardian_start(path, m->params.rank, m->params.board_fd, &m->guardian_fd, &reason))
        spr_info(SPR_SUB_WATCH,
                 "no guardian, other hosts may learn of the end of this rank later: %s",
                 reason.text);
}

spr_status spr_mesh_start(struct spr_mesh *m, struct spr_error *error)
{
    sigset_t all, old;
    int rc;

    start_guardian(m);
    /* Signals are the program's business: none is taken on our thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&m->thread, NULL, mesh_main, m);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, rc, "cannot start the mesh thread");
    m->has_thread = true;
    return SPR_OK;
}

void spr_mesh_tell(struct spr_mesh *m, int to, enum spr_mesh_word word, int about)
{
    pthread_mutex_lock(&m->lock);
    for (int r = 0; r < m->params.size; r++)
        if ((to < 0 && r != about) || r == to)
            say(m, r, word, about);
    pthread_mutex_unlock(&m->lock);
    wake(m);
}

/* Life ----------------------------------------------------------------------------------------- */

spr_status spr_mesh_open(const struct spr_mesh_params *params, struct spr_mesh **mesh,
                         struct spr_error *error)
{
    struct spr_mesh *m = spr_calloc(1, sizeof *m);
    struct spr_transport_params t;
    spr_status status;

    if (!m)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the control mesh");
    m->params = *params;
    m->key = *params->key;
    m->key.config_hash ^= PURPOSE;
    m->epoch = params->key->epoch;
    m->guardian_fd = -1;
    pthread_mutex_init(&m->lock, NULL);
    spr_pool_init(&m->frames, sizeof(struct spr_tx), 16, 0);
    m->peers = spr_calloc((size_t)params->size, sizeof *m->peers);
    m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    t = (struct spr_transport_params){.rank = params->rank,
                                      .size = params->size,
                                      .epoch = m->epoch,
                                      .key = &m->key,
                                      .options = params->options,
                                      .events = &link_events,
                                      .up = m,
                                      .clock = &spr_clock_monotonic,
                                      .counters = &m->counters,
                                      .loopback_only = params->loopback_only};
    if (!m->peers)
        status = spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the control mesh");
    else if (m->wake_fd < 0)
        status = spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "eventfd");
    else
        status = spr_transport_epoll.open(&t, &m->transport, error);
    if (status) {
        spr_mesh_close(m);
        return status;
    }
    *mesh = m;
    return SPR_OK;
}

void spr_mesh_address(struct spr_mesh *m, uint8_t *address)
{
    m->transport->ops->address(m->transport, address);
}

/* As if the peers had nothing but an epoll transport, at the mesh's address. */
static struct spr_peer_info disguise(const struct spr_peer_info *info)
{
    struct spr_peer_info mesh = *info;

    mesh.transports = 1u << SPR_T_EPOLL;
    memcpy(mesh.address[SPR_T_EPOLL], info->watch.address, SPR_ADDRESS_BYTES);
    return mesh;
}

spr_status spr_mesh_connect(struct spr_mesh *m, int peer, const struct spr_peer_info *mine,
                            const struct spr_peer_info *theirs, struct spr_error *error)
{
    const struct spr_transport_ops *ops = m->transport->ops;
    struct spr_peer_info here = disguise(mine), there = disguise(theirs);
    const char *why_not = ops->unusable(&here, &there);
    spr_status status;

    if (why_not)
        return spr_error_set(error, SPR_ERR_UNSUPPORTED, peer, "its address cannot be reached: %s",
                             why_not);
    status = ops->connect(m->transport, peer, &there, &m->peers[peer].link, error);
    if (status == SPR_OK) {
        m->peers[peer].link->channel = m;
        m->links++;
    }
    return status;
}

void spr_mesh_forget(struct spr_mesh *m, int rank)
{
    struct peer *p = &m->peers[rank];

    pthread_mutex_lock(&m->lock);
    if (p->link && !p->left) {
        /* If it lives, it must not take the end of the connection for our death. */
        say(m, rank, SPR_MESH_EXPELLED, rank);
        move(m);
        p->left = true;
        m->transport->ops->kill(p->link);
    }
    pthread_mutex_unlock(&m->lock);
    wake(m);
}

void spr_mesh_close(struct spr_mesh *m)
{
    if (!m)
        return;
    if (m->has_thread) {
        spr_mesh_tell(m, -1, SPR_MESH_LEFT, m->params.rank);
        pthread_mutex_lock(&m->lock);
        m->stop = true;
        pthread_mutex_unlock(&m->lock);
        wake(m);
        pthread_join(m->thread, NULL);
    }
    if (m->transport)
        m->transport->ops->close(m->transport);
    if (m->wake_fd >= 0)
        close(m->wake_fd);
    if (m->guardian_fd >= 0)
        close(m->guardian_fd);
    spr_pool_destroy(&m->frames);
    pthread_mutex_destroy(&m->lock);
    explicit_bzero(&m->key, sizeof m->key);
    spr_free(m->peers);
    spr_free(m);
}
