/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tuning: measures what the model needs, by collectives of the communicator itself.
 *
 *   latency   each of several sendrecvs of one element, one after the other: of a single one, much
 *             is waiting for a rank that begins later
 *   grant     what a sparse allreduce of a short list takes longer than predicted by the others
 *   message   what an allreduce of one element takes longer, per further rank
 *   byte      what a sendrecv takes longer per byte, of all ranks at the same time
 *   reduce    the time that summing took in an allreduce
 *   encode, merge, take
 *             the times of the phases of two sparse allreduces, of a long and a short list
 *   clear     clearing memory
 *   load      plain work of all ranks at the same time, over what it takes alone
 *   exposed   what the long list took longer than the short one, beside what is predicted
 *   copy      what a dense sum that is hierarchical takes longer than predicted without it
 *   start     what each algorithm takes longer than that for a short vector or list
 *
 * Times of messages are medians of a few runs, each on the rank where it is largest: that one is
 * waited for. Bytes and work are timed where they are not disturbed, the least of the runs, and
 * work is multiplied by how much longer it takes when all ranks work.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sparring/sparring.h>

#include "base/fork.h"
#include "base/log.h"
#include "collectives/collective.h"
#include "compress/kernels/kernels.h"

#define SHORT_RUNS 15
#define LONG_RUNS 5
#define CHAIN 8
/* Bytes of a sendrecv: from the first on by factors of four, until one takes that long. */
#define FIRST_BYTES ((size_t)64 << 10)
#define LAST_BYTES ((size_t)4 << 20)
#define LONG_S 50e-3 /* a shaper lets the first of them pass at once */
#define WORK_S 4e-3
#define WORK_RUNS 3
#define VECTOR_ELEMENTS ((size_t)256 << 10)
/* Chunks stream, so a little of either is never hidden; and ranks that are in each other's way can
 * look as if more than all of it were exposed. */
#define LEAST_EXPOSED 0.1
#define MOST_EXPOSED 1.0
#define MOST_COPY 1e-6
#define POSITIONS ((size_t)1 << 20)
#define LONG_LIST (POSITIONS / 16)
#define SHORT_LIST (POSITIONS / 1024)
/* More than caches hold, as large results are. */
#define CLEARED ((size_t)4 << 20)
/* For `start`. */
#define FEW_ELEMENTS ((size_t)1024) /* or what `flat` is for, if that is less */
#define FEW_POSITIONS ((size_t)16 << 10)
#define FEW_ENTRIES (FEW_POSITIONS / 256)
#define MOST_EARLY -0.75
/* Ranks do not share CPUs, when work takes no longer than this while all of them do it. */
#define ALONE 1.2

enum { REDUCE, ENCODE, MERGE, DECODE, PHASES };

struct tuning {
    spr_comm *comm;
    int shift;   /* of a sendrecv: to another host, where there are any */
    int busiest; /* ranks of a host whose data then leave it, at most */
    const char *algorithm;
    size_t positions; /* of a sparse one */
    float *a, *b;     /* LAST_BYTES, CLEARED */
    spr_sparse list;  /* LONG_LIST */
    struct spr_stats before, after;
    size_t long_bytes;            /* of the longest sendrecv */
    double unions[2], seconds[2]; /* of a short list, and a long one */
    double *work;                 /* of all ranks: their phases; and room for one of these */
    struct spr_model model;
};

static spr_status one_sendrecv(struct tuning *t, size_t elements)
{
    return spr_sendrecv(t->comm, t->a, t->b, elements, SPR_FP32, t->shift, NULL);
}

static spr_status chained_sendrecvs(struct tuning *t, size_t n)
{
    spr_status status = SPR_OK;

    for (size_t i = 0; status == SPR_OK && i < n; i++)
        status = one_sendrecv(t, 1);
    return status;
}

static spr_status one_allreduce(struct tuning *t, size_t elements)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = t->algorithm;
    return spr_allreduce(t->comm, t->a, t->b, elements, SPR_FP32, SPR_SUM, &options);
}

static spr_status one_sparse(struct tuning *t, size_t entries)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    size_t apart = t->positions / entries, rank = (size_t)spr_comm_rank(t->comm);

    options.algorithm = t->algorithm;
    options.most_entries = entries;
    for (size_t i = 0; i < entries; i++)
        t->list.index[i] = (uint32_t)(i * apart + (i * 2654435761u + rank * 40503u) % apart);
    t->list.count = entries;
    return spr_sparse_allreduce(t->comm, &t->list, t->positions, t->b, NULL, SPR_SUM, &options);
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* Not above so many of n. */
static double lowest(double *x, int n, double part)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return x[(int)(part * n)];
}

static double median(double *x, int n) { return lowest(x, n, 0.5); }

/* The largest of any rank: the same on all. */
static spr_status agree(struct tuning *t, double *value, size_t n)
{
    return spr_allreduce(t->comm, value, value, n, SPR_FP64, SPR_MAX, NULL);
}

/* Seconds of a call on this rank, from when all are ready. */
static spr_status once(struct tuning *t, spr_status (*call)(struct tuning *, size_t), size_t n,
                       double *seconds)
{
    spr_status status = spr_barrier(t->comm, NULL);
    uint64_t begin = spr_monotonic_ns();

    if (status == SPR_OK)
        status = call(t, n);
    *seconds = (double)(spr_monotonic_ns() - begin) * 1e-9;
    return status;
}

/* ... of the slowest rank, not above so many of some runs, after one that does not count. */
static spr_status time_of(struct tuning *t, spr_status (*call)(struct tuning *, size_t), size_t n,
                          int runs, double part, double *seconds)
{
    double all[SHORT_RUNS];
    spr_status status = call(t, n);

    for (int i = 0; status == SPR_OK && i < runs; i++)
        status = once(t, call, n, &all[i]);
    if (status == SPR_OK)
        status = agree(t, all, (size_t)runs);
    if (status == SPR_OK)
        *seconds = lowest(all, runs, part);
    return status;
}

static spr_status measure_links(struct tuning *t)
{
    struct spr_model *m = &t->model;
    double last = 0, now = 0, flat = 0, alone = 0;
    size_t bytes = FIRST_BYTES;
    spr_status status = time_of(t, chained_sendrecvs, CHAIN, SHORT_RUNS, 0.5, &m->latency);

    if (status == SPR_OK)
        status = time_of(t, one_sendrecv, 1, SHORT_RUNS, 0.5, &alone);
    t->algorithm = "flat";
    if (status == SPR_OK)
        status = time_of(t, one_allreduce, 1, SHORT_RUNS, 0.5, &flat);
    if (status == SPR_OK)
        status = time_of(t, one_sendrecv, bytes / 4, LONG_RUNS, 0, &now);
    if (status)
        return status;
    m->latency /= CHAIN;
    m->message = t->comm->size > 2 ? fmax(flat - alone, 0) / (t->comm->size - 2) : 0;
    do {
        last = now;
        bytes *= 4;
        status = time_of(t, one_sendrecv, bytes / 4, LONG_RUNS, 0, &now);
        if (status)
            return status;
    } while (now < LONG_S && bytes < LAST_BYTES);
    t->long_bytes = bytes;
    m->byte = fmax(now - last, 0) / (0.75 * (double)bytes * t->busiest);
    return SPR_OK;
}

/* How much longer work takes when all ranks do it at the same time: those of a host may have fewer
 * CPUs than they are. Only they are always in each other's way: the least of a few times. */
static spr_status busy(struct tuning *t, size_t unused)
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

static spr_status measure_load(struct tuning *t)
{
    double seconds = WORK_S;
    spr_status status = time_of(t, busy, 0, WORK_RUNS, 0, &seconds);

    t->model.load = fmax(seconds / WORK_S, 1);
    return status;
}

/* Of all ranks: the largest; or the median, where the largest is that of a rank which another one
 * has kept from a CPU. */
static spr_status agree_on_work(struct tuning *t, double *seconds, size_t n)
{
    size_t size = (size_t)t->comm->size;
    double *of_one = t->work + n * size;
    spr_status status;

    if (t->model.load < ALONE)
        return agree(t, seconds, n);
    status = spr_allgather(t->comm, seconds, t->work, n, SPR_FP64, NULL);
    for (size_t i = 0; status == SPR_OK && i < n; i++) {
        for (size_t r = 0; r < size; r++)
            of_one[r] = t->work[r * n + i];
        seconds[i] = median(of_one, (int)size);
    }
    return status;
}

/* Seconds of the phases of a call. */
static spr_status phases_of(struct tuning *t, spr_status (*call)(struct tuning *, size_t), size_t n,
                            double *seconds, double *total)
{
    double all[LONG_RUNS];
    spr_status status = call(t, n);

    for (int p = 0; p < PHASES; p++)
        seconds[p] = INFINITY;
    t->before.struct_size = t->after.struct_size = sizeof t->after;
    for (int i = 0; status == SPR_OK && i < LONG_RUNS; i++) {
        status = spr_comm_stats(t->comm, &t->before);
        if (status == SPR_OK)
            status = once(t, call, n, &all[i]);
        if (status == SPR_OK)
            status = spr_comm_stats(t->comm, &t->after);
        const double now[PHASES] = {[REDUCE] = (double)(t->after.reduce_ns - t->before.reduce_ns),
                                    [ENCODE] = (double)(t->after.encode_ns - t->before.encode_ns),
                                    [MERGE] = (double)(t->after.merge_ns - t->before.merge_ns),
                                    [DECODE] = (double)(t->after.decode_ns - t->before.decode_ns)};
        for (int p = 0; p < PHASES; p++)
            seconds[p] = fmin(seconds[p], now[p] * 1e-9);
    }
    if (status == SPR_OK)
        status = agree_on_work(t, seconds, PHASES);
    if (status == SPR_OK)
        status = agree(t, all, LONG_RUNS);
    if (status == SPR_OK)
        *total = median(all, LONG_RUNS);
    return status;
}

static spr_status clear(struct tuning *t, size_t n)
{
    spr_kernels()->clear(t->b, n);
    return SPR_OK;
}

static spr_status measure_clear(struct tuning *t)
{
    double least = INFINITY, now;
    spr_status status = SPR_OK;

    for (int i = 0; status == SPR_OK && i < LONG_RUNS; i++) {
        status = once(t, clear, CLEARED, &now);
        least = fmin(least, now);
    }
    if (status == SPR_OK)
        status = agree_on_work(t, &least, 1);
    t->model.clear = least / (double)CLEARED;
    return status;
}

/* What a short and a long list took, beyond what is known so far. */
static void fit_lists(struct tuning *t)
{
    struct spr_model *m = &t->model;
    double hidden[2], shown[2];

    m->grant = 0;
    for (int i = 0; i < 2; i++) {
        struct spr_plan plan = {.collective = SPR_C_SPARSE_ALLREDUCE,
                                .dtype = SPR_FP32,
                                .count = POSITIONS,
                                .most_entries = i ? LONG_LIST : SHORT_LIST};
        struct spr_estimate e = spr_estimate_of(t->comm, &plan);
        e.model = m;
        e.u = t->unions[i];
        m->exposed = 0;
        hidden[i] = spr_cost_sparse_direct(&e);
        m->exposed = 1;
        shown[i] = spr_cost_sparse_direct(&e);
    }
    m->exposed = (t->seconds[1] - t->seconds[0] - (hidden[1] - hidden[0])) /
                 fmax(shown[1] - hidden[1] - (shown[0] - hidden[0]), 1e-9);
    m->exposed = fmin(fmax(m->exposed, LEAST_EXPOSED), MOST_EXPOSED);
    m->grant = fmax(t->seconds[0] - hidden[0] - m->exposed * (shown[0] - hidden[0]), 0);
}

/* The largest by which a hierarchical sum is predicted to take less than it did. */
static void fit_copies(struct tuning *t, const struct spr_estimate *e, double seconds)
{
    double low = 0, high = MOST_COPY;

    for (int i = 0; i < 40; i++) {
        t->model.copy = (low + high) / 2;
        if (spr_cost_hierarchical(e) < seconds)
            low = t->model.copy;
        else
            high = t->model.copy;
    }
    t->model.copy = low;
}

static size_t candidates_for(struct tuning *t, const struct spr_plan *plan,
                             struct spr_candidate *candidates)
{
    size_t n;

    spr_comm_lock(t->comm);
    n = spr_algorithm_candidates(t->comm, plan, candidates);
    spr_comm_unlock(t->comm);
    return n;
}

/* Lists move inside hosts, too: what they took is fitted without that before, and with it after. */
static spr_status measure_copies(struct tuning *t)
{
    const struct spr_plan plan = {
        .collective = SPR_C_ALLREDUCE, .dtype = SPR_FP32, .count = t->long_bytes / sizeof(float)};
    struct spr_candidate candidates[SPR_CANDIDATES];
    struct spr_estimate e = spr_estimate_of(t->comm, &plan);
    size_t n = candidates_for(t, &plan, candidates);
    double seconds;
    spr_status status;

    t->algorithm = NULL;
    for (size_t i = 0; i < n; i++)
        if (candidates[i].algorithm->predict == spr_cost_hierarchical)
            t->algorithm = candidates[i].algorithm->name;
    fit_lists(t);
    e.model = &t->model;
    /* No host has several ranks, or one has all; or ranks may not be summed out of their order. */
    if (!t->algorithm || isinf(spr_cost_hierarchical(&e)))
        return SPR_OK;
    status = time_of(t, one_allreduce, plan.count, LONG_RUNS, 0.5, &seconds);
    if (status)
        return status;
    fit_copies(t, &e, seconds);
    fit_lists(t);
    return SPR_OK;
}

/* The union is encoded where it is summed: that is in the time of merging. */
static spr_status measure_work(struct tuning *t)
{
    double dense[PHASES], many[PHASES], few[PHASES], ranks = t->comm->size;
    double total;
    struct spr_model *m = &t->model;
    const size_t more_entries = LONG_LIST - SHORT_LIST;
    double more = (double)more_entries;
    double *const work[] = {&m->reduce, &m->encode, &m->merge, &m->take, &m->clear};
    spr_status status;

    t->algorithm = "direct";
    t->positions = POSITIONS;
    status = phases_of(t, one_allreduce, VECTOR_ELEMENTS, dense, &total);
    if (status == SPR_OK)
        status = phases_of(t, one_sparse, LONG_LIST, many, &t->seconds[1]);
    t->unions[1] = (double)t->after.last_union;
    if (status == SPR_OK)
        status = phases_of(t, one_sparse, SHORT_LIST, few, &t->seconds[0]);
    t->unions[0] = (double)t->after.last_union;
    if (status == SPR_OK)
        status = measure_clear(t);
    if (status)
        return status;
    m->reduce = dense[REDUCE] / (double)(VECTOR_ELEMENTS * sizeof(float));
    m->encode = fmax(many[ENCODE] - few[ENCODE], 0) / more;
    m->merge =
        fmax(many[MERGE] - few[MERGE] - m->encode * (t->unions[1] - t->unions[0]) / ranks, 0) /
        more;
    m->take = fmax(many[DECODE] - few[DECODE], 0) / fmax(t->unions[1] - t->unions[0], 1);
    for (size_t i = 0; i < SPR_ARRAY_LEN(work); i++)
        *work[i] *= t->model.load;
    return SPR_OK;
}

/* What is predicted for next to nothing can be no start: a shaper, say, lets a short vector pass
 * faster than by its rate, and still shorter ones would take less than no time. */
static double start_of(const struct spr_algorithm *algorithm, const struct spr_estimate *e,
                       double seconds)
{
    struct spr_estimate nothing = *e;
    double start = seconds - algorithm->predict(e);

    nothing.n = nothing.bytes = 1;
    nothing.k = fmin(e->k, 1);
    nothing.u = fmin(e->u, 1);
    start = fmax(start, MOST_EARLY * algorithm->predict(&nothing));
    return round(start * 1e7) / 1e7; /* in tenths of microseconds */
}

/* One algorithm after the other, again and again, and some work between them: ranks come to the
 * next one from a barrier after they were busy, as those of a program do. */
static spr_status measure_starts(struct tuning *t, const struct spr_plan *plan)
{
    bool sparse = plan->collective == SPR_C_SPARSE_ALLREDUCE;
    struct spr_candidate candidates[SPR_CANDIDATES];
    double all[SPR_CANDIDATES][SHORT_RUNS];
    struct spr_estimate e = spr_estimate_of(t->comm, plan);
    size_t n = candidates_for(t, plan, candidates);
    spr_status status = SPR_OK;

    e.model = &t->model;
    t->positions = plan->count;
    for (int run = -1; run < SHORT_RUNS; run++) /* the first one does not count */
        for (size_t i = 0; status == SPR_OK && i < n; i++) {
            t->algorithm = candidates[i].algorithm->name;
            clear(t, CLEARED / 64);
            status = once(t, sparse ? one_sparse : one_allreduce,
                          sparse ? plan->most_entries : plan->count, &all[i][run < 0 ? 0 : run]);
        }
    if (status == SPR_OK)
        status = agree(t, all[0], n * SHORT_RUNS);
    for (size_t i = 0; status == SPR_OK && i < n; i++)
        if (candidates[i].algorithm->predict)
            t->model.start[candidates[i].place] =
                start_of(candidates[i].algorithm, &e, median(all[i], SHORT_RUNS));
    return status;
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
    char text[SPR_MODEL_BYTES] = "";
    spr_status status;

    spr_model_print(&t->model, text, sizeof text);
    status = spr_broadcast(t->comm, text, sizeof text / sizeof(int32_t), SPR_INT32, 0, NULL);
    text[sizeof text - 1] = '\0';
    return status ? status : spr_model_parse(text, &t->model, spr_thread_error());
}

/* All have their memory, or all fail. */
static spr_status make(struct tuning *t)
{
    double missing;
    spr_status status;

    t->a = spr_calloc(LAST_BYTES, 1);
    t->b = spr_calloc(CLEARED, sizeof *t->b);
    t->list.index = spr_calloc(LONG_LIST, sizeof(uint32_t));
    t->list.value = spr_calloc(LONG_LIST, sizeof(float));
    t->work = spr_calloc((size_t)t->comm->size * (PHASES + 1), sizeof *t->work);
    missing = !(t->a && t->b && t->list.index && t->list.value && t->work);
    status = agree(t, &missing, 1);
    if (status == SPR_OK && missing > 0)
        status = spr_error_set(spr_thread_error(), SPR_ERR_NOMEM, t->comm->rank,
                               "no rank measures a model: one of them has no memory for %zu bytes",
                               LAST_BYTES + CLEARED * sizeof *t->b);
    return status;
}

static void drop(struct tuning *t)
{
    spr_free(t->a);
    spr_free(t->b);
    spr_free(t->list.index);
    spr_free(t->list.value);
    spr_free(t->work);
}

static size_t few_elements(const spr_comm *comm)
{
    size_t eager = comm->options.eager_bytes / sizeof(float);

    return spr_max_size(1, spr_min_size(FEW_ELEMENTS, eager));
}

spr_status spr_comm_tune(spr_comm *comm)
{
    struct tuning t = {.comm = comm, .model = {.known = true}};
    char text[SPR_MODEL_BYTES];
    spr_status status;

    spr_error_clear(spr_thread_error());
    if (!comm)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "NULL communicator");
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    if (comm->size == 1)
        return SPR_OK;
    _Static_assert(CLEARED * sizeof(float) >= LAST_BYTES, "what is received has room");
    choose_shift(&t);
    status = make(&t);
    if (status == SPR_OK)
        status = measure_links(&t);
    if (status == SPR_OK)
        status = measure_load(&t);
    if (status == SPR_OK)
        status = measure_work(&t);
    if (status == SPR_OK)
        status = measure_copies(&t);
    if (status == SPR_OK)
        status = measure_starts(&t, &(struct spr_plan){.collective = SPR_C_ALLREDUCE,
                                                       .dtype = SPR_FP32,
                                                       .count = few_elements(comm)});
    if (status == SPR_OK)
        status = measure_starts(&t, &(struct spr_plan){.collective = SPR_C_SPARSE_ALLREDUCE,
                                                       .dtype = SPR_FP32,
                                                       .count = FEW_POSITIONS,
                                                       .most_entries = FEW_ENTRIES});
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
