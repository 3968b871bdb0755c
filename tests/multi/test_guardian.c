/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The guardian of a rank, as a real process beside one that is killed, or that leaves.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/watch/board.h"
#include "transport/watch/guardian.h"

enum { RANK = 2, SIZE = 3 };

static char path[4096];
static struct spr_board_own own;
static struct robust_list_head head;
static struct robust_list nodes[SIZE];
static int ready[2], leave[2]; /* pipes: rank -> test, test -> rank */
static bool waits_for_more;    /* not all connections are there yet, and a child has the socket */

static void *hold(void *arg)
{
    char byte = 0;

    spr_board_hold(own.board, &head, nodes);
    if (write(((int *)arg)[0], &byte, 1) != 1 || read(leave[0], &byte, 1) != 1)
        _exit(1);
    spr_board_release(own.board, &head);
    return NULL;
}

/* The rank: its board, a thread that holds it, a guardian that shares its connection. */
static _Noreturn void run_rank(int connection)
{
    struct spr_frame words = {.type = SPR_FRAME_DATA, .arg = RANK};
    struct spr_error error = {0};
    int fd = -1, held[2];
    pthread_t thread;
    char byte = 0;

    close(leave[1]);
    spr_frame_seal(&words);
    if (spr_board_create(&own, RANK, SIZE, &error) || pipe(held) ||
        pthread_create(&thread, NULL, hold, &held[1]) || read(held[0], &byte, 1) != 1)
        _exit(2);
    if (spr_guardian_start(path, RANK, own.fd, &fd, &error)) {
        fprintf(stderr, "%s\n", error.text);
        _exit(3);
    }
    if (!spr_guardian_give(fd, connection, &words))
        _exit(4);
    if (waits_for_more && fork() == 0) {
        close(connection);
        close(ready[1]);
        _exit(read(leave[0], &byte, 1) != 0);
    }
    if (!waits_for_more)
        close(fd);
    close(connection);
    /* The program has no child that it did not start. */
    if ((!waits_for_more && waitpid(-1, NULL, 0) >= 0) || write(ready[1], &byte, 1) != 1)
        _exit(5);
    pthread_join(thread, NULL);
    _exit(0);
}

/* Returns what the peer reads until the connection ends: that is when rank and guardian have. */
static ssize_t end_rank(bool kill_it, struct spr_frame *words)
{
    const struct timeval patience = {.tv_sec = 60};
    int ends[2], status;
    char byte = 0;
    ssize_t n;
    pid_t pid;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(leave), 0);
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        run_rank(ends[1]);
    }
    close(ends[1]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    if (kill_it)
        kill(pid, SIGKILL);
    else
        assert_int_equal(write(leave[1], &byte, 1), 1);
    assert_int_equal(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    n = recv(ends[0], words, sizeof *words, MSG_WAITALL);
    assert_int_equal(recv(ends[0], &byte, 1, 0), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, kill_it ? SIGKILL : 0);
    close(ends[0]);
    close(ready[0]);
    close(leave[0]);
    close(leave[1]);
    return n;
}

static void the_last_words_of_a_killed_rank_are_said(void **state)
{
    struct spr_frame words;
    const char *why;

    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(end_rank(true, &words), sizeof words);
        assert_int_equal(spr_frame_check(&words, &why), SPR_OK);
        assert_int_equal(words.arg, RANK);
    }
}

static void a_connection_that_does_not_come_up_delays_nobody(void **state)
{
    struct spr_frame words;

    (void)state;
    waits_for_more = true;
    assert_int_equal(end_rank(true, &words), sizeof words);
    assert_int_equal(words.arg, RANK);
    waits_for_more = false;
}

static void nothing_is_said_of_a_rank_that_leaves(void **state)
{
    struct spr_frame words;

    (void)state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(end_rank(false, &words), 0);
}

static void expect_none(const char *program, spr_status status, const char *text)
{
    struct spr_error error = {0};
    int fd = -1;

    assert_int_equal(spr_guardian_start(program, RANK, STDIN_FILENO, &fd, &error), status);
    assert_non_null(strstr(error.text, text));
    assert_int_equal(fd, -1);
}

static void a_program_that_is_not_there_is_named(void **state)
{
    (void)state;
    expect_none("/nonexistent/guardian", SPR_ERR_NOT_FOUND, "/nonexistent/guardian");
}

static void a_program_that_fails_is_no_guardian(void **state)
{
    (void)state;
    expect_none("/bin/false", SPR_ERR_SYSTEM, "/bin/false ended at once, with status 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_words_of_a_killed_rank_are_said),
        cmocka_unit_test(a_connection_that_does_not_come_up_delays_nobody),
        cmocka_unit_test(nothing_is_said_of_a_rank_that_leaves),
        cmocka_unit_test(a_program_that_is_not_there_is_named),
        cmocka_unit_test(a_program_that_fails_is_no_guardian),
    };
    const char *build = getenv("top_builddir");

    snprintf(path, sizeof path, "%s/tools/sparring-guardian", build ? build : ".");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
