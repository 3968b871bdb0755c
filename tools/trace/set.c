/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The ranks of one job, out of the files of a directory.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/trace/trace.h"

enum { MOST_FILES = 131072 };

struct found {
    struct trace **traces;
    size_t count, room;
};

static bool add(struct found *found, struct trace *t)
{
    if (found->count == found->room) {
        size_t room = found->room ? 2 * found->room : 16;
        struct trace **grown = realloc(found->traces, room * sizeof(struct trace *));
        if (!grown)
            return false;
        found->traces = grown;
        found->room = room;
    }
    found->traces[found->count++] = t;
    return true;
}

static bool is_recorder(const char *name)
{
    size_t n = strlen(name);

    return strncmp(name, "rank-", 5) == 0 && n > 11 && strcmp(name + n - 6, ".trace") == 0;
}

/* The first problem is kept. */
static void read_directory(struct found *found, DIR *dir, const char *path, char *error,
                           size_t bytes)
{
    char name[4096], why[160];
    struct dirent *entry;

    while ((entry = readdir(dir)) != NULL && found->count < MOST_FILES) {
        struct trace *t;
        if (!is_recorder(entry->d_name))
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        t = trace_read(name, why, sizeof why);
        if (t && add(found, t))
            continue;
        if (!*error)
            snprintf(error, bytes, "%.300s: %s", name, t ? "no memory" : why);
        trace_free(t);
    }
    if (found->count == 0 && !*error)
        snprintf(error, bytes, "%.300s: there is no rank-R.trace in this directory", path);
}

/* Which communicator to look at: of the newest job the first that failed, else the first of all. */
static const struct trace *choose(struct trace **traces, size_t count)
{
    const struct trace *newest = traces[0], *best;

    for (size_t i = 1; i < count; i++)
        if (traces[i]->header.start_realtime_ns > newest->header.start_realtime_ns)
            newest = traces[i];
    best = newest;
    for (size_t i = 0; i < count; i++) {
        const struct spr_trace_header *h = &traces[i]->header;
        if (h->job != newest->header.job)
            continue;
        if ((h->failed && !best->header.failed) ||
            (!h->failed == !best->header.failed && h->index < best->header.index))
            best = traces[i];
    }
    return best;
}

bool trace_set_make(struct trace_set *set, struct trace **traces, size_t count)
{
    const struct trace *like = choose(traces, count);

    *set = (struct trace_set){.size = like->header.size};
    set->ranks = calloc((size_t)set->size, sizeof(struct trace *));
    set->processes = calloc((size_t)set->size, sizeof *set->processes);
    for (size_t i = 0; i < count; i++) {
        const struct spr_trace_header *h = &traces[i]->header;
        bool fits = set->ranks && h->job == like->header.job && h->index == like->header.index &&
                    h->size == like->header.size && !set->ranks[h->rank];
        if (fits) {
            set->ranks[h->rank] = traces[i];
            set->present++;
        } else {
            trace_free(traces[i]);
            set->ignored++;
        }
    }
    if (!set->ranks || !set->processes) {
        trace_set_free(set);
        return false;
    }
    trace_align(set);
    return true;
}

bool trace_set_read(struct trace_set *set, const char *path, char *error, size_t error_bytes)
{
    struct found found = {0};
    char why[160];
    struct stat st;
    DIR *dir = NULL;
    bool made;

    *set = (struct trace_set){0};
    *error = '\0';
    if (stat(path, &st) != 0 || (S_ISDIR(st.st_mode) && !(dir = opendir(path)))) {
        snprintf(error, error_bytes, "%.300s: %s", path, strerror(errno));
        return false;
    }
    if (dir) {
        read_directory(&found, dir, path, error, error_bytes);
        closedir(dir);
    } else {
        struct trace *t = trace_read(path, why, sizeof why);
        if (!t || !add(&found, t)) {
            snprintf(error, error_bytes, "%.300s: %s", path, t ? "no memory" : why);
            trace_free(t);
        }
    }
    made = found.count > 0 && trace_set_make(set, found.traces, found.count);
    if (found.count > 0 && !made)
        snprintf(error, error_bytes, "no memory");
    free(found.traces);
    if (made)
        trace_processes(set, dir ? path : NULL);
    return made;
}

void trace_set_free(struct trace_set *set)
{
    for (int r = 0; set->ranks && r < set->size; r++)
        trace_free(set->ranks[r]);
    free(set->ranks);
    free(set->processes);
    *set = (struct trace_set){0};
}
