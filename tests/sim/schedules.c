/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Drawing a schedule.
 */
#include "tests/sim/schedules.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tests/reference.h"
#include "transport/channel.h"
#include "transport/shm/layout.h"

#define MS 1000000ull

#define PICK(s, array) ((array)[schedule_below((s), SPR_ARRAY_LEN(array))])
static bool one_in(struct schedule *s, uint64_t n) { return schedule_below(s, n) == 0; }

/* Operations ----------------------------------------------------------------------------------- */

static size_t draw_count(struct schedule *s)
{
    static const size_t most[] = {1, 4, 40, 40, 300, 300, 300, 3000};
    size_t n = PICK(s, most);

    if (one_in(s, 300))
        n = 60000;
    return schedule_below(s, n + 1);
}

/* Half of the time none; others favour few steps, few bytes, or dense vectors. Of a stream of its
 * own. */
static const char *draw_model(const struct schedule *s)
{
    static const char *const models[] = {
        ("latency=1e-3,grant=0,message=1e-3,byte=1e-12,copy=0,reduce=0,encode=0,merge=0,take=0,"
         "clear=0,stream=0,exposed=0,load=1"),
        ("latency=1e-9,grant=0,message=0,byte=1e-6,copy=0,reduce=0,encode=0,merge=0,take=0,"
         "clear=0,stream=0,exposed=0,load=1"),
        ("latency=1e-6,grant=0,message=0,byte=0,copy=1e-8,reduce=1e-10,encode=0,merge=0,take=1e-8,"
         "clear=0,stream=0,exposed=0,load=1"),
        ("latency=1e-6,grant=1e-6,message=1e-7,byte=1e-9,copy=1e-10,reduce=1e-9,encode=1e-9,"
         "merge=1e-9,take=1e-9,clear=1e-10,stream=1e-10,exposed=0.25,load=4"),
    };
    struct spr_rng rng = {~s->seed, 0x6d6f64656cull};
    uint64_t i = spr_rng_below(&rng, 2 * SPR_ARRAY_LEN(models));

    return i < SPR_ARRAY_LEN(models) ? models[i] : NULL;
}

/* The same of how positions travel. */
static int draw_indices(const struct schedule *s)
{
    struct spr_rng rng = {~s->seed, 0x696e646578ull};

    return (int)spr_rng_below(&rng, SPR_INDICES_COUNT);
}

/* The same of whether chunks are compressed: a third of the time. */
static int draw_zstd(const struct schedule *s)
{
    struct spr_rng rng = {~s->seed, 0x7a737464ull};

    return spr_rng_below(&rng, 3) == 0;
}

/* Which bits sums have: half of the time those of any run. Of a stream of its own, in which all in
 * the list of seeds that failed (test_schedules.c) have these. */
static int draw_determinism(const struct schedule *s)
{
    static const int levels[] = {SPR_DETERMINISM_RUN, SPR_DETERMINISM_RUN,
                                 SPR_DETERMINISM_CANONICAL, SPR_DETERMINISM_OFF};
    struct spr_rng rng = {~s->seed, 8136};

    return levels[spr_rng_below(&rng, SPR_ARRAY_LEN(levels))];
}

/* The same of what is known of links: a quarter of the time they are not alike. */
static void draw_rates(struct schedule *s)
{
    static const uint32_t rates[] = {100, 1000, 1000, 10000};
    struct spr_rng rng = {~s->seed, 0x72617465ull};
    bool known = spr_rng_below(&rng, 4) == 0;

    for (int r = 0; r < s->ranks && known; r++)
        s->rate[r] = rates[spr_rng_below(&rng, SPR_ARRAY_LEN(rates))];
}

static bool shares_hosts(const struct schedule *s)
{
    for (int r = 1; r < s->ranks; r++)
        for (int q = 0; q < r; q++)
            if (s->host[q] == s->host[r])
                return true;
    return false;
}

/* Where ranks share hosts, a codec that bounds their sums, a third of the time: likewise. */
static const char *draw_bounding(const struct schedule *s)
{
    static const char *const codecs[] = {"topk:ratio=20%,union=hosts",
                                         "block:ratio=30%,union=hosts+fp16",
                                         "dgc:ratio=30%,momentum=0.5,union=hosts,sums=int8",
                                         "topk:ratio=20%,union=hosts+int8:group=64"};
    struct spr_rng rng = {~s->seed, 0x626f756e64ull};

    if (!shares_hosts(s) || spr_rng_below(&rng, 3))
        return s->codec;
    return codecs[spr_rng_below(&rng, SPR_ARRAY_LEN(codecs))];
}

/* The same of what is urgent. */
static size_t draw_priority_bytes(const struct schedule *s)
{
    static const size_t bytes[] = {1, 500, 5000, 262144};
    struct spr_rng rng = {~s->seed, 0x757267656e74ull};
    uint64_t i = spr_rng_below(&rng, 2 * SPR_ARRAY_LEN(bytes));

    return i < SPR_ARRAY_LEN(bytes) ? bytes[i] : 0;
}

/* Half of the ranks agree. */
int schedule_priority(const struct schedule *s, int rank, int operation)
{
    struct spr_rng rng = {~s->seed + (rank & 1 ? (unsigned)rank : 0u),
                          (uint64_t)0x7072696f << 32 | (unsigned)operation};

    return s->priority_bytes ? (int)spr_rng_below(&rng, 3) - 1 : 0;
}

/* If there are more, there is one that is not drawn. */
static void expect_algorithms(const char *collective, size_t n)
{
    if (spr_algorithm_name(collective, (int)n))
        abort();
}

/* Half of the time the one that is chosen anyway. Of a stream of its own. In this order seeds in
 * the list of those that failed draw what they did; `relay` is younger than most of them. */
static const char *draw_sparse(const struct schedule *s, const struct schedule_operation *o)
{
    static const char *const others[] = {"allgather", "hierarchical", "direct", "doubling",
                                         "ring",      "hosts",        "dense",  "union",
                                         "server",    "blocks"};
    struct spr_rng rng = {~s->seed, (uint64_t)(o - s->operation + 1) << 32};
    size_t n = SPR_ARRAY_LEN(others), drawn = (size_t)spr_rng_below(&rng, 2 * n);
    const char *name = drawn < n ? others[drawn] : spr_rng_below(&rng, 8) ? NULL : "relay";

    expect_algorithms("sparse_allreduce", n + 1);
    return name && o->list && !reference_sparse_lists(name) ? NULL : name;
}

/* A third of the time by hosts: likewise, as that is younger than these seeds; of allreduces by a
 * stream in which none of theirs is. */
static bool draw_by_hosts(const struct schedule *s, const struct schedule_operation *o)
{
    uint64_t k = (uint64_t)(o - s->operation + 1);
    struct spr_rng rng = {~s->seed, o->kind == SCHEDULE_ALLREDUCE ? k << 56 | 191 : k << 40};

    return o->kind <= SCHEDULE_BROADCAST && spr_rng_below(&rng, 3) == 0;
}

/* Where bits must be those of rank order, an algorithm with others cannot be asked for. */
static bool may_ask_for(const struct schedule *s, const struct schedule_operation *o)
{
    static const char *const collectives[SCHEDULE_KINDS] = {
        [SCHEDULE_ALLREDUCE] = "allreduce",
        [SCHEDULE_REDUCE_SCATTER] = "reduce_scatter",
        [SCHEDULE_SPARSE] = "sparse_allreduce",
    };

    return s->determinism != SPR_DETERMINISM_CANONICAL || !collectives[o->kind] || !o->algorithm ||
           spr_algorithm_is_canonical(collectives[o->kind], o->algorithm);
}

static void draw_algorithm(struct schedule *s, struct schedule_operation *o)
{
    static const char *const reductions[] = {NULL,   NULL,      "flat",     "direct",
                                             "ring", "halving", "doubling", "tree"};
    static const char *const gathers[] = {NULL, "direct", "bruck"};
    static const char *const broadcasts[] = {NULL, "flat", "direct", "tree"};

    if (o->kind == SCHEDULE_ALLREDUCE)
        o->algorithm = PICK(s, reductions);
    if (o->kind == SCHEDULE_ALLGATHER)
        o->algorithm = PICK(s, gathers);
    if (o->kind == SCHEDULE_BROADCAST)
        o->algorithm = PICK(s, broadcasts);
    if (o->kind == SCHEDULE_SPARSE)
        o->algorithm = draw_sparse(s, o);
    expect_algorithms("allreduce", SPR_ARRAY_LEN(reductions) - 2 + 1);
    expect_algorithms("reduce_scatter", 2);
    expect_algorithms("allgather", SPR_ARRAY_LEN(gathers) - 1 + 1);
    expect_algorithms("broadcast", SPR_ARRAY_LEN(broadcasts) - 1 + 1);
    if (draw_by_hosts(s, o))
        o->algorithm = "hierarchical";
    if (o->algorithm && !strcmp(o->algorithm, "flat") && o->count > 8000)
        o->algorithm = "direct";
    if (o->kind == SCHEDULE_ALLREDUCE && o->algorithm && strcmp(o->algorithm, "flat") &&
        !reference_allreduce_takes(o->algorithm, o->dtype, o->count))
        o->algorithm = "direct";
    if (!may_ask_for(s, o))
        o->algorithm = NULL;
}

/* A fourth of the schedules; by streams of their own, so that the others stay what they were, and
 * this one so that none is among those that failed once (test_schedules.c). */
static bool has_shifts(const struct schedule *s)
{
    struct spr_rng rng = {~s->seed, 135};

    return spr_rng_below(&rng, 4) == 0;
}

static void draw_operation(struct schedule *s, struct schedule_operation *o)
{
    static const enum schedule_kind kinds[] = {
        SCHEDULE_ALLREDUCE, SCHEDULE_ALLREDUCE,  SCHEDULE_ALLREDUCE,  SCHEDULE_REDUCE_SCATTER,
        SCHEDULE_ALLGATHER, SCHEDULE_BROADCAST,  SCHEDULE_BARRIER,    SCHEDULE_SPARSE,
        SCHEDULE_SPARSE,    SCHEDULE_COMPRESSED, SCHEDULE_COMPRESSED,
    };
    size_t size = (size_t)s->ranks;
    struct spr_rng shifts = {~s->seed, (uint64_t)(o - s->operation + 1) << 48};

    o->kind = PICK(s, kinds);
    if (has_shifts(s) && spr_rng_below(&shifts, 3) == 0)
        o->kind = SCHEDULE_SENDRECV;
    o->dtype = (spr_dtype)schedule_below(s, SPR_DTYPE_COUNT);
    o->op = (spr_op)schedule_below(s, SPR_OP_COUNT);
    o->root = (int)schedule_below(s, size);
    if (o->kind == SCHEDULE_SENDRECV)
        o->root += (int)schedule_below(s, 3) * s->ranks - s->ranks;
    o->in_place = one_in(s, 2);
    o->whole = one_in(s, 2);
    o->density = PICK(s, ((double[]){0, 0.02, 0.3, 1}));
    o->count = o->kind == SCHEDULE_BARRIER ? 0 : draw_count(s);
    if (o->kind == SCHEDULE_SPARSE || o->kind == SCHEDULE_COMPRESSED) {
        o->dtype = SPR_FP32;
        o->op = one_in(s, 2) ? SPR_SUM : SPR_AVG;
        o->list = o->kind == SCHEDULE_SPARSE && one_in(s, 2);
    }
    if (o->kind == SCHEDULE_COMPRESSED) {
        o->count = s->codec_elements;
        o->whole = true;
    }
    if (o->kind == SCHEDULE_REDUCE_SCATTER || o->kind == SCHEDULE_ALLGATHER)
        o->count /= size;
    draw_algorithm(s, o);
    o->in_count = o->kind == SCHEDULE_REDUCE_SCATTER ? o->count * size : o->count;
    o->out_count = o->kind == SCHEDULE_ALLGATHER ? o->count * size : o->count;
}

/* Faults --------------------------------------------------------------------------------------- */

/* Most jobs take some 100 us; half of the times are within the first 50. */
static uint64_t draw_time(struct schedule *s)
{
    static const uint64_t most[] = {20000, 50000, 100000, 300000, 1000000, 5000000};

    return schedule_below(s, PICK(s, most));
}

static void draw_fault(struct schedule *s, struct schedule_fault *f)
{
    static const double bandwidths[] = {1e7, 1e8, 1e9};
    static const double delays_s[] = {50e-6, 1e-3, 20e-3};
    static const uint64_t frames[] = {2, 5, 15, 60};

    f->kind = (enum schedule_fault_kind)schedule_below(s, SCHEDULE_FAULT_KINDS);
    f->rank = (int)schedule_below(s, (uint64_t)s->ranks);
    f->peer = (f->rank + 1 + (int)schedule_below(s, (uint64_t)s->ranks - 1)) % s->ranks;
    f->at_ns = draw_time(s);
    f->until_ns = f->at_ns + draw_time(s);
    f->nth = schedule_below(s, PICK(s, frames));
    f->amount = f->kind == SCHEDULE_SLOW ? PICK(s, bandwidths) : PICK(s, delays_s);
    if (f->kind == SCHEDULE_NAP)
        f->until_ns = f->at_ns + schedule_below(s, 400 * MS);
    if (f->kind == SCHEDULE_PAUSE)
        f->until_ns = f->at_ns + 3000 * MS + schedule_below(s, 3000 * MS);
    f->sees = one_in(s, 2);
    f->peer_sees = !f->sees || one_in(s, 2);
}

/* Another call than `o`, in a way that the ranks must agree on. */
static void draw_odd_call(struct schedule *s, struct schedule_operation *o)
{
    bool counted = o->kind != SCHEDULE_BARRIER && o->kind != SCHEDULE_COMPRESSED;
    bool reduces = o->kind != SCHEDULE_BARRIER && o->kind != SCHEDULE_ALLGATHER &&
                   o->kind != SCHEDULE_BROADCAST && o->kind != SCHEDULE_SENDRECV;

    if ((s->odd == SCHEDULE_OTHER_COUNT && !counted) || (s->odd == SCHEDULE_OTHER_OP && !reduces))
        s->odd = SCHEDULE_OTHER_KIND;
    if (s->odd == SCHEDULE_OTHER_COUNT) {
        o->count++;
        o->in_count += o->kind == SCHEDULE_REDUCE_SCATTER ? (size_t)s->ranks : 1;
        o->out_count += o->kind == SCHEDULE_ALLGATHER ? (size_t)s->ranks : 1;
    } else if (s->odd == SCHEDULE_OTHER_OP) {
        o->op = o->op == SPR_SUM ? SPR_AVG : SPR_SUM;
    } else if (s->odd == SCHEDULE_OTHER_KIND) {
        bool barrier = o->kind == SCHEDULE_BARRIER;
        *o = (struct schedule_operation){.kind = barrier ? SCHEDULE_ALLREDUCE : SCHEDULE_BARRIER};
        o->count = o->in_count = o->out_count = barrier ? schedule_below(s, 3000) : 0;
    }
}

static void draw_odd(struct schedule *s)
{
    s->odd = (enum schedule_odd)(1 + schedule_below(s, SCHEDULE_ODDS - 1));
    s->odd_rank = (int)schedule_below(s, (uint64_t)s->ranks);
    s->odd_operation = (int)schedule_below(s, (uint64_t)s->operations);
    s->odd_call = s->operation[s->odd_operation];
    draw_odd_call(s, &s->odd_call);
}

static void draw_job(struct schedule *s)
{
    static const int ranks[] = {1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7, 8, 9};
    static const double jitters[] = {0, 50e-6, 500e-6}, bandwidths[] = {0, 1e9, 10e9};
    static const double detects[] = {0, 2e-3, 300e-3};
    static const size_t eager[] = {0, 64, 512, 8192};
    static const char *const codecs[] = {
        "topk:ratio=10%",
        "topk:ratio=30%+fp16",
        "topk:ratio=2%+bf16",
        "none",
        "fp16",
        "bf16",
        "topk:ratio=20%+int8:group=64,rounding=stochastic",
        "topk:ratio=10%+bounded",
        "topk:ratio=10%,sums=exact+fp16",
        "none:sums=exact+int4:group=64",
        "topk:ratio=30%,union=bounded",
        "block:ratio=20%,union=bounded+fp16",
        "topk:ratio=10%,union=bounded+int8:group=64",
        "bounded:bits=5,group=96",
        "int8",
        "sign:group=32",
        "random:ratio=20%",
        "random:ratio=5%,warmup=2",
        "random:ratio=30%+fp16",
        "random:ratio=40%+int8",
        "block:ratio=30%+fp16",
        "threshold:by=absolute,value=2,most=20%+bf16",
        "reuse:ratio=10%,period=3+int8",
        "accumulate:ratio=20%,threshold=3",
        "adaptive:ratio=20%,calm=5%,every=2+fp16",
        "dgc:ratio=20%,momentum=0.5",
        "dgc:ratio=10%,momentum=0.5,masking=off+fp16",
        "topk:ratio=30%,feedback=nesterov,momentum=0.5+fp16",
        "dgc:ratio=30%,momentum=0.5,union=bounded+int8:group=64",
        "onebit:momentum=0.5",
        "topk:ratio=20%,sums=int8+int8:group=64,rounding=stochastic",
        "block:ratio=30%,sums=fp16",
        "none:sums=bf16+sign:group=32",
        "topk:ratio=20%,feedback=decay,decay=0.5",
        "random:ratio=30%,feedback=momentum,momentum=0.5",
        "powersgd:rank=1",
        "powersgd:rank=3",
    };

    s->ranks = PICK(s, ranks);
    s->links = (struct spr_sim_options){
        .ranks = s->ranks, .seed = s->seed, .latency_s = 10e-6, .jitter_s = PICK(s, jitters)};
    s->links.bandwidth = PICK(s, bandwidths);
    s->links.detect_s = PICK(s, detects);
    s->eager_bytes = PICK(s, eager);
    s->eager_window = one_in(s, 2) ? (s->eager_bytes + SPR_FRAME_BYTES) * 5 / 2 : 262144;
    s->timeout_s = 2;
    s->codec = PICK(s, codecs);
    s->codec_elements = 1 + draw_count(s);
    s->leave = one_in(s, 3);
    for (int r = 0; r < s->ranks; r++) {
        s->depth[r] = one_in(s, 2) ? 1 : 1 + (int)schedule_below(s, SCHEDULE_OPERATIONS);
        s->think_ns[r] = one_in(s, 4) ? 200000 : 0;
    }
}

/* Of a stream of its own. */
static uint32_t draw_first(uint64_t seed)
{
    static const uint32_t jumps[] = {0, INT32_MAX};
    struct spr_rng rng = {~seed, 0};

    if (spr_rng_below(&rng, 8))
        return 1;
    return jumps[spr_rng_below(&rng, 2)] - (uint32_t)spr_rng_below(&rng, 2 * SCHEDULE_OPERATIONS);
}

/* Of hosts that are shared, half are shared by two ranks each, where that is possible. Of a stream
 * of its own, in which no seed in the list of those that failed has other hosts than it had. */
static bool draw_even(const struct schedule *s)
{
    struct spr_rng rng = {~s->seed, 3};

    return s->ranks >= 4 && s->ranks % 2 == 0 && spr_rng_below(&rng, 2) == 0;
}

/* Most often each rank has a host of its own, and half of the time each host a rack. */
static void draw_hosts(struct schedule *s)
{
    struct spr_rng rng = {~s->seed, 1};
    bool shared = spr_rng_below(&rng, 3) == 0, even = shared && draw_even(s), racks;

    for (int r = 0; r < s->ranks; r++)
        s->host[r] = shared ? (int)spr_rng_below(&rng, 1 + (uint64_t)s->ranks / 2) : r;
    for (int r = 0; r < s->ranks && even; r++)
        s->host[r] = r % (s->ranks / 2);
    racks = spr_rng_below(&rng, 2);
    for (int h = 0; h < s->ranks; h++)
        s->rack[h] = racks ? (int)spr_rng_below(&rng, 1 + (uint64_t)s->ranks / 2) : h;
}

/* More chunks than slots. */
static void draw_long(struct schedule *s, struct spr_rng *rng)
{
    for (int k = 0; k < s->operations; k++) {
        struct schedule_operation *o = &s->operation[k];
        bool flat = o->algorithm && !strcmp(o->algorithm, "flat");
        bool odd = s->odd != SCHEDULE_EVEN && k == s->odd_operation;
        size_t count = 8000 + (size_t)spr_rng_below(rng, 52000);

        if (o->kind == SCHEDULE_ALLREDUCE && !flat && !odd && spr_rng_below(rng, 2))
            o->count = o->in_count = o->out_count = count;
    }
}

/* Receivers have room for few frames of a link, half of the time: as with shared memory, or with
 * verbs, where each frame takes a slot. Of a stream of its own. Not where a rank stands still or is
 * lost: what is said of a failure waits for room as all does, and may come too late there. */
static void draw_slots(struct schedule *s)
{
    static const int small[] = {8, 24}, large[] = {1, 1, 2, 4};
    struct spr_rng rng = {~s->seed, 0x736c6f7473ull};
    bool still = false;

    for (int i = 0; i < s->faults; i++)
        still |= s->fault[i].kind >= SCHEDULE_NAP;
    if (still || spr_rng_below(&rng, 2))
        return;
    /* Of ranks that disagree, what the first of them sends may stay where it is: all the room that
     * an operation may take, or it is in the way of the word of it. */
    s->links.slots[1] = s->odd ? 4 : large[spr_rng_below(&rng, SPR_ARRAY_LEN(large))];
    s->links.small_bytes = SPR_SHM_INLINE;
    if (spr_rng_below(&rng, 8) == 0)
        draw_long(s, &rng);
    if (s->links.memory)
        return;
    s->links.slots[0] = small[spr_rng_below(&rng, SPR_ARRAY_LEN(small))];
    s->links.small_bytes = spr_max_size(s->eager_bytes, SPR_NOTE_BYTES);
}

void schedule_draw(struct schedule *s, uint64_t seed)
{
    static const int operations[] = {1, 1, 2, 2, 3, 4, 5, 6};
    static const int faults[] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 3};

    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->rng = (struct spr_rng){seed, 0};
    draw_job(s);
    draw_hosts(s);
    draw_rates(s);
    s->codec = draw_bounding(s);
    s->low_rank = !strncmp(s->codec, "powersgd", 8);
    s->model = draw_model(s);
    s->indices = draw_indices(s);
    s->zstd = draw_zstd(s);
    s->determinism = draw_determinism(s);
    s->priority_bytes = draw_priority_bytes(s);
    s->first = draw_first(seed);
    s->links.place = spr_hash_u32(~seed) & 1;
    s->links.memory = spr_hash_u32(~seed) & 2;
    s->operations = PICK(s, operations);
    for (int k = 0; k < s->operations; k++)
        draw_operation(s, &s->operation[k]);
    s->faults = s->ranks > 1 ? PICK(s, faults) : 0;
    for (int i = 0; i < s->faults; i++)
        draw_fault(s, &s->fault[i]);
    if (one_in(s, 8))
        draw_odd(s);
    draw_slots(s);
}
