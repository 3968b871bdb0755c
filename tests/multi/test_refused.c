/* SPDX-License-Identifier: BSD-2-Clause
 *
 * io_uring where the system refuses it (a container's seccomp profile): the job runs over epoll,
 * says so once, and its results are the same bits.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crc32c.h"
#include "base/rng.h"
#include "base/util.h"
#include "tests/multi/job.h"

#define SECONDS 30
#define RANKS 3
#define ELEMENTS 100000

static const struct {
    const char *name;
    unsigned number;
} errors[] = {{"EPERM", EPERM}, {"ENOSYS", ENOSYS}};

/* What the next job's ranks meet; inherited by fork. */
static unsigned refusal; /* errno of io_uring_setup */
static unsigned refused; /* bit per rank */
static uint64_t seed;
static char log_file[64]; /* with %r for the rank */

static void refuse_io_uring(struct job *job, int rank)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | refusal),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = SPR_ARRAY_LEN(code), .filter = code};

    (void)job;
    if (!(refused >> rank & 1))
        return;
    RANK_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    RANK_CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* A checksum of dense and sparse results, and the transport that was used, go to shared memory. */
struct outcome {
    uint32_t crc;
    char transport[RANKS][16];
};

static void run_collectives(struct job *job, int rank, spr_comm *comm)
{
    static float x[ELEMENTS], y[ELEMENTS];
    static uint32_t index[1000];
    static float value[1000];
    spr_sparse list = {index, value, SPR_ARRAY_LEN(index), 0};
    struct outcome *mine = (struct outcome *)(void *)job->shared + rank;

    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < ELEMENTS; i++)
            x[i] = (float)spr_hash_u32(seed ^ (uint64_t)rank << 40 ^ (uint64_t)round << 50 ^ i);
        for (uint32_t i = 0; i < SPR_ARRAY_LEN(index); i++) {
            index[i] = i * 100 + spr_hash_u32(seed ^ i ^ (uint64_t)rank << 50) % 100;
            value[i] = x[i];
        }
        RANK_CHECK(spr_allreduce(comm, x, y, ELEMENTS, SPR_FP32, SPR_AVG, NULL) == SPR_OK);
        mine->crc = spr_crc32c(mine->crc, y, sizeof y);
        RANK_CHECK(spr_sparse_allreduce(comm, &list, ELEMENTS, y, NULL, SPR_SUM, NULL) == SPR_OK);
        mine->crc = spr_crc32c(mine->crc, y, sizeof y);
        RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    }
    for (int r = 0; r < RANKS; r++)
        snprintf(mine->transport[r], sizeof mine->transport[r], "%s", spr_comm_transport(comm, r));
}

/* Lines of a rank's log that say that io_uring cannot be used, with a reason. */
static int refusals_logged(int rank)
{
    char path[96], line[1024];
    int lines = 0;
    FILE *file;

    snprintf(path, sizeof path, "%.*s%d", (int)(strstr(log_file, "%r") - log_file), log_file, rank);
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        lines += strstr(line, "uring") && strstr(line, "refused") && strstr(line, "seccomp");
    if (file)
        fclose(file);
    unlink(path);
    return lines;
}

/* Runs the job; every rank must end well. Returns the common checksum. */
static uint32_t run(const char *transports, unsigned error, unsigned ranks, int *logged)
{
    struct outcome outcomes[RANKS];
    struct job job;

    refusal = error;
    refused = ranks;
    setenv("SPARRING_LOG_FILE", log_file, 1);
    job_start(&job, RANKS, transports, run_collectives, NULL);
    unsetenv("SPARRING_LOG_FILE");
    assert_true(job_wait(&job, SECONDS));
    memcpy(outcomes, job.shared, sizeof outcomes);
    job_expect_success(&job, 1);
    for (int r = 0; r < RANKS; r++) {
        logged[r] = refusals_logged(r);
        assert_int_equal(outcomes[r].crc, outcomes[0].crc);
        for (int peer = 0; peer < RANKS; peer++)
            if (peer != r && (refused >> r & 1) && strncmp(transports, "auto", 4))
                assert_string_equal(outcomes[r].transport[peer], "epoll");
    }
    return outcomes[0].crc;
}

static void the_job_runs_over_epoll_with_the_same_bits(void **state)
{
    static const char *const lists[] = {"uring,epoll", "auto,uring"};
    static const unsigned who[] = {7, 2}; /* all ranks, only rank 1 */
    int logged[RANKS];
    uint32_t want = run("epoll", EPERM, 0, logged);

    (void)state;
    assert_int_equal(run("uring,epoll", EPERM, 0, logged), want);
    if (logged[0])
        skip(); /* refused here anyway */
    /* Who does not ask for it does not hear of it. */
    assert_int_equal(run("auto", EPERM, 7, logged), want);
    assert_int_equal(logged[0] + logged[1] + logged[2], 0);
    for (size_t l = 0; l < SPR_ARRAY_LEN(lists); l++) {
        for (size_t e = 0; e < SPR_ARRAY_LEN(errors); e++) {
            for (size_t w = 0; w < SPR_ARRAY_LEN(who); w++) {
                assert_int_equal(run(lists[l], errors[e].number, who[w], logged), want);
                for (int r = 0; r < RANKS; r++)
                    if (logged[r] != (int)(who[w] >> r & 1))
                        fail_msg("%s, %s for ranks 0x%x: rank %d says so %d times", lists[l],
                                 errors[e].name, who[w], r, logged[r]);
            }
        }
    }
}

/* Without an alternative rank_main is never reached; the refused ranks check their error. */
static void expect_refusal(struct job *job, int rank)
{
    spr_comm_options options;
    spr_bootstrap bootstrap;
    spr_comm *comm = NULL;

    refuse_io_uring(job, rank);
    job_options(job, rank, &options, &bootstrap);
    RANK_CHECK(spr_comm_create(&options, &comm) == SPR_ERR_UNSUPPORTED);
    RANK_CHECK(comm == NULL);
    RANK_CHECK(strstr(spr_last_error(NULL), "uring"));
    RANK_CHECK(strstr(spr_last_error(NULL), "refused"));
    RANK_CHECK(strstr(spr_last_error(NULL), "seccomp"));
    _exit(0);
}

static void io_uring_alone_is_a_clear_error(void **state)
{
    (void)state;
    job_prepare = expect_refusal;
    for (size_t e = 0; e < SPR_ARRAY_LEN(errors); e++) {
        struct job job;
        refusal = errors[e].number;
        refused = 7;
        job_start(&job, RANKS, "uring", run_collectives, NULL);
        job_expect_success(&job, SECONDS);
    }
    job_prepare = refuse_io_uring;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_job_runs_over_epoll_with_the_same_bits),
        cmocka_unit_test(io_uring_alone_is_a_clear_error),
    };

    seed = job_seed();
    snprintf(log_file, sizeof log_file, "/tmp/sparring-refused.%d.%%r", (int)getpid());
    job_prepare = refuse_io_uring;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
