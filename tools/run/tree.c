/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/run/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct process {
    pid_t pid;
    pid_t parent;
    unsigned long long start; /* clock ticks since boot: tells a reused pid from the one seen */
    bool below;               /* below this process */
};

/* Reads one line of /proc/PID/stat. False when the process is gone. */
static bool read_process(pid_t pid, struct process *process)
{
    char path[32];
    char text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
    int parent;
    unsigned long long start;
    if (rest == NULL || sscanf(rest + 1,
                               " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d"
                               " %*d %*d %*d %llu",
                               &parent, &start) != 2)
        return false;
    *process = (struct process){.pid = pid, .parent = parent, .start = start};
    return true;
}

/* All processes that /proc shows. Returns their number; *list is allocated. */
static size_t read_all(struct process **list)
{
    size_t count = 0;
    size_t room = 0;
    DIR *directory = opendir("/proc");
    struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        if (count == room) {
            size_t more = room == 0 ? 256 : 2 * room;
            struct process *grown = realloc(*list, more * sizeof *grown);
            if (grown == NULL)
                break;
            *list = grown;
            room = more;
        }
        count += read_process((pid_t)strtol(entry->d_name, NULL, 10), &(*list)[count]);
    }
    if (directory != NULL)
        closedir(directory);
    return count;
}

static int compare_pids(const void *left, const void *right)
{
    const struct process *a = left;
    const struct process *b = right;
    return (a->pid > b->pid) - (a->pid < b->pid);
}

static void mark_below(struct process *list, size_t count)
{
    pid_t self = getpid();
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < count; i++) {
            if (list[i].below)
                continue;
            struct process key = {.pid = list[i].parent};
            const struct process *parent = bsearch(&key, list, count, sizeof key, compare_pids);
            list[i].below = list[i].parent == self || (parent != NULL && parent->below);
            changed = changed || list[i].below;
        }
    }
}

/* By pidfd, and only if the process is still the one that was seen. */
static bool signal_one(const struct process *seen, int signal)
{
    struct process now;
    int fd = (int)syscall(SYS_pidfd_open, seen->pid, 0);
    if (fd < 0)
        return false;
    bool sent = read_process(seen->pid, &now) && now.start == seen->start &&
                syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0) == 0;
    close(fd);
    return sent;
}

int tree_signal(int signal)
{
    struct process *list = NULL;
    size_t count = read_all(&list);
    int sent = 0;
    if (list == NULL)
        return 0;
    qsort(list, count, sizeof *list, compare_pids);
    mark_below(list, count);
    for (size_t i = 0; i < count; i++)
        sent += list[i].below && signal_one(&list[i], signal);
    free(list);
    return sent;
}
