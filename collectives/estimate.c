/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a prediction is made from: of an operation that a communicator is asked for, or of numbers.
 */
#include <math.h>

#include "collectives/collective.h"
#include "collectives/indices.h"
#include "collectives/model.h"
#include "collectives/sparse.h"

/* Images of values whose length depends on them are about this long. */
#define CODED_BYTES 1.0

static double value_bytes(enum spr_vtype vtype, const struct spr_coding *coding)
{
    double bytes;

    if (vtype != SPR_V_CODED)
        return (double)spr_vtype_bytes(vtype);
    bytes = coding->coder ? spr_coding_value_bytes(coding) : 0;
    return bytes > 0 ? bytes : CODED_BYTES;
}

/* Of positions drawn by each rank for itself: U = n (1 - (1 - k/n)^P), and the reverse. */
static double union_of_independent(double k, double n, double ranks)
{
    return -n * expm1(ranks * log1p(-fmin(k / n, 1)));
}

static double entries_of_independent(double u, double n, double ranks)
{
    return -n * expm1(log1p(-fmin(u / n, 1)) / ranks);
}

/* What is left to say of a sparse one. */
static void estimate_lists(struct spr_estimate *e)
{
    struct spr_blocks blocks = spr_blocks_choose((uint64_t)e->n, (uint32_t)e->ranks);
    double lists = e->bound_hosts ? e->hosts : e->ranks; /* that make the union */

    e->share = (double)spr_blocks_local(&blocks, 0) * e->ranks / e->n;
    /* What may be sent at most says little where it is more than all have sent together. */
    if (e->u > 0 && e->k > e->u)
        e->k = entries_of_independent(e->u, e->n, lists);
    if (e->u <= 0)
        e->u = union_of_independent(e->k, e->n, lists);
    e->u = fmin(fmax(e->u, e->k), fmin(e->n, e->k * lists));
}

struct spr_estimate spr_estimate_of(const struct spr_comm *comm, const struct spr_plan *plan)
{
    const struct spr_topology *t = &comm->topology;
    struct spr_estimate e = {.model = &comm->model,
                             .indices = spr_indices_of(comm),
                             .ranks = comm->size,
                             .hosts = t->hosts,
                             .local = 1,
                             .gain = t->gain,
                             .most = t->most,
                             .in_order = comm->options.determinism == SPR_DETERMINISM_CANONICAL,
                             .n = (double)plan->count,
                             .bytes = (double)plan->count * (double)spr_dtype_size(plan->dtype),
                             .k = (double)plan->most_entries,
                             .u = (double)plan->last_union,
                             .value = value_bytes(plan->vtype, &plan->coding),
                             .sum = value_bytes(plan->sum_vtype, &plan->sum_coding),
                             .host_sum = value_bytes(spr_hosts_sum_vtype(plan), &plan->coding),
                             .bound_hosts = plan->bound_hosts};

    e.host_value = plan->vtype == SPR_V_CODED ? sizeof(float) : e.value;
    /* No fmax(): on its maximum over a loop gcc 12 for 64-bit ARM has an internal error. */
    for (int h = 0; t->hosts > 1 && h < t->hosts; h++)
        if (spr_topology_local_ranks(t, h) > e.local)
            e.local = spr_topology_local_ranks(t, h);
    for (int r = 0; r < comm->size; r++)
        e.scattered |= r - t->local[r] != t->ranks[t->first[t->host[r]]];
    if (e.k > 0 && e.n > 0)
        estimate_lists(&e);
    return e;
}

struct spr_estimate spr_estimate_even(const struct spr_model *model, double ranks, double local,
                                      double n, double k)
{
    struct spr_estimate e = {.model = model,
                             .indices = spr_indices_of_model(model),
                             .ranks = ranks,
                             .hosts = ceil(ranks / local),
                             .local = local,
                             .gain = 1,
                             .most = 1,
                             .n = n,
                             .bytes = n * sizeof(float),
                             .k = k};

    e.value = e.sum = e.host_sum = e.host_value = sizeof(float);
    if (k > 0)
        estimate_lists(&e);
    return e;
}
