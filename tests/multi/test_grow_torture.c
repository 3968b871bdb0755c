/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Torture while processes join: two members take in a newcomer and hand it a state; in one of the
 * three the n-th allocation fails, or the n-th socket, mmap, epoll_create1 ..., for every n. The
 * members have the same outcome, soon; what they then hold works with all that are left; nothing
 * crashes, hangs or leaks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "collectives/comm.h"
#include "tests/multi/grow.h"
#include "tests/multi/torture.h"

#define MEMBERS 2
#define ALL 3 /* the last is the newcomer */
#define STATE_BYTES 70001
/* Who fails where no word can reach the others leaves them waiting for so long. */
#define WAIT_S 0.25
#define LONGEST_S 6.0

static void common_options(const struct job *job, spr_comm_options *create)
{
    *create = (spr_comm_options)SPR_COMM_OPTIONS_INIT;
    create->transports = job->transports;
    create->interface_name = job_interface;
    create->secret = job_secret;
    create->secret_bytes = strlen(job_secret) + 1;
    create->init_timeout_s = WAIT_S;
}

static spr_comm *old_communicator(const struct job *job, int who, uint64_t n)
{
    spr_comm *comm = torture_communicator(job, who, MEMBERS, n);

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

static bool one_life(struct job *job, int who, uint64_t n, int *times)
{
    spr_comm *comm = who < MEMBERS ? old_communicator(job, who, n) : NULL, *grown = NULL;
    unsigned char *state = who == 1 ? grow_state(STATE_BYTES) : NULL;
    spr_status status;
    uint64_t begin;
    bool hit;

    torture_meet(job, who, times);
    begin = spr_monotonic_ns();
    torture_arm(job, who, n);
    status = grow(job, who, comm, &grown, &state);
    hit = torture_disarm(job, who, n);
    torture_check_time(job, who, n, begin, LONGEST_S, status);
    torture_check_text(status, spr_last_error(NULL));
    RANK_CHECK((status == SPR_OK) == (grown != NULL));
    torture_tell(job, who, status);
    if (status == SPR_OK && who == MEMBERS)
        for (size_t i = 0; i < STATE_BYTES; i += 1000)
            RANK_CHECK(state[i] == (unsigned char)(i * 2654435761u >> 13));
    if (grown || comm)
        torture_go_on(grown ? grown : comm, MEMBERS);
    spr_comm_destroy(comm);
    spr_comm_destroy(grown);
    free(state);
    torture_meet(job, who, times);
    RANK_CHECK(!torture_told(job, 0) == !torture_told(job, 1));
    /* Who is let in is in. */
    RANK_CHECK(torture_told(job, 0) == SPR_OK || torture_told(job, MEMBERS) != SPR_OK);
    return hit;
}

static void torture(const char *transport)
{
    /* What the others add to shared memory are their sockets. */
    bool all = !strcmp(transport, "shm") || getenv("SPARRING_SOAK");
    const struct torture t = {.processes = ALL, .life = one_life, .before = grow_choose_place};

    torture_over(transport, &t, all ? failing_calls_count : 2, ALL);
}

static void growing_over_shared_memory_survives_what_fails_once(void **state)
{
    (void)state;
    torture("shm");
}

static void growing_over_epoll_survives_what_fails_once(void **state)
{
    (void)state;
    if (torture_is_brief())
        skip();
    torture("epoll");
}

static void growing_over_io_uring_survives_what_fails_once(void **state)
{
    (void)state;
    if (torture_is_brief() || !job_has_transport("uring"))
        skip();
    torture("uring");
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
