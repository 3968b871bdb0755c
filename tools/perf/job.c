/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/first_rank.h"
#include "tools/perf/explain.h"
#include "tools/perf/job.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

bool job_ok(struct job *job, spr_status status)
{
    if (status == SPR_OK)
        return true;
    const char *text = spr_last_error(job->comm);
    fprintf(stderr, "sparring-perf: rank %d: %s\n", job->rank,
            *text != '\0' ? text : spr_status_string(status));
    if (job->comm != NULL)
        spr_comm_abort(job->comm, *text != '\0' ? text : spr_status_string(status));
    return false;
}

bool job_fail(struct job *job, const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "sparring-perf: rank %d: %s\n", job->rank, text);
    spr_comm_abort(job->comm, text);
    return false;
}

void job_comment(struct job *job, const char *format, ...)
{
    va_list arguments;

    if (job->table == NULL)
        return;
    fputs("# ", job->table);
    va_start(arguments, format);
    vfprintf(job->table, format, arguments);
    va_end(arguments);
    fputc('\n', job->table);
    fflush(job->table);
}

bool job_max(struct job *job, double *value, size_t count)
{
    return job_ok(job, spr_allreduce(job->comm, value, value, count, SPR_FP64, SPR_MAX, NULL));
}

bool job_sum(struct job *job, double *value, size_t count)
{
    return job_ok(job, spr_allreduce(job->comm, value, value, count, SPR_FP64, SPR_SUM, NULL));
}

bool job_sum_int(struct job *job, int64_t *value, size_t count)
{
    return job_ok(job, spr_allreduce(job->comm, value, value, count, SPR_INT64, SPR_SUM, NULL));
}

bool job_same(struct job *job, int64_t value, bool *same)
{
    int64_t ends[2] = {value, -value}; /* the maximum of the second is minus the minimum */

    if (!job_ok(job, spr_allreduce(job->comm, ends, ends, 2, SPR_INT64, SPR_MAX, NULL)))
        return false;
    *same = ends[0] == -ends[1];
    return true;
}

bool job_barrier(struct job *job) { return job_ok(job, spr_barrier(job->comm, NULL)); }

bool job_memory(struct job *job, size_t bytes, void *memory)
{
    void *base = NULL;

    if (!job_ok(job, spr_mem_alloc(job->comm, bytes > 0 ? bytes : 1, &base)))
        return false;
    memset(base, 0, bytes);
    memcpy(memory, &base, sizeof base);
    return true;
}

/* What tells two hosts apart: the boot, and the network namespace. */
static int64_t host_identity(void)
{
    char text[256] = "";
    struct stat space = {0};
    size_t length;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd >= 0 && read(fd, text, 64) < 0)
        text[0] = '\0';
    if (fd >= 0)
        close(fd);
    if (stat("/proc/self/ns/net", &space) != 0)
        space.st_ino = 0;
    length = strlen(text);
    snprintf(text + length, sizeof text - length, " %llu", (unsigned long long)space.st_ino);
    length = strlen(text);
    return (int64_t)(((uint64_t)spr_crc32c(1, text, length) << 31 ^ spr_crc32c(2, text, length)) &
                     INT64_MAX);
}

static bool count_hosts(struct job *job)
{
    int64_t mine = host_identity(), *all = calloc((size_t)job->size, sizeof *all);
    bool done;

    if (all == NULL)
        return job_fail(job, "out of memory");
    done = job_ok(job, spr_allgather(job->comm, &mine, all, 1, SPR_INT64, NULL));
    for (int i = 0; done && i < job->size; i++) {
        int k = 0;
        while (all[k] != all[i])
            k++;
        job->hosts += k == i;
    }
    free(all);
    return done;
}

/* The transports between any two ranks. */
static bool name_transports(struct job *job)
{
    static const char *const names[] = {"shm", "uring", "epoll", "verbs", "sim", "other"};
    enum { NAMES = sizeof names / sizeof names[0] };
    double used[NAMES] = {0};

    for (int peer = 0; peer < job->size; peer++) {
        size_t k = 0;
        while (k < NAMES - 1 && strcmp(names[k], spr_comm_transport(job->comm, peer)) != 0)
            k++;
        if (peer != job->rank)
            used[k] = 1;
    }
    if (!job_max(job, used, NAMES))
        return false;
    snprintf(job->transport, sizeof job->transport, "%s", job->size == 1 ? "self" : "");
    for (size_t k = 0; k < NAMES; k++) {
        size_t length = strlen(job->transport);
        if (used[k] > 0)
            snprintf(job->transport + length, sizeof job->transport - length, "%s%s",
                     length > 0 ? "+" : "", names[k]);
    }
    return true;
}

struct links job_links(const struct job *job)
{
    return job->hosts > 1 ? links_read() : (struct links){0, 0};
}

/* What a barrier puts on the wire, which is taken off each iteration. */
static bool weigh_barrier(struct job *job)
{
    enum { BARRIERS = 64 };
    spr_stats before = {.struct_size = sizeof before}, after = before;
    struct links links_before = {0}, links_after;

    for (int i = 0; i <= BARRIERS; i++) {
        if (!job_barrier(job) || (i == 0 && !job_ok(job, spr_comm_stats(job->comm, &before))))
            return false;
        if (i == 0)
            links_before = job_links(job);
    }
    if (!job_ok(job, spr_comm_stats(job->comm, &after)))
        return false;
    links_after = job_links(job);
    job->barrier_links.sent = (links_after.sent - links_before.sent) / BARRIERS;
    job->barrier_links.received = (links_after.received - links_before.received) / BARRIERS;
    job->barrier_bytes[0] = (double)(after.sent_bytes - before.sent_bytes) / BARRIERS;
    job->barrier_bytes[1] = (double)(after.received_bytes - before.received_bytes) / BARRIERS;
    return true;
}

bool job_open(struct job *job, const struct options *options)
{
    spr_comm_options comm_options = SPR_COMM_OPTIONS_INIT;
    spr_status status;

    *job = (struct job){.options = options, .rank = -1};
    comm_options.transports = options->transports;
    status = spr_comm_create(&comm_options, &job->comm);
    if (status != SPR_OK) {
        job->comm = NULL;
        job->wrong_usage = status == SPR_ERR_INVALID;
        const char *rank = getenv("SPARRING_RANK"), *text = spr_last_error(NULL);
        if (job->wrong_usage)
            first_rank_first();
        fprintf(stderr, "sparring-perf:%s%s%s %s\n", rank != NULL ? " rank " : "",
                rank != NULL ? rank : "", rank != NULL ? ":" : "",
                *text != '\0' ? text : spr_status_string(status));
        return false;
    }
    job->rank = spr_comm_rank(job->comm);
    job->size = spr_comm_size(job->comm);
    if (job->rank == 0)
        job->table = options->json != NULL && strcmp(options->json, "-") == 0 ? stderr : stdout;
    return count_hosts(job) && explain_begin(job) && name_transports(job) && weigh_barrier(job);
}

void job_close(struct job *job)
{
    spr_comm_destroy(job->comm);
    job->comm = NULL;
}
