/* SPDX-License-Identifier: BSD-2-Clause
 *
 *   RUN -- a rank fails --> GRACE -- 500 ms --> TERM -- 2 s --> (HANGUP -- 500 ms -->) KILL
 *    |   (no restart left,    |                   |                |                     |
 *    |    see restart.c)      |                   |                |                     |
 *    +--- all ranks ended -->---------------------+                |                     |
 *    +------------------------+-------------------+----------------+---------------------+--> DONE
 *
 * DONE is entered from anywhere as soon as there is no process left to wait for: ranks and all that
 * they started, since orphans become children of the keeper.
 */
#include "tools/run/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/run/recorder.h"
#include "tools/run/tree.h"

enum {
    GRACE_MS = 500,
    TERM_MS = 2000,
    HANGUP_MS = 500,
    KILL_MS = 5000,    /* then a process is beyond reach, in the kernel */
    KILL_AGAIN_MS = 20 /* for processes that were forked meanwhile */
};

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* How much slower than a plain machine this one is meant to be (sanitizers, emulators). */
static double time_factor(void)
{
    const char *text = getenv("SPARRING_TIME_FACTOR");
    double factor = text != NULL ? strtod(text, NULL) : 1;
    return factor >= 0.01 && factor <= 1000 ? factor : 1;
}

/* Sends a signal to what remote shells started. */
static void signal_remote(const struct job *job, const char *name)
{
    for (int i = 0; i < job->count; i++) {
        if (job->ranks[i].control_fd >= 0 && job->ranks[i].pid > 0)
            dprintf(job->ranks[i].control_fd, "%s\n", name);
    }
}

static void hang_up(struct job *job)
{
    for (int i = 0; i < job->count; i++) {
        if (job->ranks[i].control_fd >= 0)
            close(job->ranks[i].control_fd);
        job->ranks[i].control_fd = -1;
    }
}

void job_enter(struct job *job, enum phase phase)
{
    bool remote = job->options->machines != NULL;
    int64_t now = now_ms();
    if (phase <= job->phase)
        return;
    if (phase == PHASE_KILL && remote && job->phase < PHASE_HANGUP)
        phase = PHASE_HANGUP;
    job->phase = phase;
    switch (phase) {
    case PHASE_RUN:
    case PHASE_DONE:
        job->deadline_ms = 0;
        break;
    case PHASE_GRACE:
        recorder_look(job, false);
        job->deadline_ms = now + (int64_t)(GRACE_MS * time_factor());
        break;
    case PHASE_TERM:
        job->deadline_ms = now + TERM_MS;
        if (remote) {
            signal_remote(job, "TERM");
        } else {
            tree_signal(SIGTERM);
            tree_signal(SIGCONT); /* a stopped process ends too */
        }
        break;
    case PHASE_HANGUP:
        job->deadline_ms = now + HANGUP_MS;
        hang_up(job);
        break;
    case PHASE_KILL:
        job->deadline_ms = now + KILL_MS;
        job->next_kill_ms = now;
        break;
    }
}

static bool was_killed(const struct rank *rank, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;

    /* A remote shell tells it by its code. */
    return WIFSIGNALED(status) || (rank->control_fd >= 0 && code > 128 && code < 128 + SIGRTMIN);
}

static void report_failure(struct job *job, const struct rank *rank, pid_t pid, int status)
{
    char name[320];
    rank_name(job, rank, pid, name, sizeof name);
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    job->failed = true;
    if (job->code == 0)
        job->code = code;
    if (was_killed(rank, status))
        say("%s was killed by signal %d (%s%s)", name, code - 128, strsignal(code - 128),
            WIFSIGNALED(status) && WCOREDUMP(status) ? ", core dumped" : "");
    else
        say("%s exited with code %d", name, code);
}

static void rank_ended(struct job *job, struct rank *rank, int status)
{
    pid_t pid = rank->pid;
    rank->pid = 0;
    job->alive--;
    if (restart_rank(job, rank, pid, status))
        return;
    if (job->phase <= PHASE_GRACE && job->interrupts == 0) /* later ones are our doing */
        recorder_ended(rank, status);
    if (status != 0 && !job->failed && job->phase == PHASE_RUN) {
        stream_read(&rank->output); /* its last words come before ours */
        stream_read(&rank->error);
        report_failure(job, rank, pid, status);
        job_enter(job, PHASE_GRACE);
    }
    if (status == 0)
        restart_check(job);
    if (rank->control_fd >= 0)
        close(rank->control_fd);
    rank->control_fd = -1;
}

/* The kernel does not say in which order they ended. Those that ended well are nobody's failure,
 * and are not to be started again with others. Who misses a rank that was killed fails soon after
 * it. */
static int order(const struct rank *rank)
{
    return rank->status == 0 ? 0 : was_killed(rank, rank->status) ? 1 : 2;
}

static void ranks_ended(struct job *job)
{
    for (int turn = 0; turn <= 2; turn++)
        for (int i = 0; i < job->count; i++) {
            struct rank *rank = &job->ranks[i];
            if (!rank->ended || order(rank) != turn)
                continue;
            rank->ended = false;
            rank_ended(job, rank, rank->status);
        }
}

static bool nobody_is_left(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

void job_reap(struct job *job)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int i = 0; i < job->count; i++) {
            if (job->ranks[i].pid != pid)
                continue;
            job->ranks[i].ended = true;
            job->ranks[i].status = status;
        }
    }
    ranks_ended(job);
    if (nobody_is_left() && job->again)
        restart_all(job);
    else if (nobody_is_left())
        job_enter(job, PHASE_DONE);
    else if (job->alive == 0)
        job_enter(job, PHASE_TERM); /* only what ranks left behind is there */
}

void job_forward(struct job *job, int number)
{
    enum { PATIENCE = 3 };
    bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
    if (ends) {
        job->interrupts++;
        job->again = false;
        recorder_look(job, true);
    }
    if (ends && (job->interrupts >= PATIENCE || job->alive == 0)) {
        if (job->code == 0)
            job->code = 128 + number;
        if (job->phase == PHASE_DONE) /* nobody reads, and the user gave up */
            sinks_give_up();
        job_enter(job, PHASE_KILL);
        return;
    }
    if (job->options->machines != NULL) {
        signal_remote(job, signal_name(number));
        return;
    }
    for (int i = 0; i < job->count; i++) {
        if (job->ranks[i].pid > 0)
            kill(-job->ranks[i].pid, number);
    }
}

/* The kernel's word for what a process does. */
static const char *process_state(pid_t pid)
{
    char path[32];
    char state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        fclose(file);
    }
    return state == 'R'   ? "running"
           : state == 'S' ? "sleeping"
           : state == 'D' ? "waiting in the kernel"
           : state == 'T' ? "stopped"
           : state == 't' ? "stopped by a debugger"
                          : "in an unknown state";
}

static void report_timeout(struct job *job)
{
    for (int i = 0; i < job->count; i++) {
        char name[320];
        pid_t pid = job->ranks[i].pid;
        rank_name(job, &job->ranks[i], pid, name, sizeof name);
        if (pid > 0)
            say("timeout after %g s: %s is still alive (%s)", job->options->timeout_s, name,
                process_state(pid));
    }
    job->code = 124;
    recorder_look(job, true);
}

void job_tick(struct job *job)
{
    int64_t now = now_ms();
    if (job->phase == PHASE_KILL && now >= job->next_kill_ms) {
        tree_signal(SIGKILL);
        job->next_kill_ms = now + KILL_AGAIN_MS;
    }
    if (job->alone_ms != 0 && now >= job->alone_ms)
        restart_check_again(job);
    if (job->deadline_ms == 0 || now < job->deadline_ms)
        return;
    switch (job->phase) {
    case PHASE_RUN:
        report_timeout(job);
        job_enter(job, PHASE_TERM);
        break;
    case PHASE_GRACE:
        job_enter(job, PHASE_TERM);
        break;
    case PHASE_TERM:
    case PHASE_HANGUP:
        job_enter(job, PHASE_KILL);
        break;
    case PHASE_KILL:
        say("some processes do not go away, even killed; leaving them behind");
        job_enter(job, PHASE_DONE);
        break;
    case PHASE_DONE:
        break;
    }
}
