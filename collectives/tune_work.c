/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tuning: load, reduce, encode, merge, take, clear and stream.
 */
#include <math.h>
#include <time.h>

#include "collectives/tune.h"

#define WORK_S 4e-3
#define WORK_RUNS 3
#define VECTOR_ELEMENTS ((size_t)256 << 10)
/* Ranks do not share CPUs, when work takes no longer than this while all of them do it. */
#define ALONE 1.2

/* How much longer work takes when all ranks do it at the same time: those of a host may have fewer
 * CPUs than they are. Only they are always in each other's way: the least of a few times. */
static spr_status busy(struct spr_tuning *t, size_t unused)
{
    double used, first = -1;
    struct timespec now;

    (void)t;
    (void)unused;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        used = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
        first = first < 0 ? used : first;
    } while (used - first < WORK_S);
    return SPR_OK;
}

spr_status spr_tuning_load(struct spr_tuning *t)
{
    double seconds = WORK_S;
    spr_status status = spr_tuning_time_of(t, busy, 0, WORK_RUNS, 0, &seconds);

    t->model.load = fmax(seconds / WORK_S, 1);
    return status;
}

/* Of all ranks: the largest; or the median, where the largest is that of a rank which another one
 * has kept from a CPU. */
static spr_status agree_on_work(struct spr_tuning *t, double *seconds, size_t n)
{
    size_t size = (size_t)t->comm->size;
    double *of_one = t->work + n * size;
    spr_status status;

    if (t->model.load < ALONE)
        return spr_tuning_agree(t->comm, seconds, n);
    status = spr_allgather(t->comm, seconds, t->work, n, SPR_FP64, NULL);
    for (size_t i = 0; status == SPR_OK && i < n; i++) {
        for (size_t r = 0; r < size; r++)
            of_one[r] = t->work[r * n + i];
        seconds[i] = spr_tuning_median(of_one, (int)size);
    }
    return status;
}

/* Seconds of the phases of a call. */
static spr_status phases_of(struct spr_tuning *t, spr_tuning_call *call, size_t n, double *seconds,
                            double *total)
{
    double all[SPR_TUNING_LONG_RUNS];
    spr_status status = call(t, n);

    for (int p = 0; p < SPR_TUNING_PHASES; p++)
        seconds[p] = INFINITY;
    t->before.struct_size = t->after.struct_size = sizeof t->after;
    for (int i = 0; status == SPR_OK && i < SPR_TUNING_LONG_RUNS; i++) {
        status = spr_comm_stats(t->comm, &t->before);
        if (status == SPR_OK)
            status = spr_tuning_once(t, call, n, &all[i]);
        if (status == SPR_OK)
            status = spr_comm_stats(t->comm, &t->after);
        const double now[SPR_TUNING_PHASES] = {
            [SPR_TUNING_REDUCE] = (double)(t->after.reduce_ns - t->before.reduce_ns),
            [SPR_TUNING_ENCODE] = (double)(t->after.encode_ns - t->before.encode_ns),
            [SPR_TUNING_MERGE] = (double)(t->after.merge_ns - t->before.merge_ns),
            [SPR_TUNING_DECODE] = (double)(t->after.decode_ns - t->before.decode_ns)};
        for (int p = 0; p < SPR_TUNING_PHASES; p++)
            seconds[p] = fmin(seconds[p], now[p] * 1e-9);
    }
    if (status == SPR_OK)
        status = agree_on_work(t, seconds, SPR_TUNING_PHASES);
    if (status == SPR_OK)
        status = spr_tuning_agree(t->comm, all, SPR_TUNING_LONG_RUNS);
    if (status == SPR_OK)
        *total = spr_tuning_median(all, SPR_TUNING_LONG_RUNS);
    return status;
}

/* Per position of a result with a short list, when what its entries take is known. */
static double clear_of(const struct spr_tuning *t, const double *phases)
{
    const struct spr_model *m = &t->model;
    double entries = m->merge * (double)SPR_TUNING_SHORT_LIST +
                     (m->encode / t->comm->size + m->take) * t->unions[0];

    return fmax(phases[SPR_TUNING_MERGE] + phases[SPR_TUNING_DECODE] - entries, 0) /
           (double)SPR_TUNING_POSITIONS;
}

/* What a call takes longer per position, when its list is short and its result long: of a phase the
 * least would be that of a rank which had all the bandwidth of memory for itself. */
static spr_status time_stream(struct spr_tuning *t)
{
    double seconds;
    spr_status status;

    t->positions = SPR_TUNING_MOST_POSITIONS;
    status = spr_tuning_time_of(t, spr_tuning_sparse, SPR_TUNING_SHORT_LIST, SPR_TUNING_LONG_RUNS,
                                0.5, &seconds);
    if (status == SPR_OK)
        t->model.stream = fmax(seconds - t->seconds[0], 0) /
                          (double)(SPR_TUNING_MOST_POSITIONS - SPR_TUNING_POSITIONS);
    return status;
}

/* The union is encoded where it is summed: that is in the time of merging. */
spr_status spr_tuning_work(struct spr_tuning *t)
{
    double dense[SPR_TUNING_PHASES], many[SPR_TUNING_PHASES], few[SPR_TUNING_PHASES];
    double total, ranks = t->comm->size;
    struct spr_model *m = &t->model;
    double more = (double)(SPR_TUNING_LONG_LIST - SPR_TUNING_SHORT_LIST);
    double *const work[] = {&m->reduce, &m->encode, &m->merge, &m->take, &m->clear};
    spr_status status;

    t->algorithm = "direct";
    t->positions = SPR_TUNING_POSITIONS;
    status = phases_of(t, spr_tuning_allreduce, VECTOR_ELEMENTS, dense, &total);
    if (status == SPR_OK)
        status = phases_of(t, spr_tuning_sparse, SPR_TUNING_LONG_LIST, many, &t->seconds[1]);
    t->unions[1] = (double)t->after.last_union;
    if (status == SPR_OK)
        status = phases_of(t, spr_tuning_sparse, SPR_TUNING_SHORT_LIST, few, &t->seconds[0]);
    t->unions[0] = (double)t->after.last_union;
    if (status == SPR_OK)
        status = time_stream(t);
    if (status)
        return status;
    m->reduce = dense[SPR_TUNING_REDUCE] / (double)(VECTOR_ELEMENTS * sizeof(float));
    m->encode = fmax(many[SPR_TUNING_ENCODE] - few[SPR_TUNING_ENCODE], 0) / more;
    m->merge = fmax(many[SPR_TUNING_MERGE] - few[SPR_TUNING_MERGE] -
                        m->encode * (t->unions[1] - t->unions[0]) / ranks,
                    0) /
               more;
    m->take = fmax(many[SPR_TUNING_DECODE] - few[SPR_TUNING_DECODE], 0) /
              fmax(t->unions[1] - t->unions[0], 1);
    m->clear = clear_of(t, few);
    for (size_t i = 0; i < SPR_ARRAY_LEN(work); i++)
        *work[i] *= t->model.load;
    return SPR_OK;
}
