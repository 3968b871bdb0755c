/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Where members and newcomers meet: rank 0 sees at once when a newcomer is gone, however it went.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/multi/bootstrap_ranks.h"
#include "transport/bootstrap/meeting.h"
#include "transport/bootstrap/root.h"

static uint64_t deadline(void)
{
    return spr_monotonic_ns() + spr_seconds_ns(20 * spr_time_factor());
}

/* A newcomer that is let in, and goes: with an end of file, or with a reset. */
static _Noreturn void newcomer(const struct plan *p, bool reset)
{
    struct spr_auth_key key = make_key(p, 1);
    struct linger at_once = {1, 0};
    struct spr_error error = {0};
    spr_bootstrap boot;

    if (spr_meeting_join(p->root, &key, true, deadline(), &boot, &error) != SPR_OK ||
        spr_bootstrap_allgather(&boot, NULL, NULL, 0, deadline(), &error) != SPR_OK) {
        fprintf(stderr, "newcomer: %s\n", error.text);
        _exit(1);
    }
    if (reset && setsockopt(spr_root_of(&boot)->client.conn.fd, SOL_SOCKET, SO_LINGER, &at_once,
                            sizeof at_once))
        _exit(2);
    _exit(0);
}

static void expect_seen(bool reset)
{
    struct plan p = make_plan(2);
    struct spr_auth_key key;
    struct spr_meeting_terms terms = {1, 1, 1};
    struct spr_error error = {0};
    spr_bootstrap boot;
    int status;
    pid_t pid;

    choose_tcp(&p);
    key = make_key(&p, 0);
    assert_int_equal(spr_meeting_open(p.root, &key, &terms, true, deadline(), &boot, &error),
                     SPR_OK);
    pid = fork();
    if (pid == 0)
        newcomer(&p, reset);
    assert_true(pid > 0);
    assert_int_equal(spr_bootstrap_allgather(&boot, NULL, NULL, 0, deadline(), &error), SPR_OK);
    spr_meeting_seated(&boot, deadline());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(spr_meeting_look(&boot, &error), SPR_ERR_RANK_LOST);
    assert_int_equal(error.rank, 1);
    boot.close(boot.ctx);
}

static void an_end_of_file_is_a_death(void **state)
{
    (void)state;
    expect_seen(false);
}

static void a_reset_is_a_death(void **state)
{
    (void)state;
    expect_seen(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_of_file_is_a_death),
        cmocka_unit_test(a_reset_is_a_death),
    };

    bootstrap_test_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
