/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The simulated world: ranks, their events, the clock.
 */
#include "transport/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "transport/sim/private.h"

#define NEVER SPR_SIM_NEVER

/* Events --------------------------------------------------------------------------------------- */

void *spr_sim_alloc(size_t bytes)
{
    void *p = calloc(1, bytes);

    if (!p)
        abort();
    return p;
}

static bool before(const struct spr_sim_due *a, const struct spr_sim_due *b)
{
    return a->ns != b->ns ? a->ns < b->ns : a->order < b->order;
}

static void note_first(struct spr_sim_rank *r)
{
    r->sim->first_ns[r->rank] = r->count ? r->heap[0].ns : NEVER;
}

static void sift_up(struct spr_sim_rank *r, size_t i, struct spr_sim_event *e)
{
    const struct spr_sim_due due = {e->ns, e->order, e};

    for (; i > 0 && before(&due, &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = due;
    note_first(r);
}

void spr_sim_event_push(struct spr_sim_rank *r, struct spr_sim_event *e)
{
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 32;
        struct spr_sim_due *heap = realloc(r->heap, capacity * sizeof *heap);
        if (!heap)
            abort();
        r->heap = heap;
        r->capacity = capacity;
    }
    sift_up(r, r->count++, e);
}

struct spr_sim_event *spr_sim_event_pop(struct spr_sim_rank *r)
{
    struct spr_sim_event *top = r->heap[0].event;
    const struct spr_sim_due last = r->heap[--r->count];
    size_t i = 0;

    while (2 * i + 1 < r->count) {
        size_t child = 2 * i + 1;
        if (child + 1 < r->count && before(&r->heap[child + 1], &r->heap[child]))
            child++;
        if (!before(&r->heap[child], &last))
            break;
        r->heap[i] = r->heap[child];
        i = child;
    }
    if (r->count)
        r->heap[i] = last;
    note_first(r);
    return top;
}

struct spr_sim_event *spr_sim_event_new(struct spr_sim_rank *r, enum spr_sim_kind kind, uint64_t ns,
                                        int peer)
{
    struct spr_sim_event *e = spr_sim_alloc(sizeof *e);

    e->kind = kind;
    e->ns = ns;
    e->order = r->sim->order++;
    e->peer = peer;
    if (r->sim->options.choose)
        spr_sim_choice_add(r, e);
    else
        spr_sim_event_push(r, e);
    return e;
}

void spr_sim_event_free(struct spr_sim_event *e)
{
    free(e->data);
    free(e);
}

void spr_sim_return_unsent(struct spr_sim_rank *r, struct spr_sim_link *l)
{
    struct spr_list *left = &l->choices[SPR_SIM_CHOICE_SENT];

    if (l->unsent == 0)
        return;
    for (struct spr_tx *tx = l->first; tx; tx = tx->next)
        spr_sim_event_new(r, SPR_SIM_SENT, spr_sim_now_ns(r->sim), l->link.peer)->tx = tx;
    l->first = NULL;
    l->last = &l->first;
    for (size_t i = 0; i < r->count; i++) {
        struct spr_sim_event *e = r->heap[i].event;
        if (e->kind != SPR_SIM_SENT || e->peer != l->link.peer)
            continue;
        e->tx->failed = true;
        e->ns = 0;
        sift_up(r, i, e); /* those above it have been looked at */
    }
    while (!spr_list_empty(left)) {
        struct spr_sim_event *e = spr_list_entry(left->next, struct spr_sim_event, node);
        spr_list_remove(&e->node);
        e->tx->failed = true;
        e->ns = 0;
        spr_sim_event_push(r, e);
    }
}

/* World ---------------------------------------------------------------------------------------- */

static void init_rank(struct spr_sim *sim, int rank)
{
    struct spr_sim_rank *r = &sim->ranks[rank];

    r->sim = sim;
    r->rank = rank;
    r->links = spr_sim_alloc((size_t)sim->options.ranks * sizeof(struct spr_sim_link *));
    spr_list_init(&r->connecting);
    spr_list_init(&r->borrowed);
    r->kill_ns = r->pause_from_ns = r->slow_from_ns = NEVER;
    r->bandwidth = sim->options.bandwidth;
    sim->first_ns[rank] = NEVER;
}

struct spr_sim_link *spr_sim_link_to(struct spr_sim_rank *r, int peer)
{
    struct spr_sim_link *l = r->links[peer];

    if (l)
        return l;
    l = r->links[peer] = spr_sim_alloc(sizeof *l);
    l->link.peer = peer;
    l->silent_ns = l->delay_from_ns = NEVER;
    for (size_t i = 0; i < SPR_ARRAY_LEN(l->nth); i++)
        l->nth[i] = NEVER;
    for (size_t i = 0; i < SPR_ARRAY_LEN(l->choices); i++)
        spr_list_init(&l->choices[i]);
    spr_list_init(&l->node);
    l->last = &l->first;
    return l;
}

struct spr_sim *spr_sim_create(const struct spr_sim_options *options)
{
    struct spr_sim *sim = spr_sim_alloc(sizeof *sim);

    sim->options = *options;
    sim->ops = spr_sim_ops;
    sim->ops.memory = options->memory;
    sim->ops.places = options->place;
    sim->clock = spr_clock_virtual(&sim->virtual_clock);
    sim->rng = (struct spr_rng){options->seed, 0};
    sim->ranks = spr_sim_alloc((size_t)options->ranks * sizeof *sim->ranks);
    sim->first_ns = spr_sim_alloc((size_t)options->ranks * sizeof *sim->first_ns);
    for (int i = 0; i < options->ranks; i++)
        init_rank(sim, i);
    spr_sim_wire(sim);
    return sim;
}

void spr_sim_destroy(struct spr_sim *sim)
{
    for (int i = 0; i < sim->options.ranks; i++) {
        struct spr_sim_rank *r = &sim->ranks[i];
        while (r->count)
            spr_sim_event_free(spr_sim_event_pop(r));
        spr_sim_choice_drop(r);
        for (int k = 0; k < sim->options.ranks; k++) {
            if (r->links[k] && r->links[k]->replay)
                spr_sim_event_free(r->links[k]->replay);
            free(r->links[k]);
        }
        free(r->heap);
        free(r->ranges);
        free(r->links);
    }
    spr_sim_unwire(sim);
    free(sim->first_ns);
    free(sim->ranks);
    free(sim);
}

const struct spr_clock *spr_sim_clock(const struct spr_sim *sim) { return &sim->clock; }

bool spr_sim_is_dead(const struct spr_sim *sim, int rank)
{
    return spr_sim_now_ns(sim) >= sim->ranks[rank].kill_ns;
}

bool spr_sim_runs(const struct spr_sim *sim, int rank)
{
    const struct spr_sim_rank *r = &sim->ranks[rank];
    uint64_t now = spr_sim_now_ns(sim);

    return !spr_sim_killed(r) && (now < r->pause_from_ns || now >= r->pause_until_ns);
}

bool spr_sim_has_work(const struct spr_sim *sim, int rank)
{
    const struct spr_sim_rank *r = &sim->ranks[rank];

    return spr_sim_runs(sim, rank) && r->count && r->heap[0].ns <= spr_sim_now_ns(sim);
}

int spr_sim_next_with_work(const struct spr_sim *sim, int rank)
{
    for (; rank < sim->options.ranks; rank++)
        if (sim->first_ns[rank] <= spr_sim_now_ns(sim) && spr_sim_has_work(sim, rank))
            return rank;
    return -1;
}

/* When the rank can act on its first event; NEVER. */
static uint64_t next_ns(const struct spr_sim_rank *r)
{
    uint64_t ns;

    if (!r->count || r->closed)
        return NEVER;
    ns = r->heap[0].ns;
    if (ns < spr_sim_now_ns(r->sim))
        ns = spr_sim_now_ns(r->sim);
    if (ns >= r->pause_from_ns && ns < r->pause_until_ns)
        ns = r->pause_until_ns;
    return ns >= r->kill_ns ? NEVER : ns;
}

static uint64_t world_next_ns(const struct spr_sim *sim)
{
    uint64_t next = NEVER;

    for (int i = 0; i < sim->options.ranks; i++)
        if (sim->first_ns[i] < next)
            next = spr_min_u64(next, next_ns(&sim->ranks[i]));
    return next;
}

bool spr_sim_is_quiet(const struct spr_sim *sim) { return world_next_ns(sim) == NEVER; }

bool spr_sim_advance(struct spr_sim *sim)
{
    uint64_t next = world_next_ns(sim);

    if (next == NEVER)
        return false;
    if (next > sim->virtual_clock.ns)
        sim->virtual_clock.ns = next;
    return true;
}

void spr_sim_sleep(struct spr_sim *sim, uint64_t until_ns)
{
    uint64_t next = spr_min_u64(world_next_ns(sim), until_ns);

    if (next > sim->virtual_clock.ns)
        sim->virtual_clock.ns = next;
}

uint64_t spr_sim_sent_frames(const struct spr_sim *sim, int from, int to)
{
    const struct spr_sim_link *l = sim->ranks[from].links[to];

    return l ? l->frames : 0;
}

int spr_sim_count(const struct spr_sim *sim, enum spr_sim_level level)
{
    const int counts[SPR_SIM_LEVELS] = {
        [SPR_SIM_RANKS] = sim->options.ranks,
        [SPR_SIM_HOSTS] = sim->hosts,
        [SPR_SIM_RACKS] = sim->rack_count,
    };

    return counts[level];
}

struct spr_sim_traffic spr_sim_traffic(const struct spr_sim *sim, enum spr_sim_level level, int i)
{
    if (level == SPR_SIM_RANKS)
        return sim->ranks[i].traffic;
    return level == SPR_SIM_HOSTS ? sim->hosts_traffic[i] : sim->racks[i].traffic;
}
