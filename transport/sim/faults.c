/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Faults of ranks, ways and single frames.
 */
#include <stdlib.h>
#include <string.h>

#include "transport/sim/private.h"

#define REPLAY_LAG 4

/* Ranks ---------------------------------------------------------------------------------------- */

void spr_sim_kill(struct spr_sim *sim, int rank, uint64_t at_ns)
{
    uint64_t latency = (uint64_t)(sim->options.latency_s * 1e9);

    sim->ranks[rank].kill_ns = at_ns;
    for (int i = 0; i < sim->options.ranks; i++) {
        double late = sim->options.detect_s * 1e9;
        if (late > 0)
            late *= spr_rng_double(&sim->rng);
        if (i != rank)
            spr_sim_event_new(&sim->ranks[i], SPR_SIM_DIED, at_ns + latency + 1 + (uint64_t)late,
                              rank);
    }
}

void spr_sim_revive(struct spr_sim *sim, int rank)
{
    sim->ranks[rank].kill_ns = SPR_SIM_NEVER;
    sim->ranks[rank].pause_until_ns = 0;
}

void spr_sim_pause(struct spr_sim *sim, int rank, uint64_t from_ns, uint64_t until_ns)
{
    sim->ranks[rank].pause_from_ns = from_ns;
    sim->ranks[rank].pause_until_ns = until_ns;
}

void spr_sim_slow(struct spr_sim *sim, int rank, double bandwidth, uint64_t from_ns)
{
    sim->ranks[rank].slow_out = sim->ranks[rank].slow_in = bandwidth;
    sim->ranks[rank].slow_from_ns = from_ns;
}

void spr_sim_slow_out(struct spr_sim *sim, int rank, double bandwidth, uint64_t from_ns)
{
    spr_sim_slow(sim, rank, bandwidth, from_ns);
    sim->ranks[rank].slow_in = sim->ranks[rank].bandwidth;
}

void spr_sim_slow_in(struct spr_sim *sim, int rank, double bandwidth, uint64_t from_ns)
{
    spr_sim_slow(sim, rank, bandwidth, from_ns);
    sim->ranks[rank].slow_out = sim->ranks[rank].bandwidth;
}

double spr_sim_bandwidth_out(const struct spr_sim_rank *r)
{
    return spr_sim_now_ns(r->sim) >= r->slow_from_ns ? r->slow_out : r->bandwidth;
}

double spr_sim_bandwidth_in(const struct spr_sim_rank *r)
{
    return spr_sim_now_ns(r->sim) >= r->slow_from_ns ? r->slow_in : r->bandwidth;
}

void spr_sim_late_sent(struct spr_sim *sim, int rank, double late_s)
{
    sim->ranks[rank].late_s = late_s;
}

/* Ways ----------------------------------------------------------------------------------------- */

void spr_sim_delay(struct spr_sim *sim, int from, int to, double extra_s, uint64_t from_ns,
                   uint64_t until_ns)
{
    struct spr_sim_link *l = spr_sim_link_to(&sim->ranks[from], to);

    l->delay_from_ns = from_ns;
    l->delay_until_ns = until_ns;
    l->delay_ns = (uint64_t)(extra_s * 1e9);
}

void spr_sim_silence(struct spr_sim *sim, int from, int to, uint64_t at_ns)
{
    spr_sim_link_to(&sim->ranks[from], to)->silent_ns = at_ns;
}

bool spr_sim_is_silent(const struct spr_sim *sim, int from, int to, uint64_t at_ns)
{
    const struct spr_sim_link *l = sim->ranks[from].links[to];

    return l && at_ns >= l->silent_ns;
}

void spr_sim_cut(struct spr_sim *sim, int a, int b)
{
    spr_sim_silence(sim, a, b, spr_sim_now_ns(sim));
    spr_sim_silence(sim, b, a, spr_sim_now_ns(sim));
}

void spr_sim_break(struct spr_sim *sim, int a, int b, uint64_t at_ns, bool a_sees, bool b_sees)
{
    spr_sim_silence(sim, a, b, at_ns);
    spr_sim_silence(sim, b, a, at_ns);
    if (a_sees)
        spr_sim_event_new(&sim->ranks[a], SPR_SIM_BROKEN, at_ns, b);
    if (b_sees)
        spr_sim_event_new(&sim->ranks[b], SPR_SIM_BROKEN, at_ns, a);
}

/* Frames --------------------------------------------------------------------------------------- */

void spr_sim_frame_fault(struct spr_sim *sim, int from, int to, enum spr_sim_frame_fault fault,
                         uint64_t nth)
{
    struct spr_sim_link *l = spr_sim_link_to(&sim->ranks[from], to);

    l->nth[fault] = nth;
    if (fault == SPR_SIM_REPLAY)
        l->replay_lag = spr_rng_below(&sim->rng, REPLAY_LAG);
}

void spr_sim_corrupt(struct spr_sim *sim, int from, int to, uint64_t nth)
{
    spr_sim_frame_fault(sim, from, to, SPR_SIM_CORRUPT, nth);
}

static void flip_a_bit(struct spr_sim *sim, struct spr_sim_event *e)
{
    uint64_t bytes = sizeof e->header + e->header.bytes;
    uint64_t bit = spr_rng_below(&sim->rng, bytes * 8);
    unsigned char *at = bit / 8 < sizeof e->header
                            ? (unsigned char *)&e->header + bit / 8
                            : (unsigned char *)e->data + (bit / 8 - sizeof e->header);

    *at ^= (unsigned char)(1u << (bit % 8));
}

/* The receiver sees the end within the header, or within the payload; the sender a reset. */
static void truncate_frame(struct spr_sim *sim, struct spr_sim_rank *to, struct spr_sim_event *head,
                           struct spr_sim_event *e)
{
    uint64_t cut = spr_rng_below(&sim->rng, sizeof e->header + e->header.bytes);
    int from = head->peer;
    uint64_t latency = (uint64_t)(sim->options.latency_s * 1e9);

    if (cut < sizeof e->header) {
        head->truncated = true;
    } else {
        e->truncated = true;
        e->whole = (uint32_t)(cut - sizeof e->header);
    }
    if (!spr_sim_is_silent(sim, to->rank, from, e->ns))
        spr_sim_event_new(&sim->ranks[from], SPR_SIM_BROKEN, e->ns + latency + 1, to->rank);
}

static struct spr_sim_event *copy_of(const struct spr_sim_event *e)
{
    struct spr_sim_event *copy = spr_sim_alloc(sizeof *copy);

    *copy = *e;
    if (e->data) {
        copy->data = spr_sim_alloc(e->header.bytes);
        memcpy(copy->data, e->data, e->header.bytes);
    }
    return copy;
}

/* The copy arrives right behind the frame that is sent now. */
static void replay(struct spr_sim_link *l, struct spr_sim_rank *to, uint64_t ns)
{
    struct spr_sim_event *e = l->replay;
    struct spr_sim_event *head = spr_sim_event_new(to, SPR_SIM_HEADER, ns + 1, e->peer);
    struct spr_sim_event *tail = spr_sim_event_new(to, SPR_SIM_PAYLOAD, ns + 2, e->peer);

    head->header = tail->header = e->header;
    tail->data = e->data;
    e->data = NULL;
    spr_sim_event_free(e);
    l->replay = NULL;
    l->last_arrival_ns = ns + 2;
}

void spr_sim_damage(struct spr_sim *sim, struct spr_sim_link *l, struct spr_sim_rank *to,
                    struct spr_sim_event *head, struct spr_sim_event *e)
{
    uint64_t n = l->frames - 1;

    if (n == l->nth[SPR_SIM_REPLAY])
        l->replay = copy_of(e); /* as it was sent: its length may be damaged below */
    if (n == l->nth[SPR_SIM_TRUNCATE])
        truncate_frame(sim, to, head, e);
    if (n == l->nth[SPR_SIM_CORRUPT]) {
        flip_a_bit(sim, e);
        head->header = e->header;
    }
    if (l->replay && n >= l->nth[SPR_SIM_REPLAY] + l->replay_lag)
        replay(l, to, e->ns);
}
