/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Torture while a communicator is split: in one of three ranks something fails once. All ranks have
 * the same outcome, soon; parts work, and so does the parent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "collectives/comm.h"
#include "tests/multi/torture.h"

#define RANKS 3
/* Who cannot make a link leaves the others waiting for so long. */
#define WAIT_S 0.5
#define LONGEST_S 6.0

static bool one_life(struct job *job, int rank, uint64_t n, int *times)
{
    spr_comm *comm = torture_communicator(job, rank, RANKS, n), *part = comm;
    float x = 1, sum = 0;
    spr_status status;
    uint64_t begin;
    bool hit;

    comm->options.init_timeout_s = WAIT_S;
    torture_meet(job, rank, times);
    begin = spr_monotonic_ns();
    torture_arm(job, rank, n);
    status = spr_comm_split(comm, rank > 0, 0, &part); /* rank 0 alone */
    hit = torture_disarm(job, rank, n);
    torture_check_time(job, rank, n, begin, LONGEST_S, status);
    torture_check_text(status, spr_last_error(NULL));
    RANK_CHECK((status == SPR_OK) == (part != comm));
    torture_tell(job, rank, status);
    torture_meet(job, rank, times);
    for (int r = 0; r < RANKS; r++)
        RANK_CHECK(!torture_told(job, r) == !status);
    if (status == SPR_OK) {
        RANK_CHECK(spr_allreduce(part, &x, &sum, 1, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
        RANK_CHECK(sum == (rank > 0 ? 2 : 1));
        spr_comm_destroy(part);
    }
    torture_go_on(comm, RANKS);
    spr_comm_destroy(comm);
    return hit;
}

static void torture(const char *transport, size_t calls)
{
    torture_over(transport, &(struct torture){.processes = RANKS, .life = one_life}, calls, 2);
}

static void splitting_over_shared_memory_survives_what_fails_once(void **state)
{
    (void)state;
    torture("shm", failing_calls_count);
}

static void splitting_over_epoll_survives_what_fails_once(void **state)
{
    (void)state;
    if (torture_is_brief())
        skip();
    torture("epoll", getenv("SPARRING_SOAK") ? failing_calls_count : 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splitting_over_shared_memory_survives_what_fails_once),
        cmocka_unit_test(splitting_over_epoll_survives_what_fails_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
