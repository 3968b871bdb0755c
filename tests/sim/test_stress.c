/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Random programs over simulated links: mixed collectives of random sizes, several in flight,
 * posted at random moments and waited for in random order, with a random fault or none. Nothing
 * hangs, whoever succeeds has the right result, no gradient is lost, no memory is.
 *
 * SPARRING_SEED replays one program, SPARRING_TEST_SCALE scales their number.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "collectives/comm.h"
#include "tests/reference.h"
#include "tests/sim/world.h"

#define PROGRAMS 300
#define LIMIT_NS 60000000000ull
#define RANKS_MAX 9
#define OPERATIONS_MAX 8
#define GUARD 0xee

enum kind { ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, BARRIER, SPARSE, COMPRESSED, KINDS };
enum fault { NONE, KILL, PAUSE, CUT, CORRUPT, SLOW, FAULTS };

static const char *const kind_names[] = {"allreduce", "reduce_scatter", "allgather", "broadcast",
                                         "barrier",   "sparse",         "compressed"};
static const char *const fault_names[] = {"none", "kill", "pause", "cut", "corrupt", "slow"};

struct operation {
    enum kind kind;
    spr_dtype dtype;
    spr_op op;
    int root;
    const char *algorithm;
    bool in_place;
    size_t count, in_count, out_count;
    char *in[RANKS_MAX], *out[RANKS_MAX];
    spr_sparse lists[RANKS_MAX];
    spr_codec *codecs[RANKS_MAX];
    spr_request *requests[RANKS_MAX];
    spr_status results[RANKS_MAX]; /* SPR_IN_PROGRESS: not posted, or runs */
};

struct program {
    uint64_t seed;
    struct spr_rng rng;
    struct world world;
    enum fault fault;
    int ranks, faulty;
    int operations, next[RANKS_MAX]; /* posted so far */
    struct operation ops[OPERATIONS_MAX];
};

static uint64_t draw(struct program *p, uint64_t n) { return spr_rng_below(&p->rng, n); }

static _Noreturn void failed(const struct program *p, const struct operation *o, int rank,
                             const char *what)
{
    fail_msg("SPARRING_SEED=%llu: %d ranks, fault %s of rank %d: operation %d, %s %s %s %s of %zu, "
             "rank %d: %s (%s)",
             (unsigned long long)p->seed, p->ranks, fault_names[p->fault], p->faulty,
             (int)(o - p->ops), kind_names[o->kind], o->algorithm ? o->algorithm : "auto",
             spr_dtype_name(o->dtype), spr_op_name(o->op), o->count, rank, what,
             spr_last_error(p->world.comms[rank]));
    abort();
}

/* Writing a program ---------------------------------------------------------------------------- */

/* Small whole numbers: sums are exact in every type and order. */
static double input(const struct program *p, const struct operation *o, int rank, size_t i)
{
    uint64_t which = (uint64_t)(o - p->ops) << 50 ^ (uint64_t)rank << 40 ^ i;

    return (double)(int)(spr_hash_u32(p->seed ^ which) % 2001) - 1000;
}

static void fill(struct program *p, struct operation *o, int rank)
{
    size_t element = spr_dtype_size(o->dtype);
    double density = (double[]){0, 0.01, 0.3, 1}[p->seed % 4];
    spr_sparse *list = &o->lists[rank];

    o->results[rank] = SPR_IN_PROGRESS;
    o->in[rank] = malloc(o->in_count * element + 1);
    o->out[rank] = malloc(o->out_count * element + 1);
    memset(o->out[rank], GUARD, o->out_count * element + 1);
    for (size_t i = 0; i < o->in_count; i++)
        reference_store(o->dtype, o->in[rank], i, input(p, o, rank, i));
    if (o->kind == COMPRESSED) {
        spr_layout layout = {1, "w", 0, o->count, 1};
        assert_int_equal(spr_codec_create("topk:ratio=10%", &layout, 1, &o->codecs[rank]), SPR_OK);
    }
    if (o->kind != SPARSE)
        return;
    list->index = malloc(o->count * 4 + 4);
    list->value = malloc(o->count * 4 + 4);
    for (size_t i = 0; i < o->count; i++) {
        float *x = (float *)(void *)o->in[rank] + i;
        if (spr_hash_u32(p->seed ^ i * 977 ^ (uint64_t)rank << 33) * 0x1p-32 >= density) {
            *x = 0;
            continue;
        }
        list->index[list->count] = (uint32_t)i;
        list->value[list->count++] = *x;
    }
}

static void write_operation(struct program *p, struct operation *o, bool small)
{
    static const size_t sizes[] = {3, 100, 3000, 30000, 150000};
    static const spr_dtype dtypes[] = {SPR_FP32, SPR_FP64, SPR_INT32, SPR_INT64};
    static const char *const algorithms[] = {NULL, "flat", "direct", "ring"};
    size_t size = (size_t)p->ranks;

    o->kind = (enum kind)draw(p, KINDS);
    o->dtype = dtypes[draw(p, SPR_ARRAY_LEN(dtypes))];
    o->op = (spr_op)draw(p, SPR_OP_COUNT);
    o->root = (int)draw(p, size);
    o->in_place = draw(p, 2);
    o->count = draw(p, sizes[draw(p, small ? 3 : SPR_ARRAY_LEN(sizes))]);
    if (o->kind == ALLREDUCE)
        o->algorithm = algorithms[draw(p, SPR_ARRAY_LEN(algorithms))];
    if (o->algorithm && !strcmp(o->algorithm, "flat") && o->count > 8000)
        o->algorithm = "direct";
    if (o->kind == SPARSE || o->kind == COMPRESSED) {
        o->dtype = SPR_FP32;
        o->op = SPR_SUM;
        o->count++;
    }
    if (o->kind == REDUCE_SCATTER || o->kind == ALLGATHER)
        o->count /= size;
    o->in_count = o->kind == REDUCE_SCATTER ? o->count * size : o->count;
    o->out_count = o->kind == ALLGATHER ? o->count * size : o->count;
    for (int r = 0; r < p->ranks; r++)
        fill(p, o, r);
}

static void plan_fault(struct program *p)
{
    uint64_t now = spr_now_ns(spr_sim_clock(p->world.sim)), at = now + draw(p, 3000000);
    int other;

    p->fault = draw(p, 2) ? NONE : (enum fault)draw(p, FAULTS);
    p->faulty = (int)draw(p, (uint64_t)p->ranks);
    other = (p->faulty + 1 + (int)draw(p, (uint64_t)p->ranks - 1)) % p->ranks;
    if (p->fault == KILL)
        spr_sim_kill(p->world.sim, p->faulty, at);
    else if (p->fault == PAUSE)
        spr_sim_pause(p->world.sim, p->faulty, at, at + draw(p, 4000000000ull));
    else if (p->fault == CUT)
        spr_sim_cut(p->world.sim, p->faulty, other);
    else if (p->fault == CORRUPT)
        spr_sim_corrupt(p->world.sim, p->faulty, other, draw(p, 60));
    else if (p->fault == SLOW)
        spr_sim_slow(p->world.sim, p->faulty, 1e8);
}

static void write_program(struct program *p, uint64_t seed)
{
    struct spr_sim_options options = {.seed = seed, .latency_s = 10e-6};
    bool small, narrow;

    memset(p, 0, sizeof *p);
    p->seed = seed;
    p->rng = (struct spr_rng){seed, 7};
    p->ranks = options.ranks = 2 + (int)draw(p, RANKS_MAX - 1);
    options.jitter_s = draw(p, 3) ? 50e-6 : 0;
    options.bandwidth = draw(p, 2) ? 10e9 : 1e9;
    world_create(&p->world, &options);
    narrow = draw(p, 3) == 0;
    for (int r = 0; r < p->ranks; r++) {
        p->world.comms[r]->options.timeout_s = 2;
        p->world.comms[r]->options.warn_s = 1e5;
        if (narrow)
            p->world.comms[r]->options.eager_window = 16384;
    }
    plan_fault(p);
    small = draw(p, 2);
    p->operations = 1 + (int)draw(p, OPERATIONS_MAX);
    for (int k = 0; k < p->operations; k++)
        write_operation(p, &p->ops[k], small);
}

/* Running it ----------------------------------------------------------------------------------- */

static spr_status post(struct program *p, struct operation *o, int r)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_comm *comm = p->world.comms[r];
    spr_request **rq = &o->requests[r];
    size_t bytes = o->count * spr_dtype_size(o->dtype);
    char *in = o->in[r], *out = o->out[r];

    options.algorithm = o->algorithm;
    switch (o->kind) {
    case ALLREDUCE:
        if (o->in_place)
            in = memcpy(out, in, bytes);
        return spr_iallreduce(comm, in, out, o->count, o->dtype, o->op, &options, rq);
    case REDUCE_SCATTER:
        return spr_ireduce_scatter(comm, in, out, o->count, o->dtype, o->op, NULL, rq);
    case ALLGATHER:
        if (o->in_place)
            in = memcpy(out + (size_t)r * bytes, in, bytes);
        return spr_iallgather(comm, in, out, o->count, o->dtype, NULL, rq);
    case BROADCAST:
        if (r == o->root)
            memcpy(out, in, bytes);
        return spr_ibroadcast(comm, out, o->count, o->dtype, o->root, NULL, rq);
    case BARRIER:
        return spr_ibarrier(comm, NULL, rq);
    case SPARSE:
        return spr_isparse_allreduce(comm, &o->lists[r], o->count, (float *)(void *)out, NULL,
                                     o->op, NULL, rq);
    default:
        memcpy(out, in, bytes);
        return spr_icompressed_allreduce(comm, o->codecs[r], (float *)(void *)out, o->op, NULL, rq);
    }
}

/* One rank does something. Returns whether anything moved. */
static bool act(struct program *p, int r)
{
    struct operation *o;

    if (p->next[r] < p->operations && draw(p, 3) == 0) {
        spr_status status;
        o = &p->ops[p->next[r]++];
        status = post(p, o, r);
        if (status)
            o->results[r] = status;
        return true;
    }
    o = p->next[r] ? &p->ops[draw(p, (uint64_t)p->next[r])] : NULL;
    if (!o || !o->requests[r] || draw(p, 2))
        return spr_comm_progress_locked(p->world.comms[r]) > 0;
    o->results[r] = spr_test(&o->requests[r]);
    return o->requests[r] == NULL;
}

static bool finished(const struct program *p)
{
    for (int r = 0; r < p->ranks; r++) {
        if (!spr_sim_runs(p->world.sim, r)) {
            if (p->fault == PAUSE)
                return false;
            continue;
        }
        for (int k = 0; k < p->operations; k++)
            if (k >= p->next[r] || p->ops[k].requests[r])
                return false;
    }
    return true;
}

static void run(struct program *p)
{
    const struct spr_clock *clock = spr_sim_clock(p->world.sim);

    while (!finished(p)) {
        bool moved = false;
        for (int i = 0; i < p->ranks; i++) {
            int r = (int)draw(p, (uint64_t)p->ranks);
            if (spr_sim_runs(p->world.sim, r))
                moved |= act(p, r);
        }
        if (spr_now_ns(clock) > LIMIT_NS)
            fail_msg("SPARRING_SEED=%llu: hangs", (unsigned long long)p->seed);
        if (!moved)
            spr_sim_sleep(p->world.sim, spr_now_ns(clock) + draw(p, 10000000));
        else if (draw(p, 4) == 0)
            spr_sim_advance(p->world.sim);
    }
}

/* Checking it ---------------------------------------------------------------------------------- */

static void check_sums(const struct program *p, const struct operation *o, int rank)
{
    size_t offset = o->kind == REDUCE_SCATTER ? (size_t)rank * o->count : 0;
    double x[RANKS_MAX], bound, want;

    for (size_t i = 0; i < o->count; i++) {
        for (int r = 0; r < p->ranks; r++)
            x[r] = reference_load(o->dtype, o->in[r], offset + i);
        want = reference_reduce(x, p->ranks, o->dtype, o->op, &bound);
        if (fabs(reference_load(o->dtype, o->out[rank], i) - want) > bound)
            failed(p, o, rank, "a wrong sum");
    }
}

/* What came out and what stays behind are what went in: whole numbers, so to the bit. */
static void check_conservation(const struct program *p, const struct operation *o)
{
    for (size_t i = 0; i < o->count; i++) {
        double in = 0, left = (double)((const float *)(const void *)o->out[0])[i];
        for (int r = 0; r < p->ranks; r++) {
            in += input(p, o, r, i);
            left += (double)spr_codec_residual(o->codecs[r])[i];
        }
        if (in != left)
            failed(p, o, 0, "gradient was lost");
    }
}

/* A step that failed and is given up is in the residual, whole. */
static void check_dropped(const struct program *p, const struct operation *o, int rank)
{
    const float *residual;

    spr_codec_drop(o->codecs[rank]);
    residual = spr_codec_residual(o->codecs[rank]);
    for (size_t i = 0; i < o->count; i++)
        if ((double)residual[i] != input(p, o, rank, i))
            failed(p, o, rank, "the residual lost what was not sent");
}

static void check_success(const struct program *p, const struct operation *o, int rank, int first)
{
    size_t element = spr_dtype_size(o->dtype), bytes = o->count * element;
    const char *out = o->out[rank];

    if ((unsigned char)out[o->out_count * element] != GUARD)
        failed(p, o, rank, "written past the end");
    if (o->kind == ALLREDUCE || o->kind == REDUCE_SCATTER || o->kind == SPARSE)
        check_sums(p, o, rank);
    if (o->kind == ALLREDUCE || o->kind == SPARSE || o->kind == COMPRESSED)
        if (memcmp(out, o->out[first], bytes))
            failed(p, o, rank, "ranks have different bits");
    if (o->kind == BROADCAST && memcmp(out, o->in[o->root], bytes))
        failed(p, o, rank, "not what the root sent");
    for (int r = 0; o->kind == ALLGATHER && r < p->ranks; r++)
        if (memcmp(out + (size_t)r * bytes, o->in[r], bytes))
            failed(p, o, rank, "not what a rank gave");
}

static void check(const struct program *p)
{
    for (int k = 0; k < p->operations; k++) {
        const struct operation *o = &p->ops[k];
        int first = -1, good = 0;
        for (int r = 0; r < p->ranks; r++) {
            if (o->results[r] == SPR_OK) {
                first = first < 0 ? r : first;
                good++;
                check_success(p, o, r, first);
            } else if (p->fault == NONE || p->fault == SLOW) {
                failed(p, o, r, spr_status_name(o->results[r]));
            } else if (o->kind == COMPRESSED && o->results[r] < 0) {
                check_dropped(p, o, r);
            }
        }
        if (o->kind == COMPRESSED && good == p->ranks)
            check_conservation(p, o);
    }
}

static void drop(struct program *p)
{
    for (int k = 0; k < p->operations; k++) {
        for (int r = 0; r < p->ranks; r++) {
            free(p->ops[k].in[r]);
            free(p->ops[k].out[r]);
            free(p->ops[k].lists[r].index);
            free(p->ops[k].lists[r].value);
            spr_codec_destroy(p->ops[k].codecs[r]);
        }
    }
}

static void random_programs_end_well(void **state)
{
    static struct program p;
    uint64_t seed = spr_rng_test_seed();
    const char *scale = getenv("SPARRING_TEST_SCALE");
    double programs = PROGRAMS * (scale ? strtod(scale, NULL) : 1);

    (void)state;
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    if (getenv("SPARRING_SEED"))
        programs = 1;
    for (int i = 0; i < programs; i++) {
        int64_t live = spr_mem_live();
        write_program(&p, seed + (uint64_t)i);
        run(&p);
        check(&p);
        world_destroy(&p.world);
        drop(&p);
        if (spr_mem_live() != live)
            fail_msg("SPARRING_SEED=%llu: fault %s: %lld allocations leaked",
                     (unsigned long long)p.seed, fault_names[p.fault],
                     (long long)(spr_mem_live() - live));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs_end_well)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
