/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tuning for one kind of call: a contest of all algorithms that can do it, with data of that size.
 * A model says from a few constants what any call will take; this says what one did take, on ranks
 * that may share CPUs, caches and uplinks in ways that no constant holds.
 *
 * Every rank calls the algorithms that are left one after the other, in rounds (A B C, B C A), so
 * that what else happens on the machine happens to all of them, and what a call leaves behind not
 * always to the same one. After each round the ranks agree on the times, each that of the slowest
 * rank, and leave out what is far behind. Medians count.
 */
#include <math.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/rng.h"
#include "collectives/trials.h"
#include "collectives/tune.h"
#include "compress/codec.h"

#define MOST_ROUNDS 31
#define LEAST_ROUNDS 3
/* Rounds that count, together: more than LEAST_ROUNDS only until then. */
#define ENOUGH_S 1.0
/* Left out are those predicted to take more than so many times as long as the fastest; those whose
 * first call, with cold memory, did; those whose best of the first LEAST_ROUNDS did; and those
 * whose best did. But no difference of up to SLACK_S says anything of one call. */
#define FAR_PREDICTED 5
#define FAR_FIRST 4
#define FAR_EARLY 2.5
#define FAR 1.5
#define SLACK_S 1e-3
/* Floats of the result that are cleared before each call: a job computes between calls, so caches
 * hold something else, and no rank is where it was when the last call ended. Of what short calls
 * take in sparring-perf they are timed at 0.85 with a quarter of this, 0.93 with it, and 1.15 with
 * four times that, where 8 ranks share 2 CPUs. */
#define BETWEEN ((size_t)256 << 10)

/* The contest -------------------------------------------------------------------------------------
 */

struct contest {
    struct spr_tuning t;
    const struct spr_plan *plan;
    const spr_sparse *given; /* the list of this rank; NULL: one is drawn */
    struct spr_candidate candidates[SPR_CANDIDATES];
    size_t count;
    struct spr_rng turns; /* the same on all ranks */
    bool out[SPR_CANDIDATES];
    double first[SPR_CANDIDATES], least[SPR_CANDIDATES]; /* seconds of calls */
    double seconds[SPR_CANDIDATES][MOST_ROUNDS];         /* of those that count */
    int rounds[SPR_CANDIDATES];
    double together; /* ... of all algorithms */
};

/* Exactly so many positions, each as likely as the others (Knuth, TAOCP 2, 3.4.2, algorithm S), and
 * values that do not compress. */
static void draw_list(struct contest *c)
{
    const uint64_t of_rank = (uint64_t)(c->t.comm->rank + 1) << 40;
    size_t entries = c->plan->most_entries, n = 0;

    for (size_t p = 0; n < entries; p++) {
        double chance = (double)(entries - n) / (double)(c->plan->count - p);
        if (spr_hash_u32(of_rank ^ p) * 0x1p-32 >= chance)
            continue;
        c->t.list.index[n] = (uint32_t)p;
        c->t.list.value[n] = (float)(int32_t)spr_hash_u32(~(of_rank ^ n)) * 0x1p-31F;
        n++;
    }
    c->t.list.count = n;
}

static bool get_memory(struct contest *c)
{
    size_t bytes = c->plan->count * spr_dtype_size(c->plan->dtype), entries = c->plan->most_entries;
    size_t result = spr_max_size(bytes, BETWEEN * sizeof(float));
    struct spr_tuning *t = &c->t;

    if (c->given) {
        t->list = *c->given;
    } else if (entries) {
        t->list.index = spr_malloc(entries * sizeof *t->list.index);
        t->list.value = spr_malloc(entries * sizeof *t->list.value);
        if (!t->list.index || !t->list.value)
            return false;
        draw_list(c);
    } else {
        if (spr_mem_alloc(t->comm, bytes, (void **)&t->a))
            return false;
        memset(t->a, 0, bytes); /* pages of its own */
    }
    return spr_mem_alloc(t->comm, result, (void **)&t->b) == SPR_OK;
}

static void give_memory_back(struct contest *c)
{
    if (!c->given) {
        spr_free(c->t.list.index);
        spr_free(c->t.list.value);
    }
    spr_mem_free(c->t.comm, c->t.a);
    spr_mem_free(c->t.comm, c->t.b);
}

static bool is_list(const struct contest *c)
{
    const spr_sparse *l = c->given;

    if (!l->index || !l->value || l->count > c->plan->most_entries)
        return false;
    for (size_t i = 0; i < l->count; i++)
        if (l->index[i] >= c->plan->count || (i > 0 && l->index[i] <= l->index[i - 1]))
            return false;
    return true;
}

/* A list and memory on all ranks, or on none. */
static spr_status prepare(struct contest *c)
{
    bool bad = c->given && !is_list(c);
    double missing = bad ? 2 : !get_memory(c);
    spr_status status = spr_tuning_agree(c->t.comm, &missing, 1);

    if (status == SPR_OK && missing > 1)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, c->t.comm->rank,
                             "nothing is tried: the list of %s rank is not of at most %zu sorted, "
                             "unique indices below %zu",
                             bad ? "this" : "another", c->plan->most_entries, c->plan->count);
    if (status == SPR_OK && missing > 0)
        status = spr_error_set(spr_thread_error(), SPR_ERR_NOMEM, c->t.comm->rank,
                               "nothing is tried: a rank has no memory for %zu elements",
                               c->plan->count);
    return status;
}

static void choose_candidates(struct contest *c)
{
    double least = INFINITY;

    spr_comm_lock(c->t.comm);
    c->count = spr_algorithm_candidates(c->t.comm, c->plan, c->candidates);
    spr_comm_unlock(c->t.comm);
    for (size_t i = 0; i < c->count; i++)
        if (c->candidates[i].seconds < least)
            least = c->candidates[i].seconds;
    for (size_t i = 0; i < c->count; i++) {
        c->first[i] = c->least[i] = INFINITY;
        c->out[i] = c->candidates[i].seconds > FAR_PREDICTED * least; /* false for NaN */
    }
}

/* Of those that are not out; 0 of those that are. */
static spr_status run_round(struct contest *c, double *seconds)
{
    bool sparse = c->plan->collective == SPR_C_SPARSE_ALLREDUCE;
    size_t order[SPR_CANDIDATES];
    spr_status status = SPR_OK;

    spr_rng_order(&c->turns, order, c->count);
    for (size_t turn = 0; turn < c->count; turn++) {
        size_t i = order[turn];

        seconds[i] = 0;
        if (status || c->out[i])
            continue;
        c->t.algorithm = c->candidates[i].algorithm->name;
        spr_dense_clear(c->t.b, BETWEEN);
        status = spr_tuning_once(&c->t, sparse ? spr_tuning_list : spr_tuning_allreduce,
                                 sparse ? c->plan->most_entries : c->plan->count, &seconds[i]);
    }
    return status ? status : spr_tuning_agree(c->t.comm, seconds, c->count);
}

/* Returns how many are left. */
static int leave_out(struct contest *c, const double *seconds, double far, double slack)
{
    double fastest = INFINITY;
    int left = 0;

    for (size_t i = 0; i < c->count; i++)
        if (!c->out[i])
            fastest = fmin(fastest, seconds[i]);
    for (size_t i = 0; i < c->count; i++) {
        c->out[i] |= seconds[i] > far * fastest + slack;
        left += !c->out[i];
    }
    return left;
}

static spr_status hold(struct contest *c)
{
    double seconds[SPR_CANDIDATES];
    spr_status status = run_round(c, c->first);
    int left = status ? 0 : leave_out(c, c->first, FAR_FIRST, SLACK_S);

    for (int round = 0; left > 1 && round < MOST_ROUNDS; round++) {
        if (round >= LEAST_ROUNDS && c->together > ENOUGH_S)
            break;
        status = run_round(c, seconds);
        if (status)
            break;
        for (size_t i = 0; i < c->count; i++)
            if (!c->out[i]) {
                c->seconds[i][c->rounds[i]++] = seconds[i];
                c->least[i] = fmin(c->least[i], seconds[i]);
                c->together += seconds[i];
            }
        left = round + 1 < LEAST_ROUNDS ? leave_out(c, c->least, FAR_EARLY, SLACK_S)
                                        : leave_out(c, c->least, FAR, 0);
    }
    return status;
}

/* Of those that are left; of a single one, which may have been the only one, the first call. */
static void conclude(struct contest *c)
{
    struct spr_tried tried = {.kind = spr_kind_of(c->t.comm, c->plan)};
    size_t best = 0;

    for (size_t i = 0; i < SPR_ALGORITHMS; i++)
        tried.seconds[i] = INFINITY;
    for (size_t i = 0; i < c->count; i++) {
        double *of = &tried.seconds[c->candidates[i].place];
        if (!c->out[i])
            *of = c->rounds[i] ? spr_tuning_median(c->seconds[i], c->rounds[i]) : c->first[i];
        if (*of < tried.seconds[c->candidates[best].place])
            best = i;
    }
    spr_comm_lock(c->t.comm);
    spr_tried_add(c->t.comm, &tried);
    spr_comm_unlock(c->t.comm);
    spr_info(SPR_SUB_COLL, "%s of %zu elements, %zu entries: %s is the fastest, %.1f us",
             spr_collective_names[c->plan->collective], c->plan->count, c->plan->most_entries,
             c->candidates[best].algorithm->name, 1e6 * tried.seconds[c->candidates[best].place]);
}

/* `given`: the list of this rank, or NULL. */
static spr_status tune_for(spr_comm *comm, const struct spr_plan *plan, const spr_sparse *given)
{
    struct contest c = {.t = {.comm = comm, .dtype = plan->dtype, .positions = plan->count},
                        .plan = plan,
                        .given = given};
    spr_status status = prepare(&c);

    if (status == SPR_OK) {
        choose_candidates(&c);
        status = hold(&c);
        /* Of which the others may not know. */
        if (status == SPR_ERR_NOMEM)
            status = spr_comm_failed_call(comm, status, spr_thread_error());
    }
    give_memory_back(&c);
    if (status == SPR_OK)
        conclude(&c);
    return status;
}

/* Public ----------------------------------------------------------------------------------------
 */

static spr_status try_all(spr_comm *comm, const struct spr_plan *plan, const spr_sparse *given)
{
    bool sparse = plan->collective == SPR_C_SPARSE_ALLREDUCE;

    if (!comm || spr_dtype_size(plan->dtype) == 0 || plan->count == 0 ||
        plan->count > SIZE_MAX / 16 / (size_t)comm->size ||
        (sparse ? plan->most_entries == 0 || plan->most_entries > plan->count ||
                      plan->count > (uint64_t)1 << 32 || plan->dtype != SPR_FP32
                : plan->most_entries > 0))
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, comm ? comm->rank : -1,
                             "algorithms are tried for an allreduce of some elements, or a "
                             "sparse_allreduce of at most 2^32 with 1 to that many entries of "
                             "SPR_FP32");
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    return comm->size == 1 ? SPR_OK : tune_for(comm, plan, given);
}

spr_status spr_comm_tune_for(spr_comm *comm, const char *collective, size_t count, spr_dtype dtype,
                             size_t most_entries)
{
    bool sparse = collective && !strcmp(collective, "sparse_allreduce");
    struct spr_plan plan = {.collective = sparse ? SPR_C_SPARSE_ALLREDUCE : SPR_C_ALLREDUCE,
                            .dtype = dtype,
                            .count = count,
                            .most_entries = most_entries};

    spr_error_clear(spr_thread_error());
    if (!collective || (!sparse && strcmp(collective, "allreduce") != 0))
        plan.count = 0; /* of nothing that can be tried */
    return try_all(comm, &plan, NULL);
}

spr_status spr_comm_tune_list(spr_comm *comm, const spr_sparse *list, size_t count,
                              size_t most_entries)
{
    static const spr_sparse none = {0}; /* which is no list: all ranks hear of it */
    const struct spr_plan plan = {.collective = SPR_C_SPARSE_ALLREDUCE,
                                  .dtype = SPR_FP32,
                                  .count = count,
                                  .most_entries = most_entries};

    spr_error_clear(spr_thread_error());
    return try_all(comm, &plan, list ? list : &none);
}

spr_status spr_codec_tune(spr_comm *comm, spr_codec *codec)
{
    struct spr_plan plan = {0};
    const uint32_t *index;
    const float *value;
    spr_sparse last;
    size_t count;
    bool given;

    spr_error_clear(spr_thread_error());
    if (!comm || !codec)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "NULL communicator or codec");
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    spr_plan_of_codec(&plan, comm, codec);
    /* With bound_hosts there is one algorithm, and without a codec it would send other sums. */
    if (comm->size == 1 || plan.count == 0 || plan.bound_hosts ||
        (plan.collective == SPR_C_SPARSE_ALLREDUCE && plan.most_entries == 0))
        return SPR_OK;
    given = plan.collective == SPR_C_SPARSE_ALLREDUCE &&
            spr_codec_last_list(codec, &index, &value, &count) && count <= plan.most_entries;
    if (given) /* to be read only */
        last = (spr_sparse){(uint32_t *)index, (float *)value, count, count};
    return tune_for(comm,
                    &(struct spr_plan){.collective = plan.collective,
                                       .dtype = plan.dtype,
                                       .count = plan.count,
                                       .most_entries = plan.most_entries,
                                       .vtype = plan.vtype,
                                       .coding = plan.coding,
                                       .sum_vtype = plan.sum_vtype,
                                       .sum_coding = plan.sum_coding,
                                       .bound_union = plan.bound_union},
                    given ? &last : NULL);
}
