/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The matrix over real processes: algorithms x 1..9 ranks x element types x reductions on every
 * transport, against fp64; then random combinations up to 2^20 elements, and some at 2^24 + 3.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/rng.h"
#include "tests/multi/job.h"
#include "tests/reference.h"

#define SECONDS 200

static uint64_t seed;

struct test_case {
    const char *algorithm;
    spr_dtype dtype;
    spr_op op;
    size_t count;
    bool in_place;
};

static bool possible(const struct test_case *c)
{
    return reference_allreduce_takes(c->algorithm, c->dtype, c->count);
}

/* Rank 0 checks values (all of short vectors, a sample of long ones); all ranks must have its bits.
 */
static void check_values(const struct test_case *c, const void *out, int size)
{
    size_t step = c->count > 70000 ? 61 : 1;
    double x[JOB_MAX];

    for (size_t i = 0; i < c->count; i += step) {
        double bound, want, got = reference_load(c->dtype, out, i);
        for (int r = 0; r < size; r++) {
            char element[8];
            reference_store(c->dtype, element, 0, reference_input(seed, c->dtype, c->count, r, i));
            x[r] = reference_load(c->dtype, element, 0);
        }
        want = reference_reduce(x, size, c->dtype, c->op, &bound);
        if (!(fabs(got - want) <= bound))
            fprintf(stderr, "%s %s %s n=%zu P=%d element %zu: %.17g, not %.17g\n", c->algorithm,
                    spr_dtype_name(c->dtype), spr_op_name(c->op), c->count, size, i, got, want);
        RANK_CHECK(fabs(got - want) <= bound);
    }
}

static void run_case(spr_comm *comm, int rank, int size, const struct test_case *c)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    size_t bytes = c->count * spr_dtype_size(c->dtype);
    char *in = malloc(bytes + 1), *out = c->in_place ? in : malloc(bytes + 1);
    int64_t crc, least, most;

    options.algorithm = c->algorithm;
    for (size_t i = 0; i < c->count; i++)
        reference_store(c->dtype, in, i, reference_input(seed, c->dtype, c->count, rank, i));
    RANK_CHECK(spr_allreduce(comm, in, out, c->count, c->dtype, c->op, &options) == SPR_OK);
    crc = spr_crc32c(0, out, bytes);
    RANK_CHECK(spr_allreduce(comm, &crc, &least, 1, SPR_INT64, SPR_MIN, NULL) == SPR_OK);
    RANK_CHECK(spr_allreduce(comm, &crc, &most, 1, SPR_INT64, SPR_MAX, NULL) == SPR_OK);
    RANK_CHECK(least == most);
    if (rank == 0)
        check_values(c, out, size);
    free(in);
    if (!c->in_place)
        free(out);
}

/* Of the largest world; 3 at least. */
static int most_ranks(void)
{
    double most = 9 * fmin(reference_scale(), 1);

    return most < 3 ? 3 : (int)most;
}

static void run_product(struct job *job, int rank, spr_comm *comm)
{
    static const size_t sizes[] = {0, 1, 65, 4097, 65536};
    unsigned n = 0;
    size_t most = sizeof sizes / sizeof *sizes - (reference_scale() < 0.3);

    for (int a = 0; spr_algorithm_name("allreduce", a); a++)
        for (spr_dtype t = 0; t < SPR_DTYPE_COUNT; t++)
            for (spr_op op = 0; op < SPR_OP_COUNT; op++)
                for (size_t s = 0; s < most; s++) {
                    struct test_case c = {spr_algorithm_name("allreduce", a), t, op, sizes[s],
                                          n++ % 2};
                    if (possible(&c))
                        run_case(comm, rank, job->size, &c);
                }
}

static void the_full_product_is_right_on_every_transport(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++)
        for (int size = 1; size <= most_ranks(); size++) {
            struct job job;
            job_start(&job, size, job_transports[t], run_product, NULL);
            job_expect_success(&job, SECONDS);
        }
}

static void run_random(struct job *job, int rank, spr_comm *comm)
{
    struct spr_rng rng = {seed, (uint64_t)job->size << 32};
    uint64_t algorithms = 0;

    while (spr_algorithm_name("allreduce", (int)algorithms))
        algorithms++;
    for (int i = reference_small_scale() ? 6 : 0; i < 12; i++) {
        struct test_case c;
        do {
            c = (struct test_case){
                spr_algorithm_name("allreduce", (int)spr_rng_below(&rng, algorithms)),
                (spr_dtype)spr_rng_below(&rng, SPR_DTYPE_COUNT),
                (spr_op)spr_rng_below(&rng, SPR_OP_COUNT),
                65536 + (size_t)spr_rng_below(&rng, (1 << 20) - 65535), spr_rng_below(&rng, 2)};
        } while (!possible(&c));
        run_case(comm, rank, job->size, &c);
    }
}

static void random_combinations_are_right_up_to_a_million(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++)
        for (int size = 2; size <= most_ranks(); size += 3) {
            struct job job;
            job_start(&job, size, job_transports[t], run_random, NULL);
            job_expect_success(&job, SECONDS);
        }
}

/* Memory of a transport that holds one chunk of a peer: whatever an algorithm holds there has to
 * come free without more of it. */
static void few_slots(struct job *job, int rank)
{
    (void)job;
    (void)rank;
    setenv("SPARRING_SHM_SLOTS", "1", 1);
    setenv("SPARRING_VERBS_SLOTS", "1", 1);
}

static void run_at_once(struct job *job, int rank, spr_comm *comm)
{
    enum { MOST = 4, COUNT = 300007 }; /* of more chunks than are asked for ahead */
    float *in = malloc(COUNT * sizeof *in), *out = malloc(MOST * COUNT * sizeof *out);
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_request *rq[MOST];

    for (size_t i = 0; i < COUNT; i++)
        in[i] = (float)(i % 1000 + (size_t)rank);
    for (int a = 0; (options.algorithm = spr_algorithm_name("allreduce", a)); a++)
        for (size_t n = 1; n <= MOST; n += MOST - 1) {
            if (!reference_allreduce_takes(options.algorithm, SPR_FP32, COUNT))
                continue;
            memset(out, 0xff, MOST * COUNT * sizeof *out); /* not what the one before has left */
            for (size_t i = 0; i < n; i++)
                RANK_CHECK(spr_iallreduce(comm, in, out + i * COUNT, COUNT, SPR_FP32, SPR_SUM,
                                          &options, &rq[i]) == SPR_OK);
            for (size_t i = 0; i < n; i++)
                RANK_CHECK(spr_wait(&rq[i], -1) == SPR_OK);
            for (size_t i = 0; i < n * COUNT; i++)
                RANK_CHECK(out[i] == (float)((int)(i % COUNT % 1000) * job->size +
                                             job->size * (job->size - 1) / 2));
        }
    free(in);
    free(out);
}

static void nothing_waits_for_slots_that_it_holds_itself(void **state)
{
    (void)state;
    job_prepare = few_slots;
    for (int size = 3; size <= (most_ranks() < 5 ? 3 : 5); size += 2)
        job_on_all_transports(size, run_at_once, NULL, SECONDS);
    job_prepare = NULL;
}

static void run_large(struct job *job, int rank, spr_comm *comm)
{
    const struct test_case cases[] = {
        {"direct", SPR_FP32, SPR_AVG, ((size_t)1 << 24) + 3, true},
        {"ring", SPR_INT32, SPR_SUM, ((size_t)1 << 24) + 3, false},
        {"halving", SPR_FP32, SPR_SUM, ((size_t)1 << 24) + 3, true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(comm, rank, job->size, &cases[i]);
}

static void sixteen_million_and_three_elements_are_right(void **state)
{
    (void)state;
    if (reference_small_scale())
        skip();
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        job_start(&job, 2 + (int)t, job_transports[t], run_large, NULL);
        job_expect_success(&job, SECONDS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_full_product_is_right_on_every_transport),
        cmocka_unit_test(random_combinations_are_right_up_to_a_million),
        cmocka_unit_test(nothing_waits_for_slots_that_it_holds_itself),
        cmocka_unit_test(sixteen_million_and_three_elements_are_right),
    };

    seed = job_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
