/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Growing, the members' side: rank 0 meets the newcomers and speaks for all members; the others
 * hear from it over the old communicator.
 */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/grow.h"
#include "transport/bootstrap/auth_wire.h"

#define PULSE_NS 500000000ull
#define TEND_S 0.25
#define WORD sizeof(int32_t)

/* From rank 0 to the other members. */
struct word {
    int32_t status; /* IN_PROGRESS: wait on; SPR_OK: go on; else: it is over */
    int32_t rank;   /* ... by whose fault, or -1 */
    struct spr_ticket ticket;
    char text[480];
};
_Static_assert(sizeof(struct word) % WORD == 0, "sent as words");

spr_status spr_growth_wait(struct spr_growth *g, spr_request **request)
{
    uint32_t operation = g->old->next_operation - 1;
    char ranks[128], whom[200];
    spr_status status;
    int first;

    while ((status = spr_wait(request, g->met ? TEND_S : -1.0)) == SPR_ERR_TIMEOUT) {
        spr_comm_lock(g->old);
        spr_channel_waiting_for(&g->old->channel, operation, ranks, sizeof ranks, &first);
        spr_comm_unlock(g->old);
        snprintf(whom, sizeof whom, "for %s%s to call spr_comm_grow",
                 *ranks ? "rank " : "the members", ranks);
        spr_meeting_tend(&g->meeting, whom);
    }
    return status;
}

/* All members, or none: a broadcast may be over for some when another one calls something else, and
 * a barrier for nobody. */
static spr_status gather(struct spr_growth *g)
{
    spr_call_options call = SPR_CALL_OPTIONS_INIT;
    spr_request *request = NULL;
    spr_status status;

    if (g->gathered)
        return SPR_OK;
    call.name = "grow";
    status = spr_ibarrier(g->old, &call, &request);
    if (status == SPR_OK)
        status = spr_growth_wait(g, &request);
    g->gathered = status == SPR_OK;
    g->apart = !g->gathered;
    return status ? spr_comm_failed_call(g->old, status, g->error) : SPR_OK;
}

static spr_status say(struct spr_growth *g, spr_status what)
{
    struct word w = {.status = what, .rank = g->error->rank, .ticket = g->ticket};

    spr_status status;

    if (what < 0)
        snprintf(w.text, sizeof w.text, "%.479s", g->error->text);
    status = gather(g);
    return status ? status : spr_growth_broadcast(g, g->old, &w, sizeof w / WORD, 0);
}

/* Does anybody wait for what rank 0 says? */
static bool is_heard(const struct spr_growth *g) { return !g->apart && spr_comm_is_sound(g->old); }

/* An error that another member names. */
static spr_status as_told(struct spr_growth *g, int32_t status, int rank, const char *text)
{
    return spr_error_set(g->error, spr_error_is_known(status) ? status : SPR_ERR_PROTO,
                         rank >= 0 && rank < g->old->size ? rank : -1, "%s", text);
}

static bool is_ticket(const struct spr_growth *g, const struct spr_ticket *t)
{
    return t->members == g->old->size && t->size > t->members &&
           t->size <= t->members + SPR_MOST_NEWCOMERS && t->state_rank >= 0 &&
           t->state_rank < t->members && t->epoch == g->old->channel.epoch + 1;
}

/* Until rank 0 says what counts. */
static spr_status listen(struct spr_growth *g)
{
    struct word w;
    spr_status status = gather(g);

    if (status)
        return status;
    do {
        status = spr_growth_broadcast(g, g->old, &w, sizeof w / WORD, 0);
        if (status)
            return status;
    } while (w.status == SPR_IN_PROGRESS);
    w.text[sizeof w.text - 1] = '\0';
    if (w.status != SPR_OK)
        return as_told(g, w.status, w.rank, w.text);
    if (!is_ticket(g, &w.ticket))
        return spr_error_set(g->error, SPR_ERR_PROTO, 0, "rank 0 sent a ticket that is none");
    g->ticket = w.ticket;
    return SPR_OK;
}

/* Rank 0 and the newcomers; the other members hear that it goes on. */
static spr_status with_newcomers(struct spr_growth *g, const void *in, void *out, size_t bytes)
{
    void *request = NULL;
    spr_status status = spr_bootstrap_begin(&g->meeting, in, out, bytes, &request, g->error);

    while (status == SPR_OK || status == SPR_IN_PROGRESS) {
        status = spr_bootstrap_await(&g->meeting, request, spr_monotonic_ns() + PULSE_NS, g->error);
        if (status == SPR_OK)
            return SPR_OK;
        if (status == SPR_IN_PROGRESS && g->old->size > 1)
            status = say(g, SPR_IN_PROGRESS);
    }
    spr_meeting_refuse(&g->meeting, status, g->error->rank, g->error->text);
    return status;
}

/* Nobody who was here before can know it: not who was expelled, not another job. */
static spr_status make_job(struct spr_growth *g)
{
    uint8_t fresh[32], mac[SPR_AUTH_MAC_BYTES];

    if (getrandom(fresh, sizeof fresh, 0) != (ssize_t)sizeof fresh)
        return spr_error_set(g->error, SPR_ERR_SYSTEM, -1, "no random bytes");
    if (!spr_auth_hmac(&g->old->key, fresh, sizeof fresh, mac))
        return spr_error_set(g->error, SPR_ERR_SYSTEM, -1, "libcrypto has no HMAC-SHA256");
    memcpy(&g->ticket.job, mac, sizeof g->ticket.job);
    return SPR_OK;
}

static spr_status hand_out_tickets(struct spr_growth *g)
{
    size_t size = (size_t)g->ticket.size;
    struct spr_ticket *all = spr_calloc(2 * size, sizeof *all);
    spr_status status = SPR_ERR_NOMEM;

    if (all) {
        all[0] = g->ticket;
        status = with_newcomers(g, all, all + size, sizeof *all);
    }
    spr_free(all);
    return status;
}

static spr_status meet_as_root(struct spr_growth *g)
{
    const spr_grow_options *o = g->options;
    const struct spr_options *options = &g->old->options;
    int newcomers = o->newcomers > 0 ? o->newcomers : 1;
    struct spr_meeting_terms terms = {g->old->size, newcomers,
                                      o->at_least > 0 ? o->at_least : newcomers};
    uint64_t deadline =
        spr_monotonic_ns() + spr_seconds_ns(spr_growth_wait_s(g, options) * spr_time_factor());
    char place[SPR_MEETING_PLACE_BYTES];
    spr_status status = spr_meeting_place(o->meet, NULL, g->old->meet, place, g->error);

    if (status == SPR_OK)
        status = spr_meeting_open(place, &g->old->key, &terms,
                                  g->old->key.secret_bytes == 0 && !options->insecure, deadline,
                                  &g->meeting, g->error);
    g->met = status == SPR_OK;
    if (status == SPR_OK)
        status = with_newcomers(g, NULL, NULL, 0);
    if (status)
        return status;
    spr_meeting_seated(&g->meeting, spr_growth_way_in(g, options));
    g->ticket.epoch = g->old->channel.epoch + 1;
    g->ticket.members = g->old->size;
    g->ticket.size = (int32_t)g->meeting.size;
    g->ticket.state_rank = o->state_rank;
    status = make_job(g);
    return status ? status : hand_out_tickets(g);
}

spr_status spr_growth_meet(struct spr_growth *g)
{
    spr_status status, told;

    if (g->old->rank != 0) {
        status = listen(g);
        g->deadline_ns = spr_growth_way_in(g, &g->old->options);
        return status;
    }
    status = meet_as_root(g);
    if (status && !g->error->status)
        spr_error_set(g->error, status, -1, "%s", spr_status_string(status));
    if (!is_heard(g))
        return status;
    told = say(g, status);
    /* All members are here now. */
    g->deadline_ns = spr_growth_way_in(g, &g->old->options);
    if (g->met)
        spr_meeting_seated(&g->meeting, g->deadline_ns);
    return status ? status : told;
}

/* The first allgather of the new communicator ---------------------------------------------------
 */

/* Goes before each member's part. */
struct preface {
    int32_t status; /* not SPR_OK: this member cannot take part */
    char text[220];
};
_Static_assert(sizeof(struct preface) % WORD == 0, "sent as words");
_Static_assert(sizeof(struct spr_peer_info) % WORD == 0, "sent as words");

/* Not even to say why: the others are not to wait. */
static spr_status cannot_take_part(struct spr_growth *g)
{
    spr_comm_abort(g->old, "no memory to grow");
    return SPR_ERR_NOMEM;
}

/* All members' parts at `parts`, one after the other. */
static spr_status among_members(struct spr_growth *g, const struct preface *preface,
                                const void *part, size_t bytes, char *parts)
{
    size_t members = (size_t)g->old->size, stride = sizeof *preface + bytes;
    char *all = spr_calloc(members + 1, stride), *mine = all ? all + members * stride : NULL;
    spr_call_options call = SPR_CALL_OPTIONS_INIT;
    spr_request *request = NULL;
    struct preface theirs;
    char text[256];
    spr_status status;

    if (!all)
        return cannot_take_part(g);
    memcpy(mine, preface, sizeof *preface);
    if (bytes)
        memcpy(mine + sizeof *preface, part, bytes);
    call.name = "grow";
    status = spr_iallgather(g->old, mine, all, stride / WORD, SPR_INT32, &call, &request);
    if (status == SPR_OK)
        status = spr_growth_wait(g, &request);
    if (status)
        (void)spr_comm_failed_call(g->old, status, g->error);
    for (size_t r = 0; r < members && status == SPR_OK; r++) {
        memcpy(&theirs, all + r * stride, sizeof theirs);
        if (theirs.status) {
            snprintf(text, sizeof text, "rank %zu: %.219s", r, theirs.text);
            status = as_told(g, theirs.status, (int)r, text);
        }
        memcpy(parts + r * bytes, all + r * stride + sizeof theirs, bytes);
    }
    spr_free(all);
    return status;
}

static spr_status exchange(struct spr_growth *g, const void *in, char *out, size_t bytes)
{
    const struct preface fine = {0};
    size_t members = (size_t)g->old->size;
    bool root = g->old->rank == 0;
    spr_status status, told;
    char *parts = spr_malloc(members * bytes);

    if (!parts)
        return SPR_ERR_NOMEM; /* spr_growth_refuse follows */
    g->exchanged = true;
    status = among_members(g, &fine, in, bytes, parts);
    if (status && root)
        spr_meeting_refuse(&g->meeting, status, g->error->rank, g->error->text);
    if (status == SPR_OK && root) {
        status = with_newcomers(g, parts, out, bytes);
        told = is_heard(g) ? say(g, status) : status;
        status = status ? status : told;
    } else if (status == SPR_OK) {
        status = listen(g);
    }
    if (status == SPR_OK)
        status = spr_growth_broadcast(g, g->old, out, (size_t)g->ticket.size * bytes / WORD, 0);
    g->addressed = status == SPR_OK;
    spr_free(parts);
    return status;
}

static spr_status growth_allgather(void *ctx, const void *in, void *out, size_t bytes,
                                   void **request)
{
    struct spr_growth *g = ctx;
    spr_status status;

    if (bytes % WORD)
        return SPR_ERR_INVALID;
    status = exchange(g, in, out, bytes);
    snprintf(g->line, sizeof g->line, "%s", g->error->text);
    *request = g;
    return status;
}

static const char *growth_error(void *ctx)
{
    const struct spr_growth *g = ctx;

    return *g->line ? g->line : NULL;
}

void spr_growth_bootstrap(struct spr_growth *g, spr_bootstrap *boot)
{
    *boot = (spr_bootstrap){
        .struct_size = sizeof *boot,
        .ctx = g,
        .rank = (uint32_t)g->old->rank,
        .size = (uint32_t)g->ticket.size,
        .allgather = growth_allgather,
        .test = spr_bootstrap_ended,
        .error = growth_error,
    };
}

void spr_growth_refuse(struct spr_growth *g, spr_status status)
{
    struct preface preface = {.status = status};
    /* As long as the parts of the others are. */
    struct spr_peer_info nothing = {0};
    char *parts = spr_calloc((size_t)g->old->size, sizeof nothing);
    struct spr_error mine = *g->error;

    snprintf(preface.text, sizeof preface.text, "%.219s",
             *g->error->text ? g->error->text : spr_status_string(status));
    g->exchanged = true;
    if (parts)
        (void)among_members(g, &preface, &nothing, sizeof nothing, parts);
    else
        (void)cannot_take_part(g);
    if (g->met)
        spr_meeting_refuse(&g->meeting, status, mine.rank, mine.text);
    spr_free(parts);
    *g->error = mine;
}
