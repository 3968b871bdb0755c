/* SPDX-License-Identifier: BSD-2-Clause
 *
 * --restart: what becomes of a rank that failed depends on how far the job has come with its
 * communicator, which the recorders of the ranks tell. "All" are those that were not started again
 * to join: the others live without it until they are taken in.
 *
 *   all that live have it complete   the failed one joins it: SPARRING_JOIN
 *   nobody who is gone had begun     it starts again as if nothing had been
 *   one is gone that had begun       who lives cannot complete it: they are killed, and all that
 *                                    had not ended start again; nothing was summed without them
 *   nobody lives who has it          nothing: there is nobody whom it could join; nor is it waited
 *                                    for when the last one ends that it was to join
 *   there are no recorders           as if it were complete
 */
#include <string.h>
#include <sys/wait.h>

#include "tools/run/job.h"
#include "tools/run/recorder.h"

/* How it ended, and what comes now. */
static void report(const struct job *job, const struct rank *rank, pid_t pid, int status,
                   const char *next)
{
    char name[320];
    rank_name(job, rank, pid, name, sizeof name);
    if (WIFSIGNALED(status))
        say("%s was killed by signal %d (%s): %s, %d of %d", name, WTERMSIG(status),
            strsignal(WTERMSIG(status)), next, rank->restarts, job->options->restarts);
    else
        say("%s exited with code %d: %s, %d of %d", name, WEXITSTATUS(status), next, rank->restarts,
            job->options->restarts);
}

static int exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Its last words come before ours. */
static void take_output(struct rank *rank)
{
    stream_read(&rank->output);
    stream_read(&rank->error);
    stream_close(&rank->output);
    stream_close(&rank->error);
}

bool restart_rank(struct job *job, struct rank *rank, pid_t pid, int status)
{
    if (status == 0 || job->phase != PHASE_RUN || job->interrupts > 0 || job->failed ||
        rank->restarts >= job->options->restarts)
        return false;
    enum recorder_state state = recorder_state(job);
    if (state == RECORDER_OVER)
        return false;
    take_output(rank);
    rank->restarts++;
    rank->lost_by = exit_code(status);
    rank->again = state == RECORDER_LOST;
    rank->joins = state == RECORDER_READY || state == RECORDER_UNKNOWN;
    if (state != RECORDER_LOST) {
        report(job, rank, pid, status, "started again");
        return rank_start(job, rank);
    }
    report(job, rank, pid, status,
           "others cannot complete their communicator, all ranks are started again");
    for (int i = 0; i < job->count; i++)
        job->ranks[i].again = job->ranks[i].again || job->ranks[i].pid > 0;
    job->again = job->failed = true;
    job->code = exit_code(status);
    job_enter(job, PHASE_KILL);
    return true;
}

/* Was started again to join, and runs. */
static bool is_joining(const struct rank *rank)
{
    siginfo_t info = {0};
    return rank->joins && rank->pid > 0 &&
           waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
}

/* Ranks of which none can come to anything. First the recorders: who has ended since is not alone.
 */
static bool are_alone(const struct job *job)
{
    bool joining = false;
    if (job->phase != PHASE_RUN || job->failed || recorder_state(job) != RECORDER_OVER)
        return false;
    for (int i = 0; i < job->count; i++)
        joining = joining || is_joining(&job->ranks[i]);
    return joining;
}

void restart_check(struct job *job)
{
    enum { PATIENCE_MS = 2000 };
    if (job->options->restarts > 0 && are_alone(job))
        job->alone_ms = now_ms() + PATIENCE_MS;
}

void restart_check_again(struct job *job)
{
    job->alone_ms = 0;
    if (!are_alone(job))
        return;
    for (int i = 0; i < job->count; i++) {
        const struct rank *rank = &job->ranks[i];
        char name[320];
        if (!is_joining(rank))
            continue;
        rank_name(job, rank, rank->pid, name, sizeof name);
        say("%s has nobody left to join: the others have ended", name);
        job->code = rank->lost_by;
    }
    job->failed = true;
    job_enter(job, PHASE_GRACE);
}

void restart_all(struct job *job)
{
    job->again = job->failed = false;
    job->code = 0;
    job->phase = PHASE_RUN;
    job->deadline_ms = job->timeout_ms;
    recorder_clear(job);
    for (int i = 0; i < job->count; i++) {
        struct rank *rank = &job->ranks[i];
        if (!rank->again)
            continue;
        take_output(rank);
        rank->again = rank->joins = false;
        if (!rank_start(job, rank)) {
            job->failed = true;
            job_enter(job, PHASE_KILL);
            return;
        }
    }
}
