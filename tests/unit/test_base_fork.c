/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A process knows that it is another one than that which it was forked from.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fork.h"

/* The child's exit code is 0 when `child` returns true. */
static void in_a_child(pid_t (*make)(void), int (*child)(uint64_t parent), uint64_t parent)
{
    pid_t pid = make();
    int status;

    if (pid == 0)
        _exit(!child(parent));
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static pid_t forked(void) { return fork(); }

/* Past the handlers of pthread_atfork. */
static pid_t cloned(void) { return (pid_t)syscall(SYS_clone, 17 /* SIGCHLD */, 0, 0, 0, 0); }

static int differs(uint64_t parent)
{
    uint64_t mine = spr_process();

    return mine != 0 && mine != parent && spr_process() == mine;
}

static int grandchild_differs(uint64_t parent)
{
    uint64_t mine = spr_process();

    for (int i = 0; i < 3; i++)
        in_a_child(i % 2 ? forked : cloned, differs, mine);
    return differs(parent) && spr_process() == mine;
}

/* Its child is the first to ask. */
static int asks_after_its_child(uint64_t parent)
{
    in_a_child(forked, differs, parent);
    return differs(parent);
}

static void a_child_is_another_process(void **state)
{
    uint64_t mine = spr_process();

    (void)state;
    assert_true(mine != 0);
    for (int i = 0; i < 4; i++) {
        in_a_child(i % 2 ? forked : cloned, differs, mine);
        in_a_child(i % 2 ? forked : cloned, grandchild_differs, mine);
        in_a_child(i % 2 ? forked : cloned, asks_after_its_child, mine);
        assert_true(spr_process() == mine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_is_another_process)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
