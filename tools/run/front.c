/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/run/front.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/run/job.h"
#include "tools/run/recorder.h"
#include "tools/run/tree.h"

struct front {
    pid_t keeper;
    int signal_fd;
    int keeper_fd; /* the keeper sees its other end close when this process is gone */
    int input_fd;  /* pipe to rank 0; -1 = rank 0 has the standard input itself */
    char input[4096];
    size_t input_length; /* bytes that the pipe has not taken yet */
};

/* The terminal's input cannot simply be inherited: ranks are in process groups of their own, and
 * only the foreground group may read. */
static void relay_input(struct front *front, bool readable)
{
    ssize_t got = 1;
    if (readable && front->input_length == 0 && tcgetpgrp(STDIN_FILENO) == getpgrp()) {
        got = read(STDIN_FILENO, front->input, sizeof front->input);
        if (got > 0)
            front->input_length = (size_t)got;
        else if (got < 0 && (errno == EINTR || errno == EAGAIN))
            got = 1;
    }
    if (front->input_length > 0) {
        ssize_t put = write(front->input_fd, front->input, front->input_length);
        if (put > 0) {
            front->input_length -= (size_t)put;
            memmove(front->input, front->input + put, front->input_length);
        } else if (put < 0 && errno != EAGAIN && errno != EINTR) {
            got = 0;
        }
    }
    if (got <= 0) { /* end of input, or rank 0 does not read any more */
        close(front->input_fd);
        front->input_fd = -1;
    }
}

static void take_signals(struct front *front)
{
    struct signalfd_siginfo info;
    while (read(front->signal_fd, &info, sizeof info) == sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD)
            continue;
        kill(front->keeper, number);
        if (number == SIGTSTP)
            raise(SIGSTOP); /* so that the shell sees the job stop */
    }
}

/* Waits for the keeper, returns its wait status. */
static int watch(struct front *front)
{
    int status;
    while (waitpid(front->keeper, &status, WNOHANG) != front->keeper) {
        bool background = front->input_fd >= 0 && tcgetpgrp(STDIN_FILENO) != getpgrp();
        bool reading = front->input_fd >= 0 && front->input_length == 0 && !background;
        struct pollfd slots[] = {
            {.fd = front->signal_fd, .events = POLLIN},
            {.fd = reading ? STDIN_FILENO : -1, .events = POLLIN},
            {.fd = front->input_length > 0 ? front->input_fd : -1, .events = POLLOUT},
        };
        /* Nothing tells that this process got the terminal back, so look now and then. */
        if (poll(slots, 3, background ? 500 : -1) < 0)
            continue;
        if (front->input_fd >= 0 && (slots[1].revents != 0 || slots[2].revents != 0))
            relay_input(front, slots[1].revents != 0);
        take_signals(front);
    }
    return status;
}

/* The keeper was killed: the ranks die with it, and what they started is now below this process. */
static void clear_up(void)
{
    int64_t end = now_ms() + 5000;
    while (now_ms() < end) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0 && errno == ECHILD)
            return;
        tree_signal(SIGKILL);
        poll(NULL, 0, 10);
    }
}

/* The keeper's side of the fork. */
static int keep(const struct options *options, const struct front *front, int front_fd,
                int stdin_fd, const sigset_t *mask, const struct sigaction *pipe_action)
{
    struct job job = {.options = options,
                      .front_fd = front_fd,
                      .stdin_fd = stdin_fd,
                      .original_mask = *mask,
                      .original_pipe_action = *pipe_action};
    close(front->keeper_fd);
    if (front->input_fd >= 0)
        close(front->input_fd);
    setpgid(0, 0); /* the terminal's signals come through the front, once */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "sparring-keeper");
    return job_run(&job);
}

static bool open_pipes(struct front *front, int *front_fd, int *stdin_fd)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return false;
    *front_fd = fds[0];
    front->keeper_fd = fds[1];
    if (!isatty(STDIN_FILENO))
        return true;
    if (pipe2(fds, O_CLOEXEC) != 0)
        return false;
    *stdin_fd = fds[0];
    front->input_fd = fds[1];
    return fcntl(front->input_fd, F_SETFL, O_NONBLOCK) == 0;
}

int front_run(const struct options *options)
{
    struct front front = {.input_fd = -1};
    int front_fd = -1;
    int stdin_fd = -1;
    sigset_t signals;
    sigset_t blocked;
    sigset_t mask;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction pipe_action;
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    sigaction(SIGPIPE, &ignore, &pipe_action);
    recorder_open(options);
    watched_signals(&signals);
    blocked = signals;
    sigaddset(&blocked,
              SIGTTOU); /* a background group may write to a terminal when it is blocked */
    sigprocmask(SIG_BLOCK, &blocked, &mask);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    front.signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (front.signal_fd < 0 || !open_pipes(&front, &front_fd, &stdin_fd) ||
        (front.keeper = fork()) < 0) {
        say_errno("cannot start");
        return 1;
    }
    if (front.keeper == 0)
        _exit(keep(options, &front, front_fd, stdin_fd, &mask, &pipe_action));
    setpgid(front.keeper, front.keeper);
    close(front_fd);
    if (stdin_fd >= 0)
        close(stdin_fd);
    int status = watch(&front);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    say("the keeper of the ranks (pid %d) was killed by signal %d (%s)", (int)front.keeper,
        WTERMSIG(status), strsignal(WTERMSIG(status)));
    clear_up();
    recorder_abandon();
    say_flush();
    return 128 + WTERMSIG(status);
}
