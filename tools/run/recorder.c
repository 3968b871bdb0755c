/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/run/recorder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/run/job.h"
#include "tools/trace/trace.h"

static struct recorder {
    char path[PATH_MAX]; /* "" = none */
    bool mine;           /* made up here */
    uint64_t seen_ns;    /* CLOCK_MONOTONIC of recorder_look; 0 = not yet */
    char *text;          /* lines of the file `ranks` */
    size_t length;
    FILE *lines;
} recorder;

/* A private directory where files are memory, if there is such a place. */
static void make_private(void)
{
    const char *const places[] = {getenv("XDG_RUNTIME_DIR"), "/dev/shm", "/tmp"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i] == NULL || places[i][0] != '/' || strlen(places[i]) > PATH_MAX / 2)
            continue;
        snprintf(recorder.path, sizeof recorder.path, "%s/sparring-XXXXXX", places[i]);
        recorder.mine = mkdtemp(recorder.path) != NULL;
        if (recorder.mine)
            return;
    }
    recorder.path[0] = '\0';
    say_errno("no place for the flight recorders of the ranks");
}

/* The one that was asked for; ranks may change their directory, so its name is absolute. */
static void use_named(const char *name)
{
    char *absolute;
    if (mkdir(name, 0700) != 0 && errno != EEXIST) {
        say_errno("no flight recorders: cannot make the directory %s", name);
        return;
    }
    absolute = realpath(name, NULL);
    if (absolute != NULL && strlen(absolute) < sizeof recorder.path)
        snprintf(recorder.path, sizeof recorder.path, "%s", absolute);
    else
        say_errno("no flight recorders: cannot use the directory %s", name);
    free(absolute);
}

void recorder_open(const struct options *options)
{
    const char *name = options->trace_directory;
    /* Inside a rank of another job it is where that one's recorders are. */
    if (name == NULL && getenv("SPARRING_JOB") == NULL)
        name = getenv("SPARRING_TRACE_DIR");
    if (name != NULL && strcmp(name, "none") == 0)
        return;
    if (name != NULL && *name != '\0')
        use_named(name);
    else if (options->machines == NULL) /* elsewhere the directory would not be there */
        make_private();
    if (recorder.path[0] != '\0')
        recorder.lines = open_memstream(&recorder.text, &recorder.length);
}

const char *recorder_directory(void) { return recorder.path[0] != '\0' ? recorder.path : NULL; }

static bool is_stopped(pid_t pid)
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
    return state == 'T' || state == 't';
}

void recorder_look(const struct job *job, bool ending)
{
    struct timespec now;
    if (recorder.lines == NULL || recorder.seen_ns != 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    recorder.seen_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    fprintf(recorder.lines, "%s %llu\n", ending ? "ended" : "failed",
            (unsigned long long)recorder.seen_ns);
    for (int i = 0; i < job->count; i++) {
        const struct rank *rank = &job->ranks[i];
        if (rank->pid > 0 && rank->control_fd < 0)
            fprintf(recorder.lines, "%d %s 0\n", i, is_stopped(rank->pid) ? "stopped" : "alive");
    }
}

void recorder_ended(const struct rank *rank, int wait_status)
{
    bool killed = WIFSIGNALED(wait_status);
    if (recorder.lines != NULL)
        fprintf(recorder.lines, "%d %s %d\n", rank->index, killed ? "killed" : "exited",
                killed ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status));
}

static void write_lines(void)
{
    int directory = open(recorder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return;
    unlinkat(directory, "ranks", 0); /* of an earlier job */
    int fd = openat(directory, "ranks", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        if (write(fd, recorder.text, recorder.length) != (ssize_t)recorder.length)
            unlinkat(directory, "ranks", 0);
        close(fd);
    }
    close(directory);
}

static bool is_trace(const char *name)
{
    size_t length = strlen(name);
    return length > 6 && strcmp(name + length - 6, ".trace") == 0;
}

/* Whose communicator was complete. */
struct survey {
    bool *of_rank; /* [count] */
    bool living;   /* one of a living process */
};

/* What a recorder says of the job; its file is removed if that is asked for. */
static enum recorder_state look_at(const struct job *job, const char *name, bool clear,
                                   struct survey *ready)
{
    struct spr_trace_header header;
    char path[PATH_MAX + NAME_MAX + 2];
    snprintf(path, sizeof path, "%s/%s", recorder.path, name);
    if (!is_trace(name) || !trace_read_header(path, &header) ||
        header.job != strtoull(job->id, NULL, 16))
        return RECORDER_NONE;
    if (clear)
        unlink(path);
    bool lives = trace_process(&header) != PROCESS_GONE;
    if (header.ready != 0 && header.rank >= 0 && header.rank < job->count)
        ready->of_rank[header.rank] = true;
    ready->living |= header.ready != 0 && lives;
    if (header.ready != 0 && (lives || header.ended != 0))
        return RECORDER_READY;
    return lives && header.ended == 0 ? RECORDER_NONE : RECORDER_LOST;
}

static enum recorder_state look_at_all(const struct job *job, bool clear, struct survey *ready)
{
    enum recorder_state state = RECORDER_NONE;
    DIR *directory = recorder.path[0] != '\0' ? opendir(recorder.path) : NULL;
    struct dirent *entry;
    if (directory == NULL)
        return RECORDER_UNKNOWN;
    while ((entry = readdir(directory)) != NULL) {
        enum recorder_state one = look_at(job, entry->d_name, clear, ready);
        state = one > state ? one : state;
    }
    closedir(directory);
    return state;
}

enum recorder_state recorder_state(const struct job *job)
{
    struct survey ready = {.of_rank = calloc((size_t)job->count, sizeof(bool))};
    enum recorder_state state = RECORDER_UNKNOWN;
    bool first = false;
    if (ready.of_rank != NULL)
        state = look_at_all(job, false, &ready);
    for (int i = 0; i < job->count; i++) {
        const struct rank *rank = &job->ranks[i];
        if (rank->pid <= 0 || rank->joins)
            continue;
        first = true;
        if (state == RECORDER_READY && !ready.of_rank[i])
            state = RECORDER_LOST;
    }
    free(ready.of_rank);
    return state == RECORDER_READY && !first && !ready.living ? RECORDER_OVER : state;
}

void recorder_clear(const struct job *job)
{
    struct survey ready = {.of_rank = calloc((size_t)job->count, sizeof(bool))};
    if (ready.of_rank != NULL)
        look_at_all(job, true, &ready);
    free(ready.of_rank);
}

/* What ranks and write_lines() put there, and nothing else. */
static void remove_all(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, "ranks") == 0 || strncmp(entry->d_name, "meet", 4) == 0 ||
            is_trace(entry->d_name))
            unlinkat(dirfd(directory), entry->d_name, 0);
    }
    if (directory != NULL)
        closedir(directory);
    rmdir(path);
}

/* Its keeper was killed: there are traces, and all are of processes of this host that are gone. */
static bool is_forsaken(const char *directory)
{
    struct spr_trace_header header;
    char path[PATH_MAX + NAME_MAX + 2], host[sizeof header.host] = "";
    DIR *opened = opendir(directory);
    struct dirent *entry;
    int traces = 0, gone = 0;
    gethostname(host, sizeof host - 1);
    while (opened != NULL && (entry = readdir(opened)) != NULL) {
        if (!is_trace(entry->d_name))
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        traces++;
        gone += trace_read_header(path, &header) && strcmp(header.host, host) == 0 &&
                trace_process(&header) == PROCESS_GONE;
    }
    if (opened != NULL)
        closedir(opened);
    return traces > 0 && gone == traces;
}

/* Is it of a job of this user that has failed, and when was that? Those of jobs that run have no
 * file `ranks` yet. */
static bool is_kept(const char *directory, int64_t *since_ns)
{
    char path[PATH_MAX + 8];
    struct stat st;
    snprintf(path, sizeof path, "%s/ranks", directory);
    /* Nothing is opened in a directory of somebody else: it might be a pipe. */
    if (lstat(directory, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return false;
    if ((lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) &&
        (lstat(directory, &st) != 0 || !is_forsaken(directory)))
        return false;
    *since_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return st.st_uid == geteuid();
}

/* Of the private directories of failed jobs, the user's newest ones stay. */
static void remove_oldest(void)
{
    enum { KEPT = 16 };
    char place[PATH_MAX], path[PATH_MAX], oldest[PATH_MAX];
    snprintf(place, sizeof place, "%s", recorder.path);
    *strrchr(place, '/') = '\0';
    for (int kept = KEPT + 1; kept > KEPT;) {
        DIR *directory = opendir(place);
        struct dirent *entry;
        int64_t since = 0, ns;
        kept = 0;
        while (directory != NULL && (entry = readdir(directory)) != NULL) {
            if (strncmp(entry->d_name, "sparring-", 9) != 0 || strlen(entry->d_name) != 15 ||
                snprintf(path, sizeof path, "%.2000s/%s", place, entry->d_name) < 0 ||
                !is_kept(path, &ns))
                continue;
            if (kept++ == 0 || ns < since) {
                since = ns;
                memcpy(oldest, path, sizeof oldest);
            }
        }
        if (directory != NULL)
            closedir(directory);
        if (kept > KEPT) {
            remove_all(oldest);
            if (access(oldest, F_OK) == 0)
                return; /* it has something else in it */
        }
    }
}

/* A directory with a name may hold what other jobs have left. */
static bool is_of(const struct trace_set *set, const struct job *job)
{
    int r = 0;
    while (r < set->size - 1 && set->ranks[r] == NULL)
        r++;
    return set->ranks[r] != NULL && set->ranks[r]->header.job == strtoull(job->id, NULL, 16);
}

/* True when there is something worth keeping. */
static bool explain(const struct job *job)
{
    struct trace_set set;
    char line[TRACE_TEXT_BYTES];
    if (!trace_set_read(&set, recorder.path, line, sizeof line))
        return false; /* no rank came as far as a communicator */
    bool ours = is_of(&set, job);
    bool found = ours && trace_verdict(&set, line, NULL);
    trace_set_free(&set);
    if (!ours)
        return false; /* likewise */
    if (!found && job->interrupts > 0)
        return false; /* somebody ended a job that was well */
    if (found)
        say("verdict: %s", line);
    say("the last events of the ranks are in %s, see sparring-trace(1)", recorder.path);
    return true;
}

void recorder_abandon(void)
{
    if (recorder.path[0] == '\0')
        return;
    /* Empty when no rank came as far as a communicator. */
    if (recorder.mine && rmdir(recorder.path) == 0)
        return;
    say("the last events of the ranks are in %s, see sparring-trace(1)", recorder.path);
}

void recorder_close(const struct job *job)
{
    bool failed = job->failed || job->code != 0;
    if (recorder.lines == NULL)
        return;
    fclose(recorder.lines);
    recorder.lines = NULL;
    if (failed)
        write_lines();
    bool keep = failed && explain(job);
    if (!keep && recorder.mine)
        remove_all(recorder.path);
    else if (recorder.mine)
        remove_oldest();
    free(recorder.text);
    recorder.text = NULL;
}
