/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The public collectives: check the arguments, make a plan, post it.
 */
#include <string.h>

#include "collectives/collective.h"
#include "collectives/finite.h"
#include "compress/codec.h"

static spr_status check(const spr_comm *comm, size_t count, spr_dtype dtype, spr_op op,
                        const void *send, const void *recv)
{
    size_t size = spr_dtype_size(dtype);

    if (!comm)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "no communicator");
    if (size == 0)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: %d is no element type", comm->rank, (int)dtype);
    if (op < 0 || op >= SPR_OP_COUNT)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: %d is no reduction", comm->rank, (int)op);
    if (count > 0 && (!send || !recv))
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: NULL buffer for %zu elements", comm->rank, count);
    if (count > SIZE_MAX / 16 / (size_t)comm->size)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: count %zu is too large", comm->rank, count);
    return SPR_OK;
}

/* Every collective in its two forms. `prepare` fills the plan. */
#define POST(prepare)                                                                              \
    struct spr_plan plan = {0};                                                                    \
    spr_status status;                                                                             \
    spr_error_clear(spr_thread_error());                                                           \
    status = prepare;                                                                              \
    if (status)                                                                                    \
        return status;                                                                             \
    return spr_collective_post(comm, &plan, options, NULL, false, request)
#define RUN(prepare)                                                                               \
    struct spr_plan plan = {0};                                                                    \
    spr_status status;                                                                             \
    spr_error_clear(spr_thread_error());                                                           \
    status = prepare;                                                                              \
    if (status)                                                                                    \
        return status;                                                                             \
    return spr_collective_run(comm, &plan, options, NULL)

static spr_status dense_plan(struct spr_plan *plan, const spr_comm *comm,
                             enum spr_collective collective, const void *send, void *recv,
                             size_t count, spr_dtype dtype, spr_op op, int root)
{
    spr_status status = check(comm, count, dtype, op, send, recv);

    if (status)
        return status;
    if (root < 0 || root >= comm->size)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: root %d is not one of %d ranks", comm->rank, root,
                             comm->size);
    *plan = (struct spr_plan){.collective = collective,
                              .dtype = dtype,
                              .op = op,
                              .root = root,
                              .count = count,
                              .send = send,
                              .recv = recv};
    return SPR_OK;
}

spr_status spr_iallreduce(spr_comm *comm, const void *send, void *recv, size_t count,
                          spr_dtype dtype, spr_op op, const spr_call_options *options,
                          spr_request **request)
{
    POST(dense_plan(&plan, comm, SPR_C_ALLREDUCE, send, recv, count, dtype, op, 0));
}

spr_status spr_allreduce(spr_comm *comm, const void *send, void *recv, size_t count,
                         spr_dtype dtype, spr_op op, const spr_call_options *options)
{
    RUN(dense_plan(&plan, comm, SPR_C_ALLREDUCE, send, recv, count, dtype, op, 0));
}

spr_status spr_ireduce_scatter(spr_comm *comm, const void *send, void *recv, size_t count,
                               spr_dtype dtype, spr_op op, const spr_call_options *options,
                               spr_request **request)
{
    POST(dense_plan(&plan, comm, SPR_C_REDUCE_SCATTER, send, recv, count, dtype, op, 0));
}

spr_status spr_reduce_scatter(spr_comm *comm, const void *send, void *recv, size_t count,
                              spr_dtype dtype, spr_op op, const spr_call_options *options)
{
    RUN(dense_plan(&plan, comm, SPR_C_REDUCE_SCATTER, send, recv, count, dtype, op, 0));
}

spr_status spr_iallgather(spr_comm *comm, const void *send, void *recv, size_t count,
                          spr_dtype dtype, const spr_call_options *options, spr_request **request)
{
    POST(dense_plan(&plan, comm, SPR_C_ALLGATHER, send, recv, count, dtype, SPR_SUM, 0));
}

spr_status spr_allgather(spr_comm *comm, const void *send, void *recv, size_t count,
                         spr_dtype dtype, const spr_call_options *options)
{
    RUN(dense_plan(&plan, comm, SPR_C_ALLGATHER, send, recv, count, dtype, SPR_SUM, 0));
}

spr_status spr_ibroadcast(spr_comm *comm, void *buffer, size_t count, spr_dtype dtype, int root,
                          const spr_call_options *options, spr_request **request)
{
    POST(dense_plan(&plan, comm, SPR_C_BROADCAST, buffer, buffer, count, dtype, SPR_SUM, root));
}

spr_status spr_broadcast(spr_comm *comm, void *buffer, size_t count, spr_dtype dtype, int root,
                         const spr_call_options *options)
{
    RUN(dense_plan(&plan, comm, SPR_C_BROADCAST, buffer, buffer, count, dtype, SPR_SUM, root));
}

spr_status spr_ibarrier(spr_comm *comm, const spr_call_options *options, spr_request **request)
{
    POST(dense_plan(&plan, comm, SPR_C_BARRIER, NULL, NULL, 0, SPR_FP32, SPR_SUM, 0));
}

spr_status spr_barrier(spr_comm *comm, const spr_call_options *options)
{
    RUN(dense_plan(&plan, comm, SPR_C_BARRIER, NULL, NULL, 0, SPR_FP32, SPR_SUM, 0));
}

static spr_status sendrecv_plan(struct spr_plan *plan, const spr_comm *comm, const void *send,
                                void *recv, size_t count, spr_dtype dtype, int shift)
{
    spr_status status =
        dense_plan(plan, comm, SPR_C_SENDRECV, send, recv, count, dtype, SPR_SUM, 0);
    uintptr_t from = (uintptr_t)send, to = (uintptr_t)recv;
    size_t bytes = count * spr_dtype_size(dtype);

    if (status)
        return status;
    if (from < to + bytes && to < from + bytes)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: the buffers of a sendrecv overlap", comm->rank);
    plan->root = shift;
    return SPR_OK;
}

spr_status spr_isendrecv(spr_comm *comm, const void *send, void *recv, size_t count,
                         spr_dtype dtype, int shift, const spr_call_options *options,
                         spr_request **request)
{
    POST(sendrecv_plan(&plan, comm, send, recv, count, dtype, shift));
}

spr_status spr_sendrecv(spr_comm *comm, const void *send, void *recv, size_t count, spr_dtype dtype,
                        int shift, const spr_call_options *options)
{
    RUN(sendrecv_plan(&plan, comm, send, recv, count, dtype, shift));
}

/* Sparse --------------------------------------------------------------------------------------- */

static spr_status sparse_plan(struct spr_plan *plan, const spr_comm *comm, const spr_sparse *send,
                              size_t elements, float *dense, spr_sparse *list, spr_op op,
                              const spr_call_options *options)
{
    size_t most = options ? options->most_entries : 0;

    if (!comm || !send || (send->count && (!send->index || !send->value)) ||
        (list && list->capacity && (!list->index || !list->value)))
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "invalid argument: NULL communicator or list");
    if (op != SPR_SUM && op != SPR_AVG)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: sparse allreduce knows sum and avg only", comm->rank);
    if (elements > (uint64_t)1 << 32 || send->count > elements || send->count > UINT32_MAX)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: %zu entries (fewer than 2^32) of %zu positions (at most "
                             "2^32)",
                             comm->rank, send->count, elements);
    if (most > 0 && send->count > most)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: a list of %zu entries, where most_entries is %zu",
                             comm->rank, send->count, most);
    *plan = (struct spr_plan){.collective = SPR_C_SPARSE_ALLREDUCE,
                              .dtype = SPR_FP32,
                              .op = op,
                              .most_entries = spr_min_size(most, elements),
                              .count = elements,
                              .index = send->index,
                              .value = send->value,
                              .entries = send->count,
                              .dense = dense,
                              .list = list};
    return SPR_OK;
}

spr_status spr_isparse_allreduce(spr_comm *comm, const spr_sparse *send, size_t elements,
                                 float *dense, spr_sparse *list, spr_op op,
                                 const spr_call_options *options, spr_request **request)
{
    POST(sparse_plan(&plan, comm, send, elements, dense, list, op, options));
}

spr_status spr_sparse_allreduce(spr_comm *comm, const spr_sparse *send, size_t elements,
                                float *dense, spr_sparse *list, spr_op op,
                                const spr_call_options *options)
{
    RUN(sparse_plan(&plan, comm, send, elements, dense, list, op, options));
}

/* Compressed ----------------------------------------------------------------------------------- */

void spr_plan_of_codec(struct spr_plan *plan, const spr_comm *comm, spr_codec *codec)
{
    bool dense = spr_codec_is_dense(codec);

    plan->collective = dense ? SPR_C_ALLREDUCE : SPR_C_SPARSE_ALLREDUCE;
    plan->count = spr_codec_vector(codec);
    plan->vtype = spr_codec_vtype(codec);
    plan->coding = spr_codec_coding(codec);
    plan->dtype = dense ? spr_halves_dtype(plan->vtype) : SPR_FP32;
    plan->bound_union = comm->size > 1 && spr_codec_bounds_union(codec);
    plan->bound_hosts = comm->topology.hosts > 1 && comm->topology.hosts < comm->size &&
                        comm->options.determinism != SPR_DETERMINISM_CANONICAL &&
                        spr_codec_bounds_hosts(codec);
    plan->may_sum_first = spr_codec_may_sum_first(codec);
    plan->sum_vtype = comm->size > 1 ? spr_codec_sum_vtype(codec) : SPR_V_FP32;
    plan->sum_coding = spr_codec_sum_coding(codec);
    spr_history_recall(plan, comm, codec);
}

static spr_status compressed_plan(struct spr_plan *plan, spr_comm *comm, spr_codec *codec,
                                  float *gradient, spr_op op, const spr_call_options *options)
{
    struct spr_codec_place place = {.leaves_rest = true};
    struct spr_codec_step step;
    spr_status status;
    bool dense, may_sum_first, bound_hosts;
    size_t vector;

    if (!comm || !codec || !gradient)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "compressed allreduce: no %s",
                             !comm    ? "communicator"
                             : !codec ? "codec"
                                      : "gradient");
    if (op != SPR_SUM && op != SPR_AVG)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm->rank,
                             "rank %d: compressed allreduce: SPR_SUM or SPR_AVG, not %s",
                             comm->rank, spr_op_name(op));
    /* Nothing may go wrong for the caller's fault once the codec has taken the gradient. */
    spr_plan_of_codec(plan, comm, codec);
    dense = plan->collective == SPR_C_ALLREDUCE;
    may_sum_first = plan->may_sum_first;
    bound_hosts = plan->bound_hosts;
    vector = plan->count;
    if (!spr_algorithm_exists(comm, plan, options ? options->algorithm : NULL, spr_thread_error()))
        return spr_thread_error()->status;
    plan->count = spr_codec_elements(codec);
    /* A retry does not read it. */
    status = spr_codec_is_retry(codec) ? SPR_OK : spr_check_finite(comm, plan, options, gradient);
    if (status)
        return status;
    place.blocks = spr_blocks_choose(vector, (uint32_t)comm->size);
    place.rank = (uint32_t)comm->rank;
    place.most_lost = spr_hosts_share(comm, plan, vector);
    place.sums_first = bound_hosts;
    place.workers = spr_comm_workers(comm, spr_codec_elements(codec));
    status = spr_codec_begin_at(codec, gradient, &place, &step);
    if (status)
        return status;
    *plan = (struct spr_plan){.collective = dense ? SPR_C_ALLREDUCE : SPR_C_SPARSE_ALLREDUCE,
                              .dtype = SPR_FP32,
                              .op = op,
                              .count = vector,
                              .send = step.vector,
                              .recv = step.sum ? step.sum : gradient,
                              .gradient = step.sum ? gradient : NULL,
                              .index = step.dense ? NULL : step.index,
                              .value = step.dense ? step.vector : step.value,
                              .entries = step.dense ? 0 : step.count,
                              .dense = step.sum ? step.sum : gradient,
                              .vtype = step.vtype,
                              .coding = step.coding,
                              .rest = step.rest,
                              .sum_vtype = step.sum_vtype,
                              .sum_coding = step.sum_coding,
                              .may_sum_first = may_sum_first,
                              .bound_union = step.bound_union,
                              .bound_hosts = bound_hosts,
                              .codec_step = step.sum ? step.number : 0};
    return SPR_OK;
}

/* Select in the caller's thread: bucket i is compressed while the library's thread moves bucket
 * i-1. */
static spr_status compressed_post(spr_comm *comm, spr_codec *codec, float *gradient, spr_op op,
                                  const spr_call_options *options, bool soon, spr_request **request)
{
    struct spr_plan plan = {0};
    uint64_t begin = spr_monotonic_ns();
    spr_status status;

    spr_error_clear(spr_thread_error());
    status = comm ? spr_collective_check(comm, options, request) : SPR_OK;
    if (status == SPR_OK && comm && codec)
        spr_outcome_claim(comm, codec);
    if (status == SPR_OK)
        status = compressed_plan(&plan, comm, codec, gradient, op, options);
    if (status)
        return status;
    spr_comm_lock(comm);
    comm->counters.select_ns += spr_monotonic_ns() - begin;
    spr_comm_unlock(comm);
    status = spr_collective_post(comm, &plan, options, codec, soon, request);
    if (status)
        spr_codec_abort(codec);
    return status;
}

spr_status spr_icompressed_allreduce(spr_comm *comm, spr_codec *codec, float *gradient, spr_op op,
                                     const spr_call_options *options, spr_request **request)
{
    return compressed_post(comm, codec, gradient, op, options, false, request);
}

spr_status spr_compressed_allreduce(spr_comm *comm, spr_codec *codec, float *gradient, spr_op op,
                                    const spr_call_options *options)
{
    spr_request *rq = NULL;
    spr_status status = compressed_post(comm, codec, gradient, op, options, true, &rq);

    return status ? status : spr_wait(&rq, -1.0);
}
