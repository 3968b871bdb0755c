/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tuning: measures what the model needs, by collectives of the communicator itself, and explains
 * what follows from it.
 *
 *   latency   a sendrecv of one element
 *   grant     what a sparse allreduce of a short list takes longer than predicted by the others
 *   message   what an allreduce of one element takes longer, per further rank
 *   byte      what a sendrecv takes longer per byte, of all ranks at the same time
 *   reduce    the time that summing took in an allreduce
 *   encode, merge, take, clear
 *             the times of the phases of two sparse allreduces, of a long and a short list
 *
 * Each is the lower quartile of a few runs, since what else the machine does only adds, on the rank
 * where it is largest: that one is waited for. Work is timed where it is not disturbed, and
 * multiplied by how much longer it takes when all ranks work.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sparring/sparring.h>

#include "base/fork.h"
#include "base/log.h"
#include "collectives/collective.h"
#include "compress/codec.h"

#define SHORT_RUNS 15
#define LONG_RUNS 5
/* Bytes of a sendrecv: from the first on by factors of four, until one takes that long. */
#define FIRST_BYTES ((size_t)64 << 10)
#define LAST_BYTES ((size_t)4 << 20)
#define LONG_S 4e-3
#define WORK_S 6e-3
#define VECTOR_ELEMENTS ((size_t)256 << 10)
#define POSITIONS ((size_t)1 << 20)
#define LONG_LIST (POSITIONS / 16)
#define SHORT_LIST (POSITIONS / 1024)

struct tuning {
    spr_comm *comm;
    int shift;       /* of a sendrecv: to another host, where there are any */
    int busiest;     /* ranks of a host whose data then leave it, at most */
    float *a, *b;    /* LAST_BYTES each */
    spr_sparse list; /* LONG_LIST */
    struct spr_stats before, after;
    double load;
    struct spr_model model;
};

static spr_status one_sendrecv(struct tuning *t, size_t elements)
{
    return spr_sendrecv(t->comm, t->a, t->b, elements, SPR_FP32, t->shift, NULL);
}

static spr_status one_allreduce(struct tuning *t, size_t elements)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = elements > 1 ? "direct" : "flat";
    return spr_allreduce(t->comm, t->a, t->b, elements, SPR_FP32, SPR_SUM, &options);
}

static spr_status one_sparse(struct tuning *t, size_t entries)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    size_t apart = POSITIONS / entries, rank = (size_t)spr_comm_rank(t->comm);

    options.algorithm = "direct";
    for (size_t i = 0; i < entries; i++)
        t->list.index[i] = (uint32_t)(i * apart + (i * 2654435761u + rank * 40503u) % apart);
    t->list.count = entries;
    return spr_sparse_allreduce(t->comm, &t->list, POSITIONS, t->b, NULL, SPR_SUM, &options);
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* Not above so many of n; 0: the least. */
static double lowest(double *x, int n, double part)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return x[(int)(part * n)];
}

/* The largest of any rank: the same on all. */
static spr_status agree(struct tuning *t, double *value, size_t n)
{
    return spr_allreduce(t->comm, value, value, n, SPR_FP64, SPR_MAX, NULL);
}

/* Seconds of a call, after one that does not count. */
static spr_status time_of(struct tuning *t, spr_status (*call)(struct tuning *, size_t), size_t n,
                          int runs, double *seconds)
{
    double all[SHORT_RUNS];
    spr_status status = call(t, n);

    for (int i = 0; status == SPR_OK && i < runs; i++) {
        uint64_t begin;
        status = spr_barrier(t->comm, NULL);
        begin = spr_monotonic_ns();
        if (status == SPR_OK)
            status = call(t, n);
        all[i] = (double)(spr_monotonic_ns() - begin) * 1e-9;
    }
    if (status == SPR_OK) {
        *seconds = lowest(all, runs, 0.25);
        status = agree(t, seconds, 1);
    }
    return status;
}

static spr_status measure_links(struct tuning *t)
{
    struct spr_model *m = &t->model;
    double last = 0, now, flat;
    size_t bytes = FIRST_BYTES;
    spr_status status = time_of(t, one_sendrecv, 1, SHORT_RUNS, &m->latency);

    if (status == SPR_OK)
        status = time_of(t, one_allreduce, 1, SHORT_RUNS, &flat);
    if (status == SPR_OK)
        status = time_of(t, one_sendrecv, bytes / 4, LONG_RUNS, &now);
    if (status)
        return status;
    m->message = t->comm->size > 2 ? fmax(flat - m->latency, 0) / (t->comm->size - 2) : 0;
    do {
        last = now;
        bytes *= 4;
        status = time_of(t, one_sendrecv, bytes / 4, LONG_RUNS, &now);
        if (status)
            return status;
    } while (now < LONG_S && bytes < LAST_BYTES);
    m->byte = fmax(now - last, 0) / (0.75 * (double)bytes * t->busiest);
    return SPR_OK;
}

/* How much longer work takes when all ranks do it at the same time: those of a host may have fewer
 * CPUs than they are. */
static spr_status measure_load(struct tuning *t)
{
    spr_status status = spr_barrier(t->comm, NULL);
    uint64_t begin = spr_monotonic_ns();
    struct timespec now;
    double used, first = -1;

    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        used = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
        first = first < 0 ? used : first;
    } while (used - first < WORK_S);
    t->load = fmax((double)(spr_monotonic_ns() - begin) * 1e-9 / WORK_S, 1);
    return status == SPR_OK ? agree(t, &t->load, 1) : status;
}

/* Seconds of the phases of a call, on the rank where each takes longest. */
enum { REDUCE, ENCODE, MERGE, DECODE, TOTAL, PHASES };

static spr_status phases_of(struct tuning *t, spr_status (*call)(struct tuning *, size_t), size_t n,
                            double *seconds)
{
    double all[PHASES][LONG_RUNS];
    spr_status status = call(t, n);

    t->before.struct_size = t->after.struct_size = sizeof t->after;
    for (int i = 0; status == SPR_OK && i < LONG_RUNS; i++) {
        uint64_t begin;
        status = spr_barrier(t->comm, NULL);
        if (status == SPR_OK)
            status = spr_comm_stats(t->comm, &t->before);
        begin = spr_monotonic_ns();
        if (status == SPR_OK)
            status = call(t, n);
        all[TOTAL][i] = (double)(spr_monotonic_ns() - begin);
        if (status == SPR_OK)
            status = spr_comm_stats(t->comm, &t->after);
        all[REDUCE][i] = (double)(t->after.reduce_ns - t->before.reduce_ns);
        all[ENCODE][i] = (double)(t->after.encode_ns - t->before.encode_ns);
        all[MERGE][i] = (double)(t->after.merge_ns - t->before.merge_ns);
        all[DECODE][i] = (double)(t->after.decode_ns - t->before.decode_ns);
    }
    for (int p = 0; status == SPR_OK && p < PHASES; p++)
        seconds[p] = lowest(all[p], LONG_RUNS, p == TOTAL ? 0.25 : 0) * 1e-9;
    return status == SPR_OK ? agree(t, seconds, PHASES) : status;
}

/* The union is encoded where it is summed: that is in the time of merging. */
static spr_status measure_work(struct tuning *t)
{
    double dense[PHASES], many[PHASES], few[PHASES], ranks = t->comm->size;
    double unions[2];
    struct spr_model *m = &t->model;
    const size_t more_entries = LONG_LIST - SHORT_LIST;
    double more = (double)more_entries;
    struct spr_plan plan = {.collective = SPR_C_SPARSE_ALLREDUCE,
                            .dtype = SPR_FP32,
                            .count = POSITIONS,
                            .most_entries = SHORT_LIST};
    struct spr_estimate e;
    double *const work[] = {&m->reduce, &m->encode, &m->merge, &m->take, &m->clear};
    spr_status status = phases_of(t, one_allreduce, VECTOR_ELEMENTS, dense);

    if (status == SPR_OK)
        status = phases_of(t, one_sparse, SHORT_LIST, few);
    unions[0] = (double)t->after.last_union;
    if (status == SPR_OK)
        status = phases_of(t, one_sparse, LONG_LIST, many);
    unions[1] = (double)t->after.last_union;
    if (status)
        return status;
    m->reduce = dense[REDUCE] / (double)(VECTOR_ELEMENTS * sizeof(float));
    m->encode = fmax(many[ENCODE] - few[ENCODE], 0) / more;
    m->merge =
        fmax(many[MERGE] - few[MERGE] - m->encode * (unions[1] - unions[0]) / ranks, 0) / more;
    m->take = fmax(many[DECODE] - few[DECODE], 0) / fmax(unions[1] - unions[0], 1);
    m->clear = fmax(few[DECODE] - m->take * unions[0], 0) / (double)POSITIONS;
    for (size_t i = 0; i < SPR_ARRAY_LEN(work); i++)
        *work[i] *= t->load;
    e = spr_estimate_of(t->comm, &plan);
    e.model = m;
    e.u = unions[0];
    m->grant = fmax(few[TOTAL] - spr_cost_sparse_direct(&e), 0);
    return SPR_OK;
}

/* The shift by which most ranks send to another host; half the job away if they all can. */
static void choose_shift(struct tuning *t)
{
    const struct spr_topology *hosts = &t->comm->topology;
    int size = t->comm->size, most = -1;

    for (int i = 0; i < size - 1; i++) {
        int shift = 1 + (size / 2 - 1 + i) % (size - 1), away = 0, busiest = 1;
        for (int h = 0; h < hosts->hosts; h++) {
            int leave = 0;
            for (int k = hosts->first[h]; k < hosts->first[h + 1]; k++)
                leave += hosts->host[(hosts->ranks[k] + shift) % size] != h;
            away += leave;
            busiest = leave > busiest ? leave : busiest;
        }
        if (away <= most)
            continue;
        most = away;
        t->shift = shift;
        t->busiest = busiest;
    }
}

/* The constants are computed alike, but perhaps by other libraries: those of rank 0 count. */
static spr_status share(struct tuning *t)
{
    char text[320] = "";
    struct spr_error ignored = {0};
    spr_status status;

    spr_model_print(&t->model, text, sizeof text);
    status = spr_broadcast(t->comm, text, sizeof text / sizeof(int32_t), SPR_INT32, 0, NULL);
    text[sizeof text - 1] = '\0';
    return status ? status : spr_model_parse(text, &t->model, &ignored);
}

/* All have their memory, or all fail. */
static spr_status make(struct tuning *t)
{
    double missing;
    spr_status status;

    t->a = spr_calloc(LAST_BYTES, 1);
    t->b = spr_calloc(LAST_BYTES, 1);
    t->list.index = spr_calloc(LONG_LIST, sizeof(uint32_t));
    t->list.value = spr_calloc(LONG_LIST, sizeof(float));
    missing = !(t->a && t->b && t->list.index && t->list.value);
    status = agree(t, &missing, 1);
    if (status == SPR_OK && missing > 0)
        status = spr_error_set(spr_thread_error(), SPR_ERR_NOMEM, t->comm->rank,
                               "no rank measures a model: one of them has no memory for %zu bytes",
                               3 * LAST_BYTES);
    return status;
}

static void drop(struct tuning *t)
{
    spr_free(t->a);
    spr_free(t->b);
    spr_free(t->list.index);
    spr_free(t->list.value);
}

spr_status spr_comm_tune(spr_comm *comm)
{
    struct tuning t = {.comm = comm, .model = {.known = true}};
    char text[320];
    spr_status status;

    spr_error_clear(spr_thread_error());
    if (!comm)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "NULL communicator");
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    if (comm->size == 1)
        return SPR_OK;
    _Static_assert(POSITIONS * sizeof(float) <= LAST_BYTES, "the result has room");
    choose_shift(&t);
    status = make(&t);
    if (status == SPR_OK)
        status = measure_links(&t);
    if (status == SPR_OK)
        status = measure_load(&t);
    if (status == SPR_OK)
        status = measure_work(&t);
    if (status == SPR_OK)
        status = share(&t);
    drop(&t);
    if (status)
        return status;
    spr_comm_lock(comm);
    comm->model = t.model;
    spr_comm_unlock(comm);
    spr_info(SPR_SUB_COLL, "model: %s", spr_model_print(&t.model, text, sizeof text));
    return SPR_OK;
}

const char *spr_comm_model(spr_comm *comm, char *text, size_t bytes)
{
    struct spr_model model = {0};

    if (comm->process == spr_process()) {
        spr_comm_lock(comm);
        model = comm->model;
        spr_comm_unlock(comm);
    }
    text[0] = '\0';
    return model.known ? spr_model_print(&model, text, bytes) : text;
}

/* Explaining ----------------------------------------------------------------------------------- */

static int predict(spr_comm *comm, const struct spr_plan *plan, spr_prediction *out, int capacity)
{
    struct spr_candidate candidates[SPR_CANDIDATES];
    size_t n;

    spr_comm_lock(comm);
    n = spr_algorithm_candidates(comm, plan, candidates);
    spr_comm_unlock(comm);
    for (size_t i = 0; i < n && i < (size_t)(capacity < 0 ? 0 : capacity); i++)
        out[i] = (spr_prediction){candidates[i].algorithm->name, candidates[i].seconds,
                                  candidates[i].chosen};
    return (int)n;
}

int spr_comm_predict(spr_comm *comm, const char *collective, size_t count, spr_dtype dtype,
                     size_t most_entries, size_t last_union, spr_prediction *predictions,
                     int capacity)
{
    bool sparse = collective && !strcmp(collective, "sparse_allreduce");
    struct spr_plan plan = {.collective = sparse ? SPR_C_SPARSE_ALLREDUCE : SPR_C_ALLREDUCE,
                            .dtype = dtype,
                            .count = count,
                            .most_entries = most_entries,
                            .last_union = last_union};

    if (!comm || !collective || (!sparse && strcmp(collective, "allreduce")) ||
        spr_dtype_size(dtype) == 0)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "there are predictions for allreduce and sparse_allreduce, not '%s'",
                             collective ? collective : "");
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    return predict(comm, &plan, predictions, capacity);
}

int spr_codec_predict(spr_comm *comm, spr_codec *codec, spr_prediction *predictions, int capacity)
{
    struct spr_plan plan = {0};

    if (!comm || !codec)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "NULL communicator or codec");
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    spr_plan_of_codec(&plan, comm, codec);
    return predict(comm, &plan, predictions, capacity);
}
