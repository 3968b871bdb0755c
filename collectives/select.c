/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The table of algorithms, and the choice among them: by name, as another run has chosen, by what
 * was measured of such calls, by the model where there is one, and otherwise by rules. All ranks
 * choose alike, since all that a choice is made from is equal on them: what was asked for, who
 * shares a host or a rack, what links are worth, times on which they agreed, the model, what a
 * codec's last step has brought.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "collectives/collective.h"
#include "collectives/decisions.h"
#include "collectives/reduce.h"
#include "collectives/trials.h"

/* In order of preference: without a model "auto" takes the first that is usable and fits; those
 * behind one that always is, such as direct, are there for the model, and to be asked for. */
static const struct spr_algorithm *const table[] = {
    &spr_allreduce_flat,        &spr_allreduce_hierarchical,
    &spr_allreduce_ring,        &spr_allreduce_direct,
    &spr_allreduce_halving,     &spr_allreduce_doubling,
    &spr_allreduce_tree,        &spr_reduce_scatter_hierarchical,
    &spr_reduce_scatter_direct, &spr_allgather_hierarchical,
    &spr_allgather_direct,      &spr_allgather_bruck,
    &spr_broadcast_flat,        &spr_broadcast_hierarchical,
    &spr_broadcast_direct,      &spr_broadcast_tree,
    &spr_barrier_dissemination, &spr_sparse_allgather,
    &spr_sparse_hosts,          &spr_sparse_hierarchical,
    &spr_sparse_relay,          &spr_sparse_direct,
    &spr_sparse_doubling,       &spr_sparse_ring,
    &spr_sparse_dense,          &spr_sparse_union,
    &spr_sparse_server,         &spr_sparse_blocks,
    &spr_sendrecv_direct,
};
_Static_assert(SPR_ARRAY_LEN(table) == SPR_ALGORITHMS, "a model has a place for each");

static size_t place_of(const struct spr_algorithm *a)
{
    size_t i = 0;

    while (table[i] != a)
        i++;
    return i;
}

/* A rank sends no more than this, at U16's 6 bytes per entry: then a step costs more than sending
 * each list to all and adding all of them. Measured on emulated hosts, see docs/tuning.md. */
#define SHORT_LISTS_BYTES ((size_t)256 << 10)

/* A rank sends its neighbour segments of the vector of at least this, or of a list, for which a
 * ring is faster than `direct` between emulated hosts of one rank each, see docs/tuning.md. */
#define RING_SEGMENT_BYTES ((size_t)64 << 10)

/* Values of a coded vector from which on to sum those of a host first is faster, although that
 * moves floats inside it: bytes; see docs/tuning.md. */
#define LONG_VALUE_BYTES 0.7

/* Blocks from which on those of one host's ranks go to others by way of one of them. */
#define LONG_BLOCK_BYTES ((size_t)16 << 10)

/* An algorithm that took a codec's last step stays, unless another one is faster by this. */
#define HYSTERESIS 1.1

static bool is_usable(const struct spr_comm *comm, const struct spr_plan *plan,
                      const struct spr_algorithm *a)
{
    return a->collective == plan->collective && spr_algorithm_usable(a, plan, comm->size) &&
           (!plan->bound_hosts || a == &spr_sparse_hosts) &&
           !(a->reorders && comm->options.determinism == SPR_DETERMINISM_CANONICAL);
}

static bool each_has_a_host(const struct spr_comm *comm)
{
    return comm->topology.hosts == comm->size;
}

/* Elements cross each link between hosts once, not once per rank; sums of halves as floats. */
static bool suits_even_hosts(const struct spr_comm *comm, const struct spr_plan *plan)
{
    size_t wider = plan->collective == SPR_C_REDUCE_SCATTER
                       ? spr_reduce_acc_size(plan->dtype) / spr_dtype_size(plan->dtype)
                       : 1;

    return spr_topology_hosts_are_even(&comm->topology) &&
           (size_t)spr_topology_fewest(&comm->topology) > wider;
}

/* Is it what it is made for? */
static bool suits(const struct spr_comm *comm, const struct spr_plan *plan,
                  const struct spr_algorithm *a)
{
    if (a == &spr_allreduce_flat || a == &spr_broadcast_flat)
        return plan->count * spr_dtype_size(plan->dtype) <= comm->options.eager_bytes;
    /* Sums of halves are floats: worth it where several ranks share a port, not an uplink alone. */
    if (a == &spr_allreduce_hierarchical && spr_dtype_size(plan->dtype) < sizeof(float))
        return comm->topology.hosts > 1 && !each_has_a_host(comm);
    if (a == &spr_allreduce_hierarchical || a == &spr_sparse_hierarchical || a == &spr_sparse_hosts)
        return spr_topology_has_levels(&comm->topology, comm->size);
    if (a == &spr_reduce_scatter_hierarchical || a == &spr_allgather_hierarchical ||
        a == &spr_broadcast_hierarchical)
        return suits_even_hosts(comm, plan);
    if (a == &spr_sparse_relay) /* hosts of several ranks: the model is not sure enough which */
        return comm->size > 2 && each_has_a_host(comm);
    return true;
}

/* TCP joins hosts of one rank each, and a rank has so many bytes to sum, enough for a ring. */
static bool is_ring_of_hosts(const struct spr_comm *comm, size_t bytes)
{
    const struct spr_group all = {.size = comm->size, .rank = comm->rank};

    return comm->size > 2 && each_has_a_host(comm) &&
           bytes / (size_t)comm->size >= RING_SEGMENT_BYTES &&
           spr_comm_medium(comm, &all) == SPR_MEDIUM_ANY;
}

/* Nobody has to wait for several senders, and what is left at the end, when all else has been sent,
 * is one chunk, not one from each owner to all. But the slowest link carries as much as the others.
 */
static bool fits_ring(const struct spr_comm *comm, const struct spr_plan *plan)
{
    return !comm->topology.uneven &&
           is_ring_of_hosts(comm, plan->count * spr_dtype_size(plan->dtype));
}

/* Likewise, of lists at U16's 6 bytes per entry: each port has one sender of sums. */
static bool fits_relay(const struct spr_comm *comm, const struct spr_plan *plan)
{
    return is_ring_of_hosts(comm, 6 * plan->most_entries);
}

/* A coded vector whose hosts send less when their ranks' values are summed. A host has as many
 * leaders as the smallest one has ranks. */
static bool fits_hosts(const struct spr_comm *comm, const struct spr_plan *plan)
{
    const struct spr_topology *t = &comm->topology;

    if (!plan->may_sum_first || t->hosts <= 1 || each_has_a_host(comm))
        return false;
    for (int h = 0; h < t->hosts; h++)
        if (spr_topology_local_ranks(t, h) > 2 * spr_topology_fewest(t))
            return false;
    return spr_coding_value_bytes(&plan->coding) > LONG_VALUE_BYTES;
}

static bool fits(const struct spr_comm *comm, const struct spr_plan *plan,
                 const struct spr_algorithm *a)
{
    if (a == &spr_sparse_hosts)
        return plan->bound_hosts || fits_hosts(comm, plan);
    if (a == &spr_reduce_scatter_hierarchical || a == &spr_allgather_hierarchical)
        return suits_even_hosts(comm, plan) &&
               plan->count * spr_dtype_size(plan->dtype) >= LONG_BLOCK_BYTES;
    if (a == &spr_allreduce_ring)
        return fits_ring(comm, plan);
    if (a == &spr_sparse_relay)
        return fits_relay(comm, plan);
    if (a == &spr_sparse_allgather)
        return plan->most_entries > 0 && comm->size > 1 &&
               plan->most_entries <= SHORT_LISTS_BYTES / 6 / ((size_t)comm->size - 1);
    return suits(comm, plan, a);
}

/* The model ---------------------------------------------------------------------------------------
 */

/* A prediction is no less, whatever the start. */
#define LEAST_S 1e-7

static double with_start(size_t place, const struct spr_estimate *e)
{
    double seconds = table[place]->predict(e) + e->model->start[place];

    return seconds < LEAST_S ? LEAST_S : seconds;
}

/* Until a codec's union is known, lists are taken for as alike as can be where the choice is
 * between them and a dense vector: with that one it would never be known. */
static double seconds_of(size_t place, const struct spr_plan *plan, const struct spr_estimate *e)
{
    struct spr_estimate alike = *e;

    if (!table[place]->predict)
        return (double)NAN;
    if (table[place] == &spr_sparse_dense && plan->codec_hash && !plan->last_union) {
        size_t direct = place_of(&spr_sparse_direct);
        alike.u = alike.k;
        if (with_start(direct, &alike) < with_start(place, &alike))
            return INFINITY;
    }
    return with_start(place, e);
}

static bool is_known(const struct spr_comm *comm, const struct spr_plan *plan)
{
    bool sparse = plan->collective == SPR_C_SPARSE_ALLREDUCE;

    if (spr_topology_has_racks(&comm->topology)) /* it knows nothing of their uplinks */
        return false;
    return comm->model.known && comm->size > 1 && plan->count > 0 &&
           (sparse ? plan->most_entries > 0 : plan->collective == SPR_C_ALLREDUCE);
}

/* The fastest, or the last one if that is hardly slower; NULL: the model does not know. */
static const struct spr_algorithm *by_model(const struct spr_comm *comm,
                                            const struct spr_plan *plan)
{
    const struct spr_algorithm *best = NULL, *last = NULL;
    double least = INFINITY, of_last = INFINITY;
    struct spr_estimate e;

    if (!is_known(comm, plan))
        return NULL;
    e = spr_estimate_of(comm, plan);
    for (size_t i = 0; i < SPR_ARRAY_LEN(table); i++) {
        const struct spr_algorithm *a = table[i];
        double seconds;
        if (!a->predict || !is_usable(comm, plan, a) || !suits(comm, plan, a))
            continue;
        seconds = seconds_of(i, plan, &e);
        if (seconds < least) {
            best = a;
            least = seconds;
        }
        if (plan->last_algorithm && !strcmp(a->name, plan->last_algorithm)) {
            last = a;
            of_last = seconds;
        }
    }
    return of_last <= HYSTERESIS * least ? last : best;
}

/* The one that was the fastest when all were called; NULL: none was, for such a plan. */
static const struct spr_algorithm *by_trial(const struct spr_comm *comm,
                                            const struct spr_plan *plan)
{
    const struct spr_tried *tried = spr_tried_find(comm, plan);
    const struct spr_algorithm *best = NULL;
    double least = INFINITY;

    for (size_t i = 0; tried && i < SPR_ARRAY_LEN(table); i++)
        if (tried->seconds[i] < least && is_usable(comm, plan, table[i]) &&
            suits(comm, plan, table[i])) {
            best = table[i];
            least = tried->seconds[i];
        }
    return best;
}

static const struct spr_algorithm *by_rules(const struct spr_comm *comm,
                                            const struct spr_plan *plan)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(table); i++)
        if (is_usable(comm, plan, table[i]) && fits(comm, plan, table[i]))
            return table[i];
    return NULL;
}

/* As another run has chosen; NULL: nothing is known of that, or it cannot be followed. */
static const struct spr_algorithm *by_file(const struct spr_comm *comm, const struct spr_plan *plan)
{
    const struct spr_algorithm *a = spr_decisions_recall(comm, plan);

    return a && is_usable(comm, plan, a) ? a : NULL;
}

struct way {
    const char *name;
    const struct spr_algorithm *(*choose)(const struct spr_comm *comm, const struct spr_plan *plan);
};
static const struct way ways[] = {
    {"file", by_file}, {"trials", by_trial}, {"model", by_model}, {"rules", by_rules}};

/* *by: who knew. */
static const struct spr_algorithm *choose(const struct spr_comm *comm, const struct spr_plan *plan,
                                          const char **by)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(ways); i++) {
        const struct spr_algorithm *a = ways[i].choose(comm, plan);
        *by = ways[i].name;
        if (a)
            return a;
    }
    return NULL;
}

size_t spr_algorithm_candidates(const struct spr_comm *comm, const struct spr_plan *plan,
                                struct spr_candidate *candidates)
{
    struct spr_plan next = *plan;
    const struct spr_algorithm *chosen;
    const struct spr_tried *tried = spr_tried_find(comm, plan);
    bool known = is_known(comm, plan);
    struct spr_estimate e;
    const char *by;
    size_t n = 0;

    next.operation = comm->next_operation;
    chosen = choose(comm, &next, &by);
    if (known)
        e = spr_estimate_of(comm, plan);
    for (size_t i = 0; i < SPR_ARRAY_LEN(table) && n < SPR_CANDIDATES; i++) {
        const struct spr_algorithm *a = table[i];
        if (is_usable(comm, plan, a) && suits(comm, plan, a))
            candidates[n++] = (struct spr_candidate){
                .algorithm = a,
                .seconds = known ? seconds_of(i, plan, &e) : (double)NAN,
                .measured = tried && isfinite(tried->seconds[i]) ? tried->seconds[i] : (double)NAN,
                .chosen = a == chosen,
                .place = i};
    }
    return n;
}

/* A rank that is done without the others would not hear of those who called it with elements. */
static bool is_empty(const struct spr_plan *plan, int size)
{
    return plan->count == 0 && plan->collective != SPR_C_BARRIER && size > 1;
}

static const struct spr_algorithm *not_found(const struct spr_comm *comm,
                                             const struct spr_plan *plan, const char *name,
                                             struct spr_error *error)
{
    char names[256] = "";

    for (size_t i = 0; i < SPR_ARRAY_LEN(table); i++)
        if (is_usable(comm, plan, table[i]))
            snprintf(names + strlen(names), sizeof names - strlen(names), " %s", table[i]->name);
    spr_error_set(error, SPR_ERR_INVALID, comm->rank,
                  "no algorithm '%s' for %s of %s%s%s; there is:%s", name,
                  spr_collective_names[plan->collective], spr_dtype_name(plan->dtype),
                  plan->bound_hosts ? " with union=hosts" : "",
                  comm->options.determinism == SPR_DETERMINISM_CANONICAL
                      ? " with SPARRING_DETERMINISM=canonical"
                      : "",
                  names);
    return NULL;
}

static const struct spr_algorithm *by_name(const struct spr_comm *comm, const struct spr_plan *plan,
                                           const char *name)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(table); i++)
        if (is_usable(comm, plan, table[i]) && !strcmp(name, table[i]->name))
            return table[i];
    return NULL;
}

static bool is_any(const char *name) { return !name || !strcmp(name, "auto"); }

/* *by: who knew; NULL: the caller, by its name. */
static const struct spr_algorithm *select_one(const struct spr_comm *comm,
                                              const struct spr_plan *plan, const char *name,
                                              const char **by, struct spr_error *error)
{
    const struct spr_algorithm *a;

    *by = NULL;
    a = is_any(name) ? choose(comm, plan, by) : by_name(comm, plan, name);
    return a ? a : not_found(comm, plan, is_any(name) ? "auto" : name, error);
}

bool spr_algorithm_exists(const struct spr_comm *comm, const struct spr_plan *plan,
                          const char *name, struct spr_error *error)
{
    const char *by;

    return select_one(comm, plan, name, &by, error);
}

const struct spr_algorithm *spr_algorithm_select(spr_comm *comm, const struct spr_plan *plan,
                                                 const char *name, struct spr_error *error)
{
    const char *by;
    const struct spr_algorithm *a = select_one(comm, plan, name, &by, error);

    if (a && by)
        spr_decisions_note(comm, plan, a, by);
    return a && is_empty(plan, comm->size) ? &spr_empty : a;
}

static const struct spr_algorithm *find(const char *collective, const char *name)
{
    for (size_t k = 0; k < SPR_ARRAY_LEN(table); k++)
        if (!strcmp(spr_collective_names[table[k]->collective], collective) &&
            !strcmp(table[k]->name, name))
            return table[k];
    return NULL;
}

double spr_algorithm_seconds(const char *collective, const char *name, const struct spr_estimate *e)
{
    const struct spr_algorithm *a = find(collective, name);

    return a && a->predict ? a->predict(e) : (double)NAN;
}

const struct spr_algorithm *spr_algorithm_at(size_t place) { return table[place]; }

int spr_algorithm_place(const char *collective, const char *name)
{
    const struct spr_algorithm *a = find(collective, name);

    return a ? (int)place_of(a) : -1;
}

const char *spr_algorithm_name(const char *collective, int i)
{
    for (size_t k = 0; k < SPR_ARRAY_LEN(table); k++)
        if (!strcmp(spr_collective_names[table[k]->collective], collective) && i-- == 0)
            return table[k]->name;
    return NULL;
}

int spr_algorithm_is_canonical(const char *collective, const char *name)
{
    const struct spr_algorithm *a = find(collective, name);

    return a && !a->reorders && !a->delegates;
}
