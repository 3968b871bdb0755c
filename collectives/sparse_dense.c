/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse allreduce as a dense one: each rank writes its list into a vector of zeros, and the sum of
 * these is the result. For lists so long that positions cost more than zeros.
 *
 * Cost, n positions of 4 bytes: that of the dense allreduce that "auto" takes for n floats, such as
 * 2 (P-1)/P n floats sent per rank, and n zeros and k scattered writes before it. The bits are
 * those of that dense allreduce, canonical if that is asked for.
 *
 *   list  -->  result: zeros, then the entries  -->  dense allreduce, in place
 *
 * The vector does not say which positions any rank had, so there is no list of the union.
 */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "collectives/collective.h"

#define PIECE 4096 /* positions; 16 KiB */

static bool usable(const struct spr_plan *plan, int size)
{
    (void)size;
    return plan->dtype == SPR_FP32 && plan->vtype != SPR_V_CODED &&
           plan->sum_vtype != SPR_V_CODED && !plan->bound_union && !plan->list;
}

static spr_status refuse(int rank, size_t entry)
{
    return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, rank,
                         "rank %d: indices are unsorted, repeated or out of range at entry %zu",
                         rank, entry);
}

/* Piece by piece, so that a piece is still in the cache when its entries are written. */
static spr_status scatter(const struct spr_plan *plan, float *vector, int rank)
{
    const uint32_t *index = plan->index;
    const float *value = plan->value;
    size_t n = plan->entries, i = 0;

    for (size_t begin = 0, end; begin < plan->count; begin = end) {
        end = spr_min_size(begin + PIECE, plan->count);
        memset(vector + begin, 0, (end - begin) * sizeof *vector);
        for (; i < n && index[i] < end; i++) {
            if (i > 0 && index[i] <= index[i - 1])
                return refuse(rank, i);
            vector[index[i]] = value[i];
        }
    }
    return i == n ? SPR_OK : refuse(rank, i);
}

/* From here on it is the dense one. */
static spr_status start(spr_request *rq)
{
    struct spr_counters *counters = &rq->comm->counters;
    struct spr_plan *plan = &rq->plan;
    uint64_t begin = spr_now_ns(rq->comm->clock);
    spr_status status;

    if (!plan->dense)
        plan->dense = spr_arena_buffer(&rq->arena, (plan->count + 1) * sizeof(float));
    if (!plan->dense)
        return SPR_ERR_NOMEM;
    status = scatter(plan, plan->dense, rq->comm->rank);
    if (status)
        return status;
    counters->encode_ns += spr_now_ns(rq->comm->clock) - begin;
    counters->last_reduce_scatter_ns = counters->last_allgather_ns = 0;
    counters->last_total_ns = counters->last_union = 0;
    plan->collective = SPR_C_ALLREDUCE;
    plan->send = plan->recv = plan->dense;
    plan->most_entries = 0;
    plan->last_algorithm = NULL; /* of that name, it is another one */
    rq->algorithm = spr_algorithm_select(rq->comm, plan, NULL, spr_thread_error());
    return rq->algorithm ? rq->algorithm->start(rq) : spr_thread_error()->status;
}

const struct spr_algorithm spr_sparse_dense = {
    .collective = SPR_C_SPARSE_ALLREDUCE,
    .name = "dense",
    .cost = "as a dense allreduce, which it is; no list of the union",
    .usable = usable,
    .start = start,
    .predict = spr_cost_sparse_dense,
    .delegates = true};
