/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Communicators of parts of a communicator: who is with whom, sums of all at the same time, and
 * ranks that fail in between.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/multi/job.h"

#define SECONDS 60
#define RANKS 5
#define N 20000

/* Every rank of comm adds value; the sum is to be this. */
static void check_sum(spr_comm *comm, float value, float sum)
{
    float *x = malloc(N * sizeof *x);

    for (int i = 0; i < N; i++)
        x[i] = value;
    RANK_CHECK(spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
    for (int i = 0; i < N; i++)
        RANK_CHECK(x[i] == sum);
    free(x);
}

static void check_list(spr_comm *comm, float value, float sum)
{
    uint32_t index[] = {3, N - 1};
    float values[] = {value, -value}, *out = malloc(N * sizeof *out);
    spr_sparse list = {index, values, 2, 2};

    RANK_CHECK(spr_sparse_allreduce(comm, &list, N, out, NULL, SPR_SUM, NULL) == SPR_OK);
    RANK_CHECK(out[0] == 0 && out[3] == sum && out[N - 1] == -sum);
    free(out);
}

/* ---- Who is with whom ---- */

/* Odd ranks and even ranks, those of higher ranks first. */
static void parities(struct job *job, int rank, spr_comm *comm)
{
    static const float sums[] = {0 + 2 + 4, 1 + 3};
    spr_comm *part = NULL;
    int odd = rank % 2;

    (void)job;
    RANK_CHECK(spr_comm_split(comm, odd, -rank, &part) == SPR_OK);
    RANK_CHECK(spr_comm_size(part) == (odd ? 2 : 3));
    RANK_CHECK(spr_comm_rank(part) == (RANKS - 1 - odd - rank) / 2);
    for (int i = 0; i < 3; i++) {
        check_sum(comm, 1, RANKS);
        check_sum(part, (float)rank, sums[odd]);
        check_list(part, (float)rank, sums[odd]);
    }
    spr_comm_destroy(part);
    check_sum(comm, 1, RANKS);
}

static void ranks_of_a_color_are_together(void **state)
{
    (void)state;
    job_on_all_transports(RANKS, parities, NULL, SECONDS);
}

/* Equal keys keep the order; rank 1 is in no part; a part of a part; the parent goes first. */
static void nested(struct job *job, int rank, spr_comm *comm)
{
    spr_comm *part = comm, *inner = comm, *alone = comm, *rest = NULL;

    (void)job;
    RANK_CHECK(spr_comm_split(comm, rank == 1 ? SPR_SPLIT_NONE : 7, 0, &part) == SPR_OK);
    RANK_CHECK((part == NULL) == (rank == 1));
    /* Each its own: communicators of one rank. */
    RANK_CHECK(spr_comm_split(comm, rank, 0, &alone) == SPR_OK);
    RANK_CHECK(spr_comm_size(alone) == 1);
    check_sum(alone, 5, 5);
    RANK_CHECK(spr_comm_split(comm, 0, 0, &rest) == SPR_OK);
    if (part) {
        RANK_CHECK(spr_comm_rank(part) == (rank > 1 ? rank - 1 : 0));
        check_sum(part, 1, RANKS - 1);
        RANK_CHECK(spr_comm_split(part, rank < 3, 0, &inner) == SPR_OK);
        check_sum(inner, 1, 2);
        spr_comm_destroy(part);
        check_sum(inner, 2, 4);
        spr_comm_destroy(inner);
    }
    check_sum(rest, 1, RANKS);
    spr_comm_destroy(rest);
    spr_comm_destroy(alone);
}

static void parts_have_parts_and_outlive_their_parent(void **state)
{
    (void)state;
    job_on_all_transports(RANKS, nested, NULL, SECONDS);
}

/* ---- At the same time ---- */

static void *sum_often(void *part)
{
    for (int i = 0; i < 50; i++)
        check_sum(part, 1, (float)spr_comm_size(part));
    return NULL;
}

static void busy(struct job *job, int rank, spr_comm *comm)
{
    spr_comm *parts[2];
    pthread_t threads[2];

    (void)job;
    RANK_CHECK(spr_comm_split(comm, rank / 2, 0, &parts[0]) == SPR_OK);
    RANK_CHECK(spr_comm_split(comm, rank % 2, 0, &parts[1]) == SPR_OK);
    for (int i = 0; i < 2; i++)
        RANK_CHECK(pthread_create(&threads[i], NULL, sum_often, parts[i]) == 0);
    sum_often(comm);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        spr_comm_destroy(parts[i]);
    }
}

static void parts_and_parent_work_at_the_same_time(void **state)
{
    (void)state;
    job_on_all_transports(4, busy, NULL, SECONDS);
}

/* ---- Failures ---- */

/* Rank 2 is killed while the others wait for it; those that are left split again. */
static void killed(struct job *job, int rank, spr_comm *comm)
{
    spr_shrink_info info = SPR_SHRINK_INFO_INIT;
    spr_comm *part = NULL;
    spr_status status;

    atomic_fetch_add(job_counter(job, 0), 1);
    if (rank == 2) {
        job_await(job_counter(job, 0), 4); /* all have their communicator */
        job_pause_ms(50);
        raise(SIGKILL);
    }
    status = spr_comm_split(comm, rank % 2, 0, &part);
    RANK_CHECK(status == SPR_ERR_RANK_LOST && part == NULL);
    RANK_CHECK(strstr(spr_last_error(NULL), "rank 2") != NULL);
    RANK_CHECK(spr_comm_shrink(comm, 0, &info) == SPR_OK);
    RANK_CHECK(info.redo == 0);
    RANK_CHECK(spr_comm_split(comm, 0, -rank, &part) == SPR_OK);
    RANK_CHECK(spr_comm_size(part) == 3);
    RANK_CHECK(spr_comm_rank(part) == 2 - spr_comm_rank(comm));
    check_sum(part, 1, 3);
    spr_comm_destroy(part);
}

static void a_rank_that_dies_meanwhile_is_named(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        job_start(&job, 4, job_transports[t], killed, NULL);
        assert_true(job_wait(&job, SECONDS));
        for (int r = 0; r < 4; r++)
            assert_int_equal(job.codes[r], r == 2 ? 128 + SIGKILL : 0);
    }
}

/* A rank that is dead to a part is no longer there in the parent either; but what fails in a part
 * for another reason does not concern the parent, nor the other part. */
static void aborted(struct job *job, int rank, spr_comm *comm)
{
    spr_comm *part;
    float x = 1;

    (void)job;
    RANK_CHECK(spr_comm_split(comm, rank % 2, 0, &part) == SPR_OK);
    if (rank == 1)
        spr_comm_abort(part, "loss is NaN");
    if (rank % 2) {
        RANK_CHECK(spr_allreduce(part, &x, &x, 1, SPR_FP32, SPR_SUM, NULL) == SPR_ERR_REVOKED);
        RANK_CHECK(strstr(spr_last_error(part), "loss is NaN") != NULL);
    } else {
        check_sum(part, 1, 2);
    }
    check_sum(comm, 1, 4);
    spr_comm_destroy(part);
}

static void a_part_fails_alone(void **state)
{
    (void)state;
    job_on_all_transports(4, aborted, NULL, SECONDS);
}

/* One rank makes another collective of it: all hear so, and go on. */
static void mistaken(struct job *job, int rank, spr_comm *comm)
{
    spr_comm *part = NULL;
    float x = 1;
    spr_status status;

    (void)job;
    if (rank == 1)
        status = spr_allreduce(comm, &x, &x, 1, SPR_FP32, SPR_SUM, NULL);
    else
        status = spr_comm_split(comm, 0, 0, &part);
    RANK_CHECK(status == SPR_ERR_MISMATCH && part == NULL);
    RANK_CHECK(spr_comm_split(comm, 0, 0, &part) == SPR_OK);
    check_sum(part, 1, 3);
    spr_comm_destroy(part);
    RANK_CHECK(spr_comm_split(NULL, 0, 0, &part) == SPR_ERR_INVALID);
    RANK_CHECK(spr_comm_split(comm, 0, 0, NULL) == SPR_ERR_INVALID);
}

static void ranks_that_disagree_go_on(void **state)
{
    (void)state;
    job_on_all_transports(3, mistaken, NULL, SECONDS);
}

/* Parts have the rack of their parent: the file that says so is gone. */
static void of_a_lost_file(struct job *job, int rank, spr_comm *comm)
{
    spr_comm *part = NULL;

    (void)job;
    (void)rank;
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK); /* all have read it */
    (void)unlink(getenv("SPARRING_TOPOLOGY"));
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    RANK_CHECK(spr_comm_split(comm, 0, 0, &part) == SPR_OK);
    check_sum(part, 1, 3);
    spr_comm_destroy(part);
}

static void parts_do_not_read_the_topology_again(void **state)
{
    char path[] = "/tmp/test_split.XXXXXX";
    int file = mkstemp(path);
    struct job job;

    (void)state;
    assert_true(file >= 0 && write(file, "a: *\n", 5) == 5 && close(file) == 0);
    setenv("SPARRING_TOPOLOGY", path, 1);
    job_start(&job, 3, "auto", of_a_lost_file, NULL);
    job_expect_success(&job, SECONDS);
    unsetenv("SPARRING_TOPOLOGY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_color_are_together),
        cmocka_unit_test(parts_have_parts_and_outlive_their_parent),
        cmocka_unit_test(parts_and_parent_work_at_the_same_time),
        cmocka_unit_test(a_rank_that_dies_meanwhile_is_named),
        cmocka_unit_test(a_part_fails_alone),
        cmocka_unit_test(ranks_that_disagree_go_on),
        cmocka_unit_test(parts_do_not_read_the_topology_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
