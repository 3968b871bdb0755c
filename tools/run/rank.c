/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/run/job.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/run/parse.h"
#include "tools/run/recorder.h"

/* What a child reports through a pipe when it does not get to run its program. */
struct report {
    int step;
    int error;
};

/* The ends of pipes that a child takes; -1 = none. */
struct ends {
    int input;
    int output;
    int error;
    int report;
};

/* A step of the child between fork and exec. False with errno set. */
typedef bool step_fn(const struct job *job, const struct rank *rank, const struct ends *ends);

static bool enter_host(const struct job *job, const struct rank *rank, const struct ends *ends)
{
    (void)ends;
    return job->network.count == 0 || emulated_host_enter(&job->network.hosts[rank->host]);
}

static bool connect_standard(const struct job *job, const struct rank *rank,
                             const struct ends *ends)
{
    int input = ends->input;
    if (input < 0 && rank->index == 0 && !job->started)
        input = job->stdin_fd >= 0 ? job->stdin_fd : STDIN_FILENO;
    if (input < 0)
        input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return input >= 0 && (input == STDIN_FILENO || dup2(input, STDIN_FILENO) >= 0) &&
           (ends->output < 0 || dup2(ends->output, STDOUT_FILENO) >= 0) &&
           (ends->error < 0 || dup2(ends->error, STDERR_FILENO) >= 0);
}

static bool bind_to_cpu(const struct job *job, const struct rank *rank, const struct ends *ends)
{
    (void)ends;
    cpu_set_t allowed;
    cpu_set_t one;
    if (!job->options->bind_to_cpu)
        return true;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return false;
    int skip = rank->index % CPU_COUNT(&allowed);
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &allowed) || skip-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

/* Moves a descriptor to the lowest number that the program will not find taken: shells know one
 * digit only. */
static int settle(int fd, const struct ends *ends)
{
    for (int number = STDERR_FILENO + 1; number < fd; number++) {
        int flags = fcntl(number, F_GETFD);
        if (number != ends->report && (flags < 0 || (flags & FD_CLOEXEC) != 0))
            return dup2(fd, number) == number && close(fd) == 0 ? number : -1;
    }
    return fd;
}

/* A sealed memory file of its own per rank, so that no rank moves the offset of another. */
static bool pass_secret(const struct job *job, const struct rank *rank, const struct ends *ends)
{
    if (rank->control_fd >= 0)
        return true;
#ifdef MFD_NOEXEC_SEAL
    int fd = memfd_create("sparring-secret", MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0)
        fd = memfd_create("sparring-secret", MFD_ALLOW_SEALING);
#else
    int fd = memfd_create("sparring-secret", MFD_ALLOW_SEALING);
#endif
    char text[16];
    fd = fd >= 0 ? settle(fd, ends) : -1;
    snprintf(text, sizeof text, "%d", fd);
    return fd >= 0 && write(fd, job->secret, SECRET_BYTES) == SECRET_BYTES &&
           lseek(fd, 0, SEEK_SET) == 0 &&
           fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0 &&
           setenv("SPARRING_SECRET_FD", text, 1) == 0;
}

/* Where there are several, all of them are to be used, unless the caller says otherwise. */
static bool name_links(const struct emulated_links *links)
{
    char names[16 * EMULATED_LINKS] = "eth0";
    for (int i = 1; i < links->count; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "+eth%d", i);
    return links->count < 2 || setenv("SPARRING_INTERFACE", names, 0) == 0;
}

/* What the library cannot find out: cables of namespaces do not know how they are shaped. */
static bool tell_rate(const struct emulated_links *links, int host)
{
    char text[32];
    uint64_t sum = 0;
    for (int i = 0; i < links->count; i++)
        sum += emulated_rate(links, host, i);
    snprintf(text, sizeof text, "%llubit", (unsigned long long)sum);
    return links->hosts < 2 || setenv("SPARRING_LINK_RATE", text, 0) == 0;
}

static bool set_environment(const struct job *job, const struct rank *rank, const struct ends *ends)
{
    (void)ends;
    static struct identity identity; /* putenv keeps pointers into it */
    if (rank->control_fd >= 0)
        return true;
    rank_identity(job, rank, &identity);
    bool set = unsetenv("SPARRING_SECRET_FILE") == 0;
    const char *recorder = recorder_directory();
    set = set && (recorder != NULL ? setenv("SPARRING_TRACE_DIR", recorder, 1)
                                   : unsetenv("SPARRING_TRACE_DIR")) == 0;
    for (size_t i = 0; i < job->options->environment_count; i++)
        set = set && putenv(job->options->environment[i]) == 0;
    set = set && name_links(&job->options->links) && tell_rate(&job->options->links, rank->host) &&
          unsetenv("SPARRING_JOIN") == 0;
    for (int i = 0; i < IDENTITY_COUNT; i++)
        set = set && (*identity.entries[i] == '\0' || putenv(identity.entries[i]) == 0);
    return set;
}

/* Is there a file of this name in any folder of PATH? A folder that may not be searched makes
 * execvp say "Permission denied" for a name that is nowhere. */
static bool is_in_path(const char *name)
{
    char path[4096];
    const char *folder = getenv("PATH");
    while (folder != NULL && *folder != '\0') {
        int length = (int)strcspn(folder, ":");
        snprintf(path, sizeof path, "%.*s/%s", length, folder, name);
        if (access(path, F_OK) == 0)
            return true;
        folder += length + (folder[length] == ':');
    }
    return false;
}

static bool run_program(const struct job *job, const struct rank *rank, const struct ends *ends)
{
    (void)ends;
    char **words = rank->control_fd >= 0 ? remote_command(job, rank) : job->options->program;
    if (words == NULL)
        return false;
    sigaction(SIGPIPE, &job->original_pipe_action, NULL);
    sigprocmask(SIG_SETMASK, &job->original_mask, NULL);
    execvp(words[0], words);
    int saved = errno;
    if (saved == EACCES && strchr(words[0], '/') == NULL && !is_in_path(words[0]))
        saved = ENOENT;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL); /* the report goes out whole */
    errno = saved;
    return false;
}

static const struct {
    step_fn *run;
    const char *name;
} steps[] = {
    {enter_host, "enter its emulated host"},
    {connect_standard, "connect its standard input and output"},
    {bind_to_cpu, "bind to a CPU"},
    {set_environment, "set its environment"},
    {pass_secret, "hand over the secret"},
    {run_program, "run"},
};

enum { STEP_COUNT = sizeof steps / sizeof steps[0] };

static void child(const struct job *job, const struct rank *rank, const struct ends *ends,
                  pid_t keeper)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        _exit(1);
    struct report report = {0};
    while (report.step < STEP_COUNT && steps[report.step].run(job, rank, ends))
        report.step++;
    report.error = errno;
    (void)!write(ends->report, &report, sizeof report);
    _exit(127);
}

/* Says why a rank did not start, and sets the exit code as shells do. */
static void refuse(struct job *job, const struct rank *rank, const struct report *report)
{
    const char *program =
        rank->control_fd >= 0 ? remote_shell(job->options) : job->options->program[0];
    job->code = 1;
    errno = report->error;
    if (report->step < STEP_COUNT - 1) {
        say_errno("rank %d cannot %s", rank->index, steps[report->step].name);
        return;
    }
    say_errno("cannot run '%s'", program);
    job->code = report->error == ENOENT || report->error == ENOTDIR ? 127 : 126;
}

/* A pipe whose end on this side does not block. */
static bool open_pipe(int *mine, int *theirs, bool i_write)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return false;
    *mine = fds[i_write];
    *theirs = fds[!i_write];
    return fcntl(*mine, F_SETFL, O_NONBLOCK) == 0;
}

/* The remote script has to fit into the pipe, so that writing it waits for nobody. */
static bool open_control(const struct job *job, struct rank *rank, int *theirs)
{
    char *text = NULL;
    size_t length = 0;
    if (!open_pipe(&rank->control_fd, theirs, true) || !remote_script(job, rank, &text, &length))
        return false;
    bool fits = length <= 64 * 1024 - 4096 ||
                fcntl(rank->control_fd, F_SETPIPE_SZ, (int)length + 4096) >= 0;
    bool written = fits && write(rank->control_fd, text, length) == (ssize_t)length;
    explicit_bzero(text, length); /* it has the secret in it */
    free(text);
    return written;
}

static bool open_ends(const struct job *job, struct rank *rank, struct ends *ends)
{
    int fd;
    if (job->options->machines != NULL && !open_control(job, rank, &ends->input))
        return false;
    if (!job->options->tag)
        return true;
    return open_pipe(&fd, &ends->output, false) &&
           stream_open(&rank->output, fd, rank->index, &output_sink) &&
           open_pipe(&fd, &ends->error, false) &&
           stream_open(&rank->error, fd, rank->index, &error_sink);
}

static void close_ends(const struct ends *ends)
{
    const int fds[] = {ends->input, ends->output, ends->error, ends->report};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

bool rank_start(struct job *job, struct rank *rank)
{
    struct ends ends = {-1, -1, -1, -1};
    int report_fd = -1;
    struct report report = {0};
    pid_t keeper = getpid();
    pid_t pid = -1;
    if (open_ends(job, rank, &ends) && open_pipe(&report_fd, &ends.report, false) &&
        fcntl(report_fd, F_SETFL, 0) == 0)
        pid = fork();
    if (pid == 0)
        child(job, rank, &ends, keeper);
    int saved = errno;
    close_ends(&ends);
    errno = saved;
    if (pid < 0) {
        say_errno("cannot start rank %d", rank->index);
        job->code = 1;
        return false;
    }
    setpgid(pid, pid);
    rank->pid = pid;
    job->alive++;
    ssize_t got = read(report_fd, &report, sizeof report);
    close(report_fd);
    if (got != sizeof report)
        return true;
    refuse(job, rank, &report);
    return false;
}

void rank_name(const struct job *job, const struct rank *rank, pid_t pid, char *text, size_t room)
{
    if (job->options->machines != NULL)
        snprintf(text, room, "rank %d (pid %d, host %s)", rank->index, (int)pid,
                 job->options->machines[rank->host].name);
    else
        snprintf(text, room, "rank %d (pid %d)", rank->index, (int)pid);
}
