/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ranks killed at random moments. Every survivor ends with an error that names the killed rank,
 * also when other survivors exit at once, without destroying their communicators. The test ends
 * with a table of the time from the kill to each survivor's error: a report, not an assertion.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/util.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"

#define SECONDS 30
#define MOST_RANKS 6
#define MOST_ELEMENTS 400000
#define MOST_IN_FLIGHT 4

static uint64_t seed;

/* What one trial does; made before the ranks are forked. */
struct trial {
    int size, victim, in_flight;
    size_t elements;
    size_t resident;    /* bytes that the victim holds */
    unsigned exits;     /* bit per rank: leaves without spr_comm_destroy */
    bool caller;        /* progress by the caller */
    long delay_us;      /* from the start of all to the kill */
    const char *during; /* what runs */
};

/* In shared memory. */
struct report {
    _Atomic int ready;
    struct {
        uint64_t noticed_ns;
        int status;
        char text[800];
    } of[MOST_RANKS];
};

static spr_status post(const struct trial *t, spr_comm *comm, float *x, spr_request **rq)
{
    static uint32_t index[1000];
    static float value[1000];
    spr_sparse list = {index, value, SPR_ARRAY_LEN(index), 0};

    switch (t->during[0]) {
    case 's':
        for (uint32_t i = 0; i < SPR_ARRAY_LEN(index); i++)
            index[i] = i * (uint32_t)(t->elements / SPR_ARRAY_LEN(index));
        return spr_isparse_allreduce(comm, &list, t->elements, x, NULL, SPR_SUM, NULL, rq);
    case 'b':
        return spr_ibroadcast(comm, x, t->elements, SPR_FP32, 0, NULL, rq);
    default:
        return spr_iallreduce(comm, x, x, t->elements, SPR_FP32, SPR_SUM, NULL, rq);
    }
}

/* Works until something fails. */
static spr_status work(const struct trial *t, spr_comm *comm)
{
    spr_request *requests[MOST_IN_FLIGHT];
    float *x = calloc((size_t)t->in_flight * t->elements, sizeof *x);
    spr_status status = SPR_OK;

    while (status == SPR_OK) {
        int posted = 0;
        while (posted < t->in_flight && status == SPR_OK) {
            status = post(t, comm, x + (size_t)posted * t->elements, &requests[posted]);
            posted += status == SPR_OK;
        }
        for (int i = 0; i < posted; i++) {
            spr_status s = spr_wait(&requests[i], -1);
            status = status ? status : s;
        }
        if (posted == 0) /* refused: spr_last_error has the cause */
            break;
    }
    return status;
}

static void run_rank(struct job *job, int rank, spr_comm *comm)
{
    const struct trial *t = job->arg;
    struct report *report = (void *)job->shared;
    spr_status status;

    if (rank == t->victim && t->resident)
        RANK_CHECK(mmap(NULL, t->resident, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) != MAP_FAILED);
    atomic_fetch_add(&report->ready, 1);
    status = work(t, comm);
    report->of[rank].noticed_ns = spr_monotonic_ns();
    report->of[rank].status = status;
    snprintf(report->of[rank].text, sizeof report->of[rank].text, "%s", spr_last_error(comm));
    if (t->exits >> rank & 1)
        _exit(0);
}

static struct trial draw(struct spr_rng *rng)
{
    static const size_t elements[] = {1000, 20000, 100000, MOST_ELEMENTS};
    static const char *const during[] = {"allreduce", "allreduce", "sparse", "broadcast"};
    struct trial t = {.size = 2 + (int)spr_rng_below(rng, MOST_RANKS - 1)};

    t.victim = (int)spr_rng_below(rng, (uint64_t)t.size);
    t.in_flight = 1 + (int)spr_rng_below(rng, MOST_IN_FLIGHT);
    t.elements = elements[spr_rng_below(rng, SPR_ARRAY_LEN(elements))];
    t.during = during[spr_rng_below(rng, SPR_ARRAY_LEN(during))];
    t.exits = (unsigned)spr_rng_below(rng, 1u << t.size);
    t.caller = spr_rng_below(rng, 3) == 0;
    t.delay_us = (long)spr_rng_below(rng, 10000);
    return t;
}

/* Microseconds, of all survivors of all trials over a transport. */
struct times {
    double *us;
    size_t count;
};

static void run_trial(struct trial *t, const char *transport, int number, struct times *times)
{
    const struct report *report;
    uint64_t killed_ns;
    char name[24];
    struct job job;

    setenv("SPARRING_PROGRESS", t->caller ? "caller" : "thread", 1);
    job_start(&job, t->size, transport, run_rank, t);
    unsetenv("SPARRING_PROGRESS");
    report = (void *)job.shared;
    while (atomic_load(&report->ready) < t->size)
        fault_pause_us(200);
    fault_pause_us(t->delay_us);
    killed_ns = spr_monotonic_ns();
    kill(job.pids[t->victim], SIGKILL);
    assert_true(job_wait(&job, SECONDS));
    snprintf(name, sizeof name, "rank %d ", t->victim);
    for (int r = 0; r < t->size; r++) {
        const char *text = report->of[r].text;
        assert_int_equal(job.codes[r], r == t->victim ? 128 + SIGKILL : 0);
        if (r == t->victim)
            continue;
        /* A call that comes after the failure is refused, with the same text. */
        if ((report->of[r].status != SPR_ERR_RANK_LOST &&
             report->of[r].status != SPR_ERR_REVOKED) ||
            strncmp(text, name, strlen(name)) != 0)
            fail_msg("trial %d over %s: rank %d of %d, progress by %s, %s of %zu, %d in flight, "
                     "exits 0x%x: rank %d was killed, but it says %s: %s",
                     number, transport, r, t->size, t->caller ? "caller" : "thread", t->during,
                     t->elements, t->in_flight, t->exits, t->victim,
                     spr_status_name(report->of[r].status), text);
        times->us[times->count++] = (double)(report->of[r].noticed_ns - killed_ns) * 1e-3;
    }
    munmap(job.shared, JOB_SHARED_BYTES);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void campaign(int trials, size_t resident)
{
    struct fault_census before = fault_census_take();
    struct spr_rng rng = {seed, resident};

    printf("%-9s %8s %6s %10s %10s %10s %10s\n", "transport", "resident", "kills", "errors",
           "p50(ms)", "p99(ms)", "max(ms)");
    for (size_t i = 0; i < job_transport_count; i++) {
        struct times times = {calloc((size_t)trials * MOST_RANKS, sizeof(double)), 0};
        for (int n = 0; n < trials; n++) {
            struct trial t = draw(&rng);
            t.resident = resident;
            run_trial(&t, job_transports[i], n, &times);
        }
        qsort(times.us, times.count, sizeof(double), ascending);
        printf("%-9s %5zu MiB %6d %10zu %10.2f %10.2f %10.2f\n", job_transports[i], resident >> 20,
               trials, times.count, times.us[times.count / 2] * 1e-3,
               times.us[times.count * 99 / 100] * 1e-3, times.us[times.count - 1] * 1e-3);
        fflush(stdout);
        free(times.us);
    }
    fault_census_expect(&before);
}

static void a_killed_rank_is_named_by_every_survivor(void **state)
{
    (void)state;
    campaign(fault_repeats(20, 334), 0);
}

static void so_is_one_that_holds_much_memory(void **state)
{
    (void)state;
    campaign(fault_repeats(2, 334), (size_t)1 << 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named_by_every_survivor),
        cmocka_unit_test(so_is_one_that_holds_much_memory),
    };

    seed = job_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
