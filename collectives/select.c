/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The table of algorithms, and the choice among them.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/collective.h"

/* In order of preference: "auto" takes the first that is usable and fits. Those behind one that
 * always is, such as direct, are there to be asked for by name. */
static const struct spr_algorithm *const table[] = {
    &spr_allreduce_flat,      &spr_allreduce_hierarchical, &spr_allreduce_direct,
    &spr_allreduce_ring,      &spr_allreduce_halving,      &spr_allreduce_doubling,
    &spr_allreduce_tree,      &spr_reduce_scatter_direct,  &spr_allgather_direct,
    &spr_allgather_bruck,     &spr_broadcast_flat,         &spr_broadcast_direct,
    &spr_broadcast_tree,      &spr_barrier_dissemination,  &spr_sparse_allgather,
    &spr_sparse_hierarchical, &spr_sparse_direct,          &spr_sparse_doubling,
    &spr_sparse_ring,         &spr_sendrecv_direct,
};

/* A rank sends no more than this, at U16's 6 bytes per entry: then a step costs more than sending
 * each list to all and adding all of them. Measured on emulated hosts, see docs/tuning.md. */
#define SHORT_LISTS_BYTES ((size_t)256 << 10)

static bool fits(const struct spr_comm *comm, const struct spr_plan *plan,
                 const struct spr_algorithm *a)
{
    size_t bytes = plan->count * spr_dtype_size(plan->dtype);

    if (a == &spr_allreduce_flat || a == &spr_broadcast_flat)
        return bytes <= comm->options.eager_bytes;
    if (a == &spr_sparse_allgather)
        return plan->most_entries > 0 && comm->size > 1 &&
               plan->most_entries <= SHORT_LISTS_BYTES / 6 / ((size_t)comm->size - 1);
    if (a == &spr_allreduce_hierarchical || a == &spr_sparse_hierarchical)
        return spr_topology_has_levels(&comm->topology, comm->size);
    return true;
}

/* A rank that is done without the others would not hear of those who called it with elements. */
static bool is_empty(const struct spr_plan *plan, int size)
{
    return plan->count == 0 && plan->collective != SPR_C_BARRIER && size > 1;
}

const struct spr_algorithm *spr_algorithm_select(const struct spr_comm *comm,
                                                 const struct spr_plan *plan, const char *name,
                                                 struct spr_error *error)
{
    bool any = !name || !strcmp(name, "auto");
    char names[256] = "";

    for (size_t i = 0; i < SPR_ARRAY_LEN(table); i++) {
        const struct spr_algorithm *a = table[i];
        if (a->collective != plan->collective || !a->usable(plan, comm->size) ||
            (a->reorders && comm->options.determinism == SPR_DETERMINISM_CANONICAL))
            continue;
        if (any ? fits(comm, plan, a) : !strcmp(name, a->name))
            return is_empty(plan, comm->size) ? &spr_empty : a;
        snprintf(names + strlen(names), sizeof names - strlen(names), " %s", a->name);
    }
    spr_error_set(error, SPR_ERR_INVALID, comm->rank,
                  "no algorithm '%s' for %s of %s%s; there is:%s", any ? "auto" : name,
                  spr_collective_names[plan->collective], spr_dtype_name(plan->dtype),
                  comm->options.determinism == SPR_DETERMINISM_CANONICAL
                      ? " with SPARRING_DETERMINISM=canonical"
                      : "",
                  names);
    return NULL;
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
    for (size_t k = 0; k < SPR_ARRAY_LEN(table); k++)
        if (!strcmp(spr_collective_names[table[k]->collective], collective) &&
            !strcmp(table[k]->name, name))
            return !table[k]->reorders;
    return 0;
}
