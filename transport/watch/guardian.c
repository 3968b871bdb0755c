/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/watch/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Above the numbers that it is to have in the child. */
static int out_of_the_way(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, SPR_GUARDIAN_SOCKET + 1); }

static int spawn(const char *path, int rank, int board, int socket, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    char number[16];
    char *const argv[] = {"sparring-guardian", number, NULL}, *const env[] = {NULL};
    int rc;

    snprintf(number, sizeof number, "%d", rank);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&files, board, SPR_GUARDIAN_BOARD);
    posix_spawn_file_actions_adddup2(&files, socket, SPR_GUARDIAN_SOCKET);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    /* A session of its own: what is sent to the job's processes does not reach it. */
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    rc = posix_spawn(pid, path, &files, &attr, argv, env);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return rc;
}

spr_status spr_guardian_start(const char *path, int rank, int board_fd, int *fd,
                              struct spr_error *error)
{
    int ends[2], board, socket, end = 0, rc = ENFILE;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return spr_error_errno(error, SPR_ERR_SYSTEM, rank, errno, "socketpair");
    board = out_of_the_way(board_fd);
    socket = out_of_the_way(ends[1]);
    if (board >= 0 && socket >= 0)
        rc = spawn(path, rank, board, socket, &pid);
    if (board >= 0)
        close(board);
    if (socket >= 0)
        close(socket);
    close(ends[1]);
    if (rc) {
        close(ends[0]);
        return spr_error_errno(error, rc == ENOENT ? SPR_ERR_NOT_FOUND : SPR_ERR_SYSTEM, rank, rc,
                               "start %s", path);
    }
    /* The one that was started ends at once, its child is the guardian. Where the program ignores
     * SIGCHLD, nobody learns how it ended. */
    while (waitpid(pid, &end, 0) < 0 && errno == EINTR)
        ;
    if (end) {
        close(ends[0]);
        return spr_error_set(error, SPR_ERR_SYSTEM, rank, "%s ended at once, with %s %d", path,
                             WIFEXITED(end) ? "status" : "signal",
                             WIFEXITED(end) ? WEXITSTATUS(end) : WTERMSIG(end));
    }
    *fd = ends[0];
    return SPR_OK;
}

bool spr_guardian_give(int fd, int connection, const struct spr_frame *last_words)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct spr_frame frame = *last_words;
    struct iovec part = {.iov_base = &frame, .iov_len = sizeof frame};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);

    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof connection);
    memcpy(CMSG_DATA(h), &connection, sizeof connection);
    return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof frame;
}
