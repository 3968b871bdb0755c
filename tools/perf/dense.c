/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The dense collectives, out of place (broadcast: in place).
 */
#include <math.h>
#include <string.h>

#include "tools/perf/data.h"
#include "tools/perf/dense_check.h"
#include "tools/perf/trial.h"

size_t trial_bytes(const struct trial *trial)
{
    return trial->elements * spr_dtype_size(trial->dtype);
}

double trial_ring_bytes(const struct trial *trial)
{
    double ranks = trial->job->size, bytes = (double)trial_bytes(trial);
    switch (trial->kind) {
    case KIND_BARRIER:
        return NAN;
    case KIND_BROADCAST:
        return trial->job->size > 1 ? bytes : NAN;
    case KIND_SENDRECV:
        return bytes;
    case KIND_REDUCE_SCATTER:
    case KIND_ALLGATHER:
        return trial->job->size > 1 ? (ranks - 1) / ranks * bytes : NAN;
    default:
        return trial->job->size > 1 ? 2 * (ranks - 1) / ranks * bytes : NAN;
    }
}

static bool in_parts(enum kind kind)
{
    return kind == KIND_REDUCE_SCATTER || kind == KIND_ALLGATHER;
}

size_t dense_elements(const struct job *job, enum kind kind, size_t bytes)
{
    size_t elements = bytes / spr_dtype_size(job->options->dtype);
    size_t parts = in_parts(kind) ? (size_t)job->size : 1;
    return kind == KIND_BARRIER ? 0 : spr_max_size(elements / parts, 1) * parts;
}

/* Elements of the two vectors. */
static void counts(const struct job *job, enum kind kind, size_t elements, size_t *send,
                   size_t *recv)
{
    size_t part = elements / (size_t)job->size;
    *send = kind == KIND_ALLGATHER ? part : elements;
    *recv = kind == KIND_REDUCE_SCATTER ? part : elements;
}

bool dense_vectors(struct job *job, enum kind kind, size_t elements, struct vectors *vectors)
{
    spr_dtype dtype = job->options->dtype;
    size_t send, recv;

    counts(job, kind, elements, &send, &recv);
    if (!job_memory(job, send * spr_dtype_size(dtype), &vectors->send) ||
        !job_memory(job, recv * spr_dtype_size(dtype), &vectors->recv))
        return false;
    data_fill(dtype, job->options->seed, job->rank, 0, send, vectors->send);
    return true;
}

static bool prepare(struct trial *trial)
{
    (void)trial;
    return true;
}

static spr_status run(struct trial *trial)
{
    spr_comm *comm = trial->job->comm;
    const void *send = trial->vectors->send;
    void *recv = trial->vectors->recv;

    switch (trial->kind) {
    case KIND_REDUCE_SCATTER:
        return spr_reduce_scatter(comm, send, recv, trial->count, trial->dtype, trial->op,
                                  &trial->call);
    case KIND_ALLGATHER:
        return spr_allgather(comm, send, recv, trial->count, trial->dtype, &trial->call);
    case KIND_BROADCAST:
        return spr_broadcast(comm, recv, trial->count, trial->dtype, 0, &trial->call);
    case KIND_SENDRECV:
        return spr_sendrecv(comm, send, recv, trial->count, trial->dtype, 1, &trial->call);
    case KIND_BARRIER:
        return spr_barrier(comm, &trial->call);
    default:
        return spr_allreduce(comm, send, recv, trial->count, trial->dtype, trial->op, &trial->call);
    }
}

static bool check(struct trial *trial, struct tally *tally)
{
    size_t bytes = trial->recv_count * spr_dtype_size(trial->dtype);

    memset(trial->vectors->recv, 0xff, bytes);
    if (trial->kind == KIND_BROADCAST && trial->job->rank == 0)
        memcpy(trial->vectors->recv, trial->vectors->send, bytes);
    /* Nobody sends before all have done this: a result that comes too early would be lost. */
    if (!job_barrier(trial->job) || !job_ok(trial->job, run(trial)))
        return false;
    return dense_compare(trial, tally);
}

static void nothing(struct trial *trial) { (void)trial; }

static const struct trial_ops dense_ops = {prepare, run, check, nothing};

void dense_open(struct trial *trial, struct job *job, enum kind kind, const char *algorithm,
                size_t elements, struct vectors *vectors)
{
    *trial = (struct trial){.ops = &dense_ops,
                            .job = job,
                            .kind = kind,
                            .algorithm = algorithm,
                            .call = SPR_CALL_OPTIONS_INIT,
                            .dtype = job->options->dtype,
                            .op = job->options->op,
                            .elements = elements,
                            .count = in_parts(kind) ? elements / (size_t)job->size : elements,
                            .density = NAN,
                            .vectors = vectors};
    trial->call.algorithm = algorithm;
    counts(job, kind, elements, &trial->send_count, &trial->recv_count);
}
