/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Torture while processes join: two members take in a newcomer and hand it a state; in one of the
 * three the n-th allocation fails, or the n-th socket, mmap, epoll_create1 ..., for every n. The
 * members have the same outcome, soon; what they then hold works with all that are left; nothing
 * crashes, hangs or leaks.
 */
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
#include "base/util.h"
#include "collectives/comm.h"
#include "tests/multi/failing.h"
#include "tests/multi/faults.h"
#include "tests/multi/grow.h"

#define SECONDS 240
#define MEMBERS 2
#define ALL 3 /* the last is the newcomer */
#define STATE_BYTES 70001
/* Who fails where no word can reach the others leaves them waiting for so long. */
#define WAIT_S 0.5
#define LONGEST_S 6.0

/* In shared memory. */
struct control {
    struct fault_meeting meeting;
    _Atomic int go_on;
    _Atomic uint64_t n; /* for the test that reports a failure */
    _Atomic int outcome[ALL];
    uint64_t sites, grown;
};

struct torture {
    const char *call;
    int victim;
};

static void common_options(const struct job *job, spr_comm_options *create)
{
    *create = (spr_comm_options)SPR_COMM_OPTIONS_INIT;
    create->transports = job->transports;
    create->interface_name = job_interface;
    create->secret = job_secret;
    create->secret_bytes = strlen(job_secret) + 1;
    create->init_timeout_s = WAIT_S;
}

static spr_comm *old_communicator(const struct job *job, int rank, uint64_t n)
{
    spr_comm_options create;
    spr_comm *comm = NULL;
    char root[64];

    common_options(job, &create);
    snprintf(root, sizeof root, "unix:test_grow_torture.%d.%d", (int)getppid(), (int)n);
    create.root = root;
    create.rank = rank;
    create.size = MEMBERS;
    create.init_timeout_s = 30;
    RANK_CHECK(spr_comm_create(&create, &comm) == SPR_OK);
    /* Where descriptors are short to the end, a link that cannot be made is waited for. */
    if (!strcmp(((const struct torture *)job->arg)->call, "descriptors"))
        comm->options.init_timeout_s = WAIT_S;
    return comm;
}

static void *take(void *ctx, size_t bytes)
{
    unsigned char **state = ctx;

    RANK_CHECK(bytes == STATE_BYTES);
    return *state = malloc(bytes);
}

static void check_text(spr_status status, const char *text)
{
    RANK_CHECK(status < 0 && strcmp(spr_status_name(status), "SPR_ERR_UNKNOWN") != 0);
    if (!*text || strchr(text, '\n'))
        fprintf(stderr, "%s has the text '%s'\n", spr_status_name(status), text);
    RANK_CHECK(*text && strchr(text, '\n') == NULL);
}

/* Sum with all that are left; shrink as often as it takes. */
static void go_on(spr_comm *comm)
{
    float x = 1, sum = 0;

    for (int i = 0; spr_allreduce(comm, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) != SPR_OK; i++) {
        RANK_CHECK(i < 5);
        RANK_CHECK(spr_comm_shrink(comm, 3, NULL) == SPR_OK);
    }
    if (sum != (float)spr_comm_size(comm) || spr_comm_size(comm) < MEMBERS)
        fprintf(stderr, "rank %d of %d: the sum is %g\n", spr_comm_rank(comm), spr_comm_size(comm),
                (double)sum);
    RANK_CHECK(sum == (float)spr_comm_size(comm) && spr_comm_size(comm) >= MEMBERS);
}

static spr_status grow(struct job *job, int who, spr_comm *comm, spr_comm **grown,
                       unsigned char **state)
{
    spr_grow_options options = grow_options();
    spr_comm_options create;

    options.wait_s = WAIT_S;
    options.state_rank = 1;
    if (who == 1) {
        options.state = *state;
        options.state_bytes = STATE_BYTES;
    }
    common_options(job, &create);
    if (who == MEMBERS) {
        options.take = take;
        options.ctx = state;
        options.create = &create;
    }
    return spr_comm_grow(comm, &options, grown);
}

static int one_life(struct job *job, int who, uint64_t n, int *times, bool fails)
{
    const struct torture *t = job->arg;
    struct control *c = (void *)job->shared;
    spr_comm *comm = who < MEMBERS ? old_communicator(job, who, n) : NULL, *grown = NULL;
    unsigned char *state = who == 1 ? grow_state(STATE_BYTES) : NULL;
    spr_status status;
    bool hit = false;
    uint64_t begin;
    double took;

    fault_meet(&c->meeting, ALL, who, times);
    begin = spr_monotonic_ns();
    if (fails)
        failing_arm(t->call, n);
    status = grow(job, who, comm, &grown, &state);
    if (fails)
        hit = failing_disarm(t->call, n);
    took = (double)(spr_monotonic_ns() - begin) * 1e-9;
    if (took > LONGEST_S * spr_time_factor())
        fprintf(stderr, "%s %d in %d: process %d: took %.1f s: %s: %s\n", t->call, (int)n,
                t->victim, who, took, spr_status_name(status), spr_last_error(NULL));
    RANK_CHECK(took < LONGEST_S * spr_time_factor());
    RANK_CHECK((status == SPR_OK) == (grown != NULL));
    if (status)
        check_text(status, spr_last_error(NULL));
    atomic_store(&c->outcome[who], status);
    if (status == SPR_OK && who == MEMBERS)
        for (size_t i = 0; i < STATE_BYTES; i += 1000)
            RANK_CHECK(state[i] == (unsigned char)(i * 2654435761u >> 13));
    if (grown || comm)
        go_on(grown ? grown : comm);
    c->grown += who == 0 && grown;
    spr_comm_destroy(comm);
    spr_comm_destroy(grown);
    free(state);
    fault_meet(&c->meeting, ALL, who, times);
    RANK_CHECK(!atomic_load(&c->outcome[0]) == !atomic_load(&c->outcome[1]));
    /* Who is let in is in. */
    RANK_CHECK(atomic_load(&c->outcome[0]) == SPR_OK || atomic_load(&c->outcome[2]) != SPR_OK);
    return hit;
}

/* For n = 1, 2, ... until nothing fails any more. */
static void torture(struct job *job, int who)
{
    const struct torture *t = job->arg;
    struct control *c = (void *)job->shared;
    struct fault_census before = {0};
    int times = 0;

    atomic_store(&c->go_on, 1);
    for (uint64_t n = 0; atomic_load(&c->go_on); n++) {
        bool hit;
        if (who == 0)
            atomic_store(&c->n, n);
        hit = one_life(job, who, n, &times, n > 0 && who == t->victim);
        if (n == 0) /* what is made once is there now */
            before = fault_census_take();
        RANK_CHECK(spr_mem_live() == 0);
        RANK_CHECK(fault_census_take().descriptors == before.descriptors);
        RANK_CHECK(fault_census_take().memfds == before.memfds);
        fault_meet(&c->meeting, ALL, who, &times);
        if (n > 0 && who == t->victim && !hit) {
            c->sites = n - 1;
            atomic_store(&c->go_on, 0);
        }
        fault_meet(&c->meeting, ALL, who, &times);
    }
    RANK_CHECK(c->grown > 0);
    _exit(0);
}

static void torture_one(const char *transport, struct torture *t)
{
    uint64_t begin = spr_monotonic_ns();
    const struct control *c;
    struct job job;

    grow_choose_place();
    job_prepare = torture;
    job_start(&job, ALL, transport, NULL, t);
    c = (void *)job.shared;
    if (!job_wait(&job, SECONDS) || job.codes[0] || job.codes[1] || job.codes[2])
        fail_msg("over %s, %s number %d fails in process %d: they ended with %d, %d and %d",
                 transport, t->call, (int)c->n, t->victim, job.codes[0], job.codes[1],
                 job.codes[2]);
    assert_true(c->sites > 10 || strcmp(t->call, "allocation") != 0); /* it does fail */
    printf("%-6s %-28s process %d: %4d sites, %d grown, %.1f s\n", transport, t->call, t->victim,
           (int)c->sites, (int)c->grown, (double)(spr_monotonic_ns() - begin) * 1e-9);
    fflush(stdout);
    munmap(job.shared, JOB_SHARED_BYTES);
}

static void torture_over(const char *transport)
{
    /* What the others add to this are their sockets. */
    bool all = !strcmp(transport, "shm") || getenv("SPARRING_SOAK");

    for (size_t i = 0; i < (all ? failing_calls_count : 2); i++)
        for (int victim = 0; victim < ALL; victim++)
            torture_one(transport, &(struct torture){failing_calls[i], victim});
}

static void growing_over_shared_memory_survives_what_fails_once(void **state)
{
    (void)state;
    torture_over("shm");
}

static void growing_over_epoll_survives_what_fails_once(void **state)
{
    (void)state;
    torture_over("epoll");
}

static void growing_over_io_uring_survives_what_fails_once(void **state)
{
    (void)state;
#ifdef HAVE_URING
    torture_over("uring");
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growing_over_shared_memory_survives_what_fails_once),
        cmocka_unit_test(growing_over_epoll_survives_what_fails_once),
        cmocka_unit_test(growing_over_io_uring_survives_what_fails_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
