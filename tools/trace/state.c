/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How the processes of the ranks are: as sparring-run wrote it down when the first of them failed,
 * else as /proc shows them now.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/trace/trace.h"

static const char *const kind_names[] = {
    [PROCESS_UNKNOWN] = "unknown", [PROCESS_ALIVE] = "alive",   [PROCESS_STOPPED] = "stopped",
    [PROCESS_EXITED] = "exited",   [PROCESS_KILLED] = "killed", [PROCESS_GONE] = "gone",
};

void process_text(const struct process *process, char *text, size_t bytes)
{
    switch (process->kind) {
    case PROCESS_ALIVE:
        snprintf(text, bytes, "was alive");
        break;
    case PROCESS_STOPPED:
        snprintf(text, bytes, "was stopped");
        break;
    case PROCESS_EXITED:
        snprintf(text, bytes, "exited with code %d", process->number);
        break;
    case PROCESS_KILLED:
        snprintf(text, bytes, "was killed by signal %d (%s)", process->number,
                 strsignal(process->number));
        break;
    case PROCESS_GONE:
        snprintf(text, bytes, "is gone");
        break;
    default:
        snprintf(text, bytes, "is in an unknown state");
        break;
    }
}

/* Lines "RANK WHAT NUMBER"; the last one of a rank counts. */
static bool read_watched(struct trace_set *set, const char *directory)
{
    char path[4096], line[128], what[16];
    struct stat st;
    unsigned long long seen;
    int fd, rank, number;
    FILE *file;

    snprintf(path, sizeof path, "%s/ranks", directory);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return false;
    file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (!file) {
        close(fd);
        return false;
    }
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%15s %llu", what, &seen) == 2 &&
            (strcmp(what, "failed") == 0 || strcmp(what, "ended") == 0)) {
            set->seen_ns = seen;
            set->ended = *what == 'e';
        }
        if (sscanf(line, "%d %15s %d", &rank, what, &number) != 3 || rank < 0 || rank >= set->size)
            continue;
        for (int k = 0; k <= PROCESS_GONE; k++)
            if (strcmp(what, kind_names[k]) == 0)
                set->processes[rank] = (struct process){(enum process_kind)k, number};
    }
    fclose(file);
    return true;
}

static void read_line(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, bytes - 1) : 0;

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
}

enum process_kind trace_process(const struct spr_trace_header *h)
{
    char path[64], text[1024], state = 0;
    unsigned long long start = 0;
    const char *rest;

    snprintf(path, sizeof path, "/proc/%u/stat", h->pid);
    read_line(path, text, sizeof text);
    rest = strrchr(text, ')');
    if (!rest ||
        sscanf(rest + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
               "%*d %llu",
               &state, &start) != 2 ||
        start != h->process_start || state == 'Z' || state == 'X')
        return PROCESS_GONE;
    return state == 'T' || state == 't' ? PROCESS_STOPPED : PROCESS_ALIVE;
}

void trace_processes(struct trace_set *set, const char *directory)
{
    char boot_id[40], host[64] = "";

    set->watched = directory && read_watched(set, directory);
    if (set->watched)
        return;
    read_line("/proc/sys/kernel/random/boot_id", boot_id, sizeof boot_id);
    boot_id[strcspn(boot_id, "\n")] = '\0';
    gethostname(host, sizeof host - 1);
    for (int r = 0; r < set->size; r++) {
        const struct trace *t = set->ranks[r];
        if (t && strcmp(t->header.boot_id, boot_id) == 0 && strcmp(t->header.host, host) == 0)
            set->processes[r].kind = trace_process(&t->header);
    }
}
