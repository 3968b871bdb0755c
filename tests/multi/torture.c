/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/multi/torture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"

#define SECONDS 240

/* In shared memory. */
struct control {
    struct fault_meeting meeting;
    _Atomic int go_on;
    _Atomic uint64_t n; /* for the test that reports a failure */
    _Atomic int outcome[TORTURE_MOST];
    uint64_t sites, good; /* good: lives of process 0 that ended well */
};

/* Of each of failing_calls, over all transports so far. */
static uint64_t all_sites[32];

static struct control *control_of(const struct job *job) { return (void *)job->shared; }

static bool fails_here(const struct job *job, int who, uint64_t n)
{
    return n > 0 && who == ((const struct torture *)job->arg)->victim;
}

/* What lives consist of ------------------------------------------------------------------------ */

void torture_arm(const struct job *job, int who, uint64_t n)
{
    if (fails_here(job, who, n))
        failing_arm(((const struct torture *)job->arg)->call, n);
}

bool torture_disarm(const struct job *job, int who, uint64_t n)
{
    return fails_here(job, who, n) && failing_disarm(((const struct torture *)job->arg)->call, n);
}

void torture_meet(struct job *job, int who, int *times)
{
    const struct torture *t = job->arg;

    fault_meet(&control_of(job)->meeting, t->processes, who, times);
}

void torture_tell(struct job *job, int who, spr_status status)
{
    atomic_store(&control_of(job)->outcome[who], status);
    control_of(job)->good += who == 0 && status == SPR_OK;
}

spr_status torture_told(const struct job *job, int who)
{
    return (spr_status)atomic_load(&control_of(job)->outcome[who]);
}

spr_comm *torture_communicator(const struct job *job, int who, int size, uint64_t n)
{
    spr_comm_options create = SPR_COMM_OPTIONS_INIT;
    spr_comm *comm = NULL;
    char root[64];

    snprintf(root, sizeof root, "unix:torture.%d.%d", (int)getppid(), (int)n);
    create.transports = job->transports;
    create.interface_name = job_interface;
    create.secret = job_secret;
    create.secret_bytes = strlen(job_secret) + 1;
    create.root = root;
    create.rank = who;
    create.size = size;
    create.init_timeout_s = 30;
    RANK_CHECK(spr_comm_create(&create, &comm) == SPR_OK);
    return comm;
}

void torture_check_text(spr_status status, const char *text)
{
    if (status == SPR_OK)
        return;
    RANK_CHECK(status < 0 && strcmp(spr_status_name(status), "SPR_ERR_UNKNOWN") != 0);
    if (!*text || strchr(text, '\n'))
        fprintf(stderr, "%s has the text '%s'\n", spr_status_name(status), text);
    RANK_CHECK(*text && strchr(text, '\n') == NULL);
}

void torture_go_on(spr_comm *comm, int at_least)
{
    float x = 1, sum = 0;

    for (int i = 0; spr_allreduce(comm, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) != SPR_OK; i++) {
        RANK_CHECK(i < 5);
        RANK_CHECK(spr_comm_shrink(comm, 3, NULL) == SPR_OK);
    }
    if (sum != (float)spr_comm_size(comm) || spr_comm_size(comm) < at_least)
        fprintf(stderr, "rank %d of %d: the sum is %g\n", spr_comm_rank(comm), spr_comm_size(comm),
                (double)sum);
    RANK_CHECK(sum == (float)spr_comm_size(comm) && spr_comm_size(comm) >= at_least);
}

void torture_check_time(const struct job *job, int who, uint64_t n, uint64_t begin, double most_s,
                        spr_status status)
{
    const struct torture *t = job->arg;
    double took = (double)(spr_monotonic_ns() - begin) * 1e-9;

    if (took > most_s * spr_time_factor())
        fprintf(stderr, "%s %d in %d: process %d: took %.1f s: %s: %s\n", t->call, (int)n,
                t->victim, who, took, spr_status_name(status), spr_last_error(NULL));
    RANK_CHECK(took < most_s * spr_time_factor());
}

/* All lives ------------------------------------------------------------------------------------ */

static bool all_well(const struct job *job)
{
    for (int who = 0; who < ((const struct torture *)job->arg)->processes; who++)
        if (torture_told(job, who) != SPR_OK)
            return false;
    return true;
}

static void live(struct job *job, int who)
{
    const struct torture *t = job->arg;
    struct control *c = control_of(job);
    struct fault_census before = {0};
    int times = 0;

    atomic_store(&c->go_on, 1);
    spr_mem_fail_nth(0);
    for (uint64_t n = 0; atomic_load(&c->go_on); n += n < t->each ? 1 : t->step) {
        bool hit;
        if (who == 0)
            atomic_store(&c->n, n);
        hit = t->life(job, who, n, &times);
        if (n == 0) /* what is made once is there now */
            before = fault_census_take();
        RANK_CHECK(spr_mem_live() == 0);
        RANK_CHECK(fault_census_take().descriptors == before.descriptors);
        RANK_CHECK(fault_census_take().memfds == before.memfds);
        torture_meet(job, who, &times);
        /* A life that ended early, for another reason, says nothing of what is behind. */
        if (n > 0 && who == t->victim && !hit && all_well(job)) {
            c->sites = n - 1;
            atomic_store(&c->go_on, 0);
        }
        torture_meet(job, who, &times);
    }
    RANK_CHECK(who > 0 || c->good > 0);
    if (t->after)
        t->after(job, who, &times);
    _exit(0);
}

/* Returns how often the call failed. */
static uint64_t torture_one(const char *transport, struct torture *t)
{
    uint64_t begin = spr_monotonic_ns(), sites;
    const struct control *c;
    char codes[64] = "";
    struct job job;
    bool well;

    t->step = torture_is_brief() ? 3 : 1;
    t->each = 6 + spr_rng_test_seed() % t->step;
    if (t->before)
        t->before();
    job_prepare = live;
    job_start(&job, t->processes, transport, NULL, t);
    c = control_of(&job);
    well = job_wait(&job, SECONDS);
    for (int i = 0; i < t->processes; i++) {
        well &= job.codes[i] == 0;
        snprintf(codes + strlen(codes), sizeof codes - strlen(codes), " %d", job.codes[i]);
    }
    if (!well)
        fail_msg("over %s, %s number %d fails in process %d: they ended with%s", transport, t->call,
                 (int)c->n, t->victim, codes);
    assert_true(c->sites > 10 || strcmp(t->call, "allocation") != 0); /* it does fail */
    printf("%-6s %-28s process %d: %4d sites, from %d on each %d, %d ended well, %.1f s\n",
           transport, t->call, t->victim, (int)c->sites, (int)t->each, (int)t->step, (int)c->good,
           (double)(spr_monotonic_ns() - begin) * 1e-9);
    fflush(stdout);
    sites = c->sites;
    munmap(job.shared, JOB_SHARED_BYTES);
    return sites;
}

bool torture_is_brief(void)
{
    const char *scale = getenv("SPARRING_TEST_SCALE");

    return scale && strtod(scale, NULL) < 1;
}

void torture_over(const char *transport, const struct torture *torture, size_t calls, int victims)
{
    assert_true(calls <= SPR_ARRAY_LEN(all_sites));
    for (size_t i = 0; i < calls; i++)
        for (int victim = 0; victim < victims; victim++) {
            struct torture t = *torture;
            t.call = failing_calls[i];
            t.victim = victim;
            all_sites[i] += torture_one(transport, &t);
        }
}

void torture_expect_sites(void)
{
    for (size_t i = 0; i < failing_calls_count; i++)
        if (!all_sites[i] &&
            (strncmp(failing_calls[i], "io_uring", 8) != 0 || job_has_transport("uring")))
            fail_msg("%s is never called, or never caught", failing_calls[i]);
}
