/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What only the io_uring transport has: a kernel that refuses it, and zero-copy sends.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/multi/tcp_world.h"
#include "transport/uring/uring.h"

/* ---- io_uring ---------------------------------------------------------------------------------
 */

static void forbid_io_uring(unsigned error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = SPR_ARRAY_LEN(code), .filter = code};

    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void a_refused_io_uring_is_unsupported(void **state)
{
    static const unsigned errors[] = {EPERM, ENOSYS};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(errors); i++) {
        int status;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            struct node n;
            spr_status opened;
            forbid_io_uring(errors[i]);
            node_init(&n, 0, 2, 1, "127.0.0.1");
            opened = node_open(&n, &spr_transport_uring);
            print_message("%s\n", n.error.text);
            _exit(opened == SPR_ERR_UNSUPPORTED && strstr(n.error.text, "io_uring is refused: ") &&
                          strstr(n.error.text, "seccomp")
                      ? 0
                      : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

/* Loopback copies, so both are switched on again by hand all the time. */
static void force_zero_copy(struct node *n, int size)
{
    for (int i = 0; i < size; i++) {
        for (int r = 0; r < size; r++) {
            struct uring_link *l = (struct uring_link *)n[i].peers[r].link;
            if (l && n[i].peers[r].up && !n[i].peers[r].down) {
                l->zc = true;
                l->zc_copied = l->zc_refused = 0;
            }
        }
    }
}

static struct node *open_zero_copy(void **state, uint32_t frames)
{
    struct node *n = open_nodes(*state, 2, frames);

    for (int i = 0; i < 2; i++) {
        struct uring_transport *t = (struct uring_transport *)n[i].t;
        n[i].options.zerocopy_bytes = 60000;
        t->zc = t->zc_report = true;
    }
    connect_nodes(n, 2);
    /* Half of the memory is registered. */
    for (int i = 0; i < NODE_WINDOW / 2; i++)
        assert_int_equal(
            n[0].t->ops->mem_register(n[0].t, n[0].peers[1].data[i], NODE_MOST_BYTES, false),
            SPR_OK);
    return n;
}

static void zero_copy_sends_arrive(void **state)
{
    struct node *n = open_zero_copy(state, 200);

    while (!node_finished(&n[0]) || !node_finished(&n[1])) {
        node_step(&n[0]);
        node_step(&n[1]);
        force_zero_copy(n, 2);
    }
    print_message("%llu zero-copy sends, %llu of them copied\n",
                  (unsigned long long)n[0].counters.zerocopy_sends,
                  (unsigned long long)n[0].counters.copied_sends);
    assert_true(n[0].counters.zerocopy_sends > 0);
    assert_true(n[0].counters.copied_sends > 0);
    for (int i = 0; i < NODE_WINDOW / 2; i++)
        n[0].t->ops->mem_deregister(n[0].t, n[0].peers[1].data[i], NODE_MOST_BYTES);
    node_step(&n[0]);
    close_nodes(n, 2);
}

static void copied_sends_switch_zero_copy_off(void **state)
{
    struct node *n = open_zero_copy(state, 150);
    struct uring_link *l;

    run_nodes(n, 2, node_all_up);
    force_zero_copy(n, 2);
    run_nodes(n, 2, node_finished);
    l = (struct uring_link *)n[0].peers[1].link;
    assert_false(l->zc);
    assert_true(n[0].counters.copied_sends >= 8);
    close_nodes(n, 2);
}

static void a_link_with_zero_copy_is_cut(void **state)
{
    struct node *n = open_zero_copy(state, UINT32_MAX);
    struct node_peer *p = &n[0].peers[1];

    while (p->received < 30 || n[0].counters.zerocopy_sends < 10) {
        node_step(&n[0]);
        node_step(&n[1]);
        force_zero_copy(n, 2);
    }
    n[0].t->ops->kill(p->link);
    p->up = false;
    while (p->came_back < p->sent)
        if (!node_step(&n[0]))
            node_sleep(&n[0], 1000);
    while (!n[1].peers[0].down)
        if (!node_step(&n[1]))
            node_sleep(&n[1], 1000);
    close_nodes(n, 2);
}

/* As the kernel leaves it when work is done while it is being queued. */
static void a_flag_for_nothing_keeps_nobody_awake(void **state)
{
    struct node *n = open_nodes(*state, 2, 20);

    connect_nodes(n, 2);
    run_nodes(n, 2, node_finished);
    while (node_step(&n[0]) + node_step(&n[1]) > 0) {
    }
    __atomic_fetch_or(uring_of(n[0].t)->ring.sq.kflags, IORING_SQ_TASKRUN, __ATOMIC_RELAXED);
    assert_int_equal(node_step(&n[0]), 0);
    assert_int_equal(n[0].t->ops->arm(n[0].t), SPR_OK);
    close_nodes(n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(a_refused_io_uring_is_unsupported, uring4),     ON(zero_copy_sends_arrive, uring4),
        ON(copied_sends_switch_zero_copy_off, uring4),     ON(a_link_with_zero_copy_is_cut, uring4),
        ON(a_flag_for_nothing_keeps_nobody_awake, uring4),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
