/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rank 0's side of the bootstrap: events, timers, failure.
 */
#include "transport/bootstrap/root.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"
#include "transport/bootstrap/ranks.h"

#define MS 1000000ull
/* After a failure we stay that long for those who are only just connecting: else they would look
 * for us until their deadline. */
#define LINGER (500 * MS)
#define NOTE_FIRST (250 * MS)
#define NOTE_MOST (2000 * MS)
#define EVENTS 64

void spr_root_watch(struct spr_root *r, struct spr_root_conn *c, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    int op = c->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    if (events == c->watched)
        return;
    if (epoll_ctl(r->server.epoll_fd, events ? op : EPOLL_CTL_DEL, c->fd, &event) != 0)
        spr_root_server_fail(r, SPR_ERR_SYSTEM, -1, "epoll_ctl: %m");
    c->watched = events;
}

/* ---- Failure ---- */

/* Best effort: what does not fit into the socket now is not waited for. */
void spr_root_server_tell(struct spr_root *r, struct spr_root_conn *c)
{
    static const struct spr_error gave_up = {SPR_ERR_BOOTSTRAP, 0, "rank 0 gave up"};
    const struct spr_error *error = r->error.status != SPR_OK ? &r->error : &gave_up;

    if (c->fd < 0 || !spr_root_conn_idle(c))
        return;
    spr_root_conn_send_text(c, SPR_ROOT_FAIL, error->status, error->rank, error->text);
    (void)spr_root_conn_flush(c);
}

static void server_tell(struct spr_root *r)
{
    if (r->server.told)
        return;
    r->server.told = true;
    for (int rank = r->first; rank < r->size; rank++)
        if (r->server.conns[rank])
            spr_root_server_tell(r, r->server.conns[rank]);
}

void spr_root_server_fail(struct spr_root *r, spr_status status, int rank, const char *fmt, ...)
{
    char text[SPR_ERROR_TEXT_BYTES];
    va_list args;

    if (r->error.status != SPR_OK)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    spr_error_set(&r->error, status, rank, "%s", text);
}

static bool absent(const void *ctx, int rank)
{
    const struct spr_root *r = ctx;

    return rank >= r->first && !r->server.conns[rank];
}

static bool silent(const void *ctx, int rank)
{
    const struct spr_root *r = ctx;

    return rank >= r->first && r->server.conns[rank] && !r->server.conns[rank]->contributed;
}

static bool undelivered(const void *ctx, int rank)
{
    const struct spr_root *r = ctx;

    return rank >= r->first && r->server.conns[rank] && !r->server.conns[rank]->delivered;
}

/* "ranks 3, 5-7 of 8 did not arrive" */
static void who_is_missing(const struct spr_root *r, char *text, size_t bytes)
{
    char ranks[400];
    const char *what = "did not arrive";

    if (spr_root_meeting_open(r)) {
        snprintf(text, bytes, "%d of %d newcomers came", r->server.connected, spr_root_others(r));
        return;
    }
    if (spr_ranks_text(absent, r, r->size, ranks, sizeof(ranks)) == 0) {
        what = "did not send their addresses";
        if (spr_ranks_text(silent, r, r->size, ranks, sizeof(ranks)) == 0) {
            what = "did not take the result";
            spr_ranks_text(undelivered, r, r->size, ranks, sizeof(ranks));
        }
    }
    snprintf(text, bytes, "%s of %d %s", ranks, r->size, what);
}

static spr_status server_explain(struct spr_root *r, char *text, size_t bytes)
{
    const struct spr_root_server *s = &r->server;
    char who[480], waited[32], refused[300] = "";

    spr_root_waited(r, waited, sizeof(waited));
    if (s->listen_fd < 0 && s->connected < spr_root_others(r)) {
        errno = s->listen_errno;
        snprintf(text, bytes, "rank 0 cannot listen on %s for %s: %m", r->place.text, waited);
        return SPR_ERR_SYSTEM;
    }
    who_is_missing(r, who, sizeof(who));
    if (s->refused > 0)
        snprintf(refused, sizeof(refused), "; turned away %d connection%s, the last %s", s->refused,
                 spr_plural((uint64_t)s->refused), s->last_refusal);
    snprintf(text, bytes, "%s within %s; root %s%s", who, waited, r->place.text, refused);
    return SPR_ERR_BOOTSTRAP;
}

/* ---- Rank 0's side of the bootstrap ---- */

static spr_status server_open(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;

    spr_list_init(&s->half);
    s->listen_fd = -1;
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->conns = spr_calloc((size_t)r->size, sizeof(struct spr_root_conn *));
    if (s->epoll_fd < 0)
        spr_root_server_fail(r, SPR_ERR_SYSTEM, -1, "epoll_create1: %m");
    else if (!s->conns)
        spr_root_server_fail(r, SPR_ERR_NOMEM, -1, "no memory for %d connections", r->size);
    else
        spr_root_door_listen(r);
    return r->error.status;
}

static void server_begin(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;

    s->note_gap_ns = NOTE_FIRST;
    s->note_next_ns = spr_monotonic_ns() + NOTE_FIRST;
    spr_root_gather_begin(r);
}

/* Tell those who wait for whom: when their own deadline passes first, they can say it. */
static void send_notes(struct spr_root *r)
{
    char text[480];

    who_is_missing(r, text, sizeof(text));
    for (int rank = r->first; rank < r->size; rank++) {
        struct spr_root_conn *c = r->server.conns[rank];

        if (!c || !c->contributed || !spr_root_conn_idle(c))
            continue;
        spr_root_conn_send_text(c, SPR_ROOT_NOTE, SPR_IN_PROGRESS, -1, text);
        (void)spr_root_conn_flush(c); /* the rest goes before the result */
    }
}

static void timers(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;
    uint64_t now = spr_monotonic_ns();

    spr_root_door_timers(r);
    if (r->error.status == SPR_OK && !s->broadcasting && now >= s->note_next_ns) {
        send_notes(r);
        s->note_gap_ns = spr_min_u64(2 * s->note_gap_ns, NOTE_MOST);
        s->note_next_ns = now + s->note_gap_ns;
    }
}

/* Returns whether there was anything. */
static bool events(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;
    struct epoll_event list[EVENTS];
    bool incoming = !s->listening && s->listen_fd >= 0;
    int n = epoll_wait(s->epoll_fd, list, EVENTS, 0);

    for (int i = 0; i < n; i++) {
        struct spr_root_conn *c = list[i].data.ptr;

        if (!c)
            incoming = true;
        else if (c->rank < 0)
            spr_root_door_handshake(r, c);
        else if (r->error.status != SPR_OK)
            spr_root_watch(r, c, 0); /* it has been told */
        else
            spr_root_gather_event(r, c, list[i].events);
    }
    /* Afterwards, since it may drop connections that have an event in the list. */
    if (incoming)
        spr_root_door_accept(r);
    if (s->connected == spr_root_others(r))
        spr_root_door_close(r);
    return n == EVENTS;
}

/* It failed: IN_PROGRESS until nobody is left who should be told. */
static spr_status linger(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;
    uint64_t now = spr_monotonic_ns();

    if (!s->told) {
        server_tell(r);
        s->linger_ns = now + spr_root_scaled(LINGER);
    }
    return s->connected == spr_root_others(r) || now >= s->linger_ns ? r->error.status
                                                                     : SPR_IN_PROGRESS;
}

static spr_status server_step(struct spr_root *r)
{
    spr_status status = SPR_IN_PROGRESS;

    timers(r);
    while (events(r))
        ;
    if (r->error.status == SPR_OK)
        status = spr_root_gather_step(r);
    return r->error.status == SPR_OK ? status : linger(r);
}

static void server_wait(struct spr_root *r, uint64_t until_ns)
{
    struct spr_root_server *s = &r->server;
    struct epoll_event event;
    uint64_t now = spr_monotonic_ns();

    if (r->error.status != SPR_OK)
        until_ns = spr_min_u64(until_ns, s->linger_ns);
    else if (!s->broadcasting)
        until_ns = spr_min_u64(until_ns, s->note_next_ns);
    until_ns = spr_min_u64(until_ns, spr_root_door_until(r));
    /* Level-triggered: the event stays for server_step(). */
    if (until_ns > now)
        (void)epoll_wait(s->epoll_fd, &event, 1, (int)((until_ns - now + MS - 1) / MS));
}

static void server_close(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;

    if (s->conns) {
        spr_root_door_close(r);
        if (r->active)
            server_tell(r);
        for (int rank = r->first; rank < r->size; rank++) {
            if (s->conns[rank])
                spr_root_conn_close(s->conns[rank]);
            spr_free(s->conns[rank]);
        }
        spr_free(s->conns);
    }
    if (s->epoll_fd >= 0)
        close(s->epoll_fd);
}

const struct spr_root_side spr_root_server_side = {
    server_open, server_begin, server_step, server_wait, server_explain, server_tell, server_close,
};
