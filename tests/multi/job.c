/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/util.h"
#include "tests/multi/job.h"
#include "transport/uring/survey.h"

#define ROUNDS 8
#define SLOT_BYTES 4096

void (*job_prepare)(struct job *job, int rank);
const char *job_interface = "lo";
const char *job_secret = "a secret of the test";

const char *job_transports[4];
size_t job_transport_count;

/* SPARRING_TEST_TRANSPORTS, a list, leaves the others out. `missing`: why it cannot be used here;
 * NULL: it can. Returns whether it is wanted. */
static bool offer(const char *name, const char *missing)
{
    const char *only = getenv("SPARRING_TEST_TRANSPORTS");

    if (only && !strstr(only, name))
        return false;
    if (missing)
        fprintf(stderr, "without %s: %s\n", name, missing);
    else
        job_transports[job_transport_count++] = name;
    return true;
}

static const char *without_uring(void)
{
#ifdef HAVE_URING
    static struct spr_error error;
    struct spr_uring_survey survey;

    return spr_uring_survey(true, &survey, &error) ? error.text : NULL;
#else
    return "not built in";
#endif
}

static const char *without_verbs(void)
{
#ifdef HAVE_VERBS
    return access("/sys/class/infiniband_verbs/uverbs0", F_OK) ? "no RDMA device" : NULL;
#else
    return "not built in";
#endif
}

/* A test over no transport would pass without a rank. 77: skipped. */
__attribute__((constructor)) static void find_transports(void)
{
    bool known = offer("shm", NULL);

    known |= offer("epoll", NULL);
    known |= offer("uring", without_uring());
    known |= offer("verbs", without_verbs());
    if (!known)
        fprintf(stderr, "SPARRING_TEST_TRANSPORTS=%s: no such transport\n",
                getenv("SPARRING_TEST_TRANSPORTS"));
    if (!job_transport_count)
        _exit(known ? 77 : 1);
}

bool job_has_transport(const char *name)
{
    for (size_t t = 0; t < job_transport_count; t++)
        if (!strcmp(job_transports[t], name))
            return true;
    return false;
}

/* A user-supplied bootstrap: an allgather in shared memory. */
struct job_exchange {
    _Atomic int broken;
    _Atomic int arrived[ROUNDS];
    char data[ROUNDS][JOB_MAX][SLOT_BYTES];
};

struct ticket {
    struct job *job;
    int rank, round;
    void *out;
    size_t bytes;
};

static spr_status exchange_allgather(void *ctx, const void *in, void *out, size_t bytes,
                                     void **request)
{
    struct ticket *t = ctx;

    if (bytes > SLOT_BYTES || t->round >= ROUNDS)
        return SPR_ERR_TOO_SMALL;
    memcpy(t->job->exchange->data[t->round][t->rank], in, bytes);
    atomic_fetch_add(&t->job->exchange->arrived[t->round], 1);
    t->out = out;
    t->bytes = bytes;
    *request = t;
    return SPR_OK;
}

static spr_status exchange_test(void *ctx, void *request)
{
    struct ticket *t = request;

    (void)ctx;
    if (atomic_load(&t->job->exchange->broken))
        return SPR_ERR_LINK;
    if (atomic_load(&t->job->exchange->arrived[t->round]) < t->job->size)
        return SPR_IN_PROGRESS;
    for (int r = 0; r < t->job->size; r++)
        memcpy((char *)t->out + (size_t)r * t->bytes, t->job->exchange->data[t->round][r],
               t->bytes);
    t->round++;
    return SPR_OK;
}

static void exchange_close(void *ctx) { free(ctx); }

void job_break(struct job *job) { atomic_store(&job->exchange->broken, 1); }

void job_renew(struct job *job)
{
    for (int i = 0; i < ROUNDS; i++)
        atomic_store(&job->exchange->arrived[i], 0);
    atomic_store(&job->exchange->broken, 0);
}

void job_options(struct job *job, int rank, spr_comm_options *options, spr_bootstrap *bootstrap)
{
    struct ticket *t = calloc(1, sizeof *t);

    t->job = job;
    t->rank = rank;
    *bootstrap = (spr_bootstrap){sizeof *bootstrap,  t,
                                 (uint32_t)rank,     (uint32_t)job->size,
                                 exchange_allgather, exchange_test,
                                 exchange_close,     NULL};
    *options = (spr_comm_options)SPR_COMM_OPTIONS_INIT;
    options->bootstrap = bootstrap;
    options->transports = job->transports;
    options->interface_name = job_interface;
    options->secret = job_secret;
    options->secret_bytes = job_secret ? strlen(job_secret) + 1 : 0;
}

_Noreturn void job_rank_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: rank process %d: failed: %s (%s)\n", file, line, (int)getpid(),
            condition, spr_last_error(NULL));
    _exit(99);
}

void job_alone(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* cmocka's handler would go on with the next test, in this process. */
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    signal(SIGFPE, SIG_DFL);
    signal(SIGILL, SIG_DFL);
}

static _Noreturn void run_rank(struct job *job, int rank,
                               void (*rank_main)(struct job *job, int rank, spr_comm *comm))
{
    spr_comm_options options;
    spr_bootstrap bootstrap;
    spr_comm *comm = NULL;

    job_alone();
    if (job_prepare)
        job_prepare(job, rank);
    job_options(job, rank, &options, &bootstrap);
    if (spr_comm_create(&options, &comm) != SPR_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, spr_last_error(NULL));
        _exit(98);
    }
    rank_main(job, rank, comm);
    spr_comm_destroy(comm);
    _exit(0);
}

void job_start(struct job *job, int size, const char *transports,
               void (*rank_main)(struct job *job, int rank, spr_comm *comm), void *arg)
{
    size_t bytes = sizeof(struct job_exchange);

    /* Ranks of one host would do without. */
    setenv("SPARRING_CRC", "yes", 0);
    memset(job, 0, sizeof *job);
    job->size = size;
    job->transports = transports;
    job->arg = arg;
    job->exchange = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    job->shared =
        mmap(NULL, JOB_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(job->exchange != MAP_FAILED && job->shared != MAP_FAILED);
    fflush(NULL);
    for (int r = 0; r < size; r++) {
        job->pids[r] = fork();
        assert_true(job->pids[r] >= 0);
        if (job->pids[r] == 0)
            run_rank(job, r, rank_main);
    }
}

/* Take the exit codes that are there; returns how many ranks still run. */
static int reap(struct job *job)
{
    int running = 0;

    for (int r = 0; r < job->size; r++) {
        int status;
        if (job->pids[r] == 0)
            continue;
        if (waitpid(job->pids[r], &status, WNOHANG) != job->pids[r]) {
            running++;
            continue;
        }
        job->pids[r] = 0;
        job->codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return running;
}

bool job_wait(struct job *job, double seconds)
{
    uint64_t deadline = spr_monotonic_ns() + (uint64_t)(seconds * spr_time_factor() * 1e9);
    struct timespec pause = {0, 1000000};
    bool in_time = true;

    while (reap(job) > 0) {
        if (in_time && spr_monotonic_ns() > deadline) {
            in_time = false;
            for (int r = 0; r < job->size; r++) {
                if (job->pids[r]) {
                    fprintf(stderr, "rank %d of %d still runs after %g s over %s\n", r, job->size,
                            seconds, job->transports);
                    kill(job->pids[r], SIGKILL);
                }
            }
        }
        nanosleep(&pause, NULL);
    }
    munmap(job->exchange, sizeof *job->exchange);
    return in_time;
}

void job_expect_success(struct job *job, double seconds)
{
    assert_true(job_wait(job, seconds));
    for (int r = 0; r < job->size; r++)
        if (job->codes[r])
            fail_msg("rank %d of %d over %s ended with %d", r, job->size, job->transports,
                     job->codes[r]);
    munmap(job->shared, JOB_SHARED_BYTES);
}

void job_on_all_transports(int size, void (*rank_main)(struct job *job, int rank, spr_comm *comm),
                           void *arg, double seconds)
{
    for (size_t t = 0; t < job_transport_count; t++) {
        struct job job;
        job_start(&job, size, job_transports[t], rank_main, arg);
        job_expect_success(&job, seconds);
    }
}

uint64_t job_seed(void)
{
    uint64_t seed = spr_rng_test_seed();

    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

void job_pause_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

_Atomic int *job_counter(struct job *job, int i) { return (_Atomic int *)(void *)job->shared + i; }

void job_await(_Atomic int *count, int value)
{
    while (atomic_load(count) < value)
        job_pause_ms(1);
}
