/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The job: this rank's communicator, and agreement between the ranks.
 *
 * Every function that returns bool says what went wrong on standard error, on every rank that
 * knows, and aborts the communicator: the caller only ends.
 */
#ifndef SPR_TOOLS_PERF_JOB_H
#define SPR_TOOLS_PERF_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/util.h"
#include "tools/perf/links.h"
#include "tools/perf/options.h"

struct job {
    const struct options *options;
    spr_comm *comm;
    int rank, size, hosts;
    char transport[64];      /* those in use between any two ranks, joined by '+' */
    double barrier_bytes[2]; /* sent and received by one barrier on this rank */
    struct links barrier_links;
    bool wrong_usage; /* job_open failed because of what was asked for */
    FILE *table;      /* where rank 0 prints; NULL on the others */
};

bool job_open(struct job *job, const struct options *options);
void job_close(struct job *job);

/* SPR_OK, or false after the error of the communicator was printed. */
bool job_ok(struct job *job, spr_status status);
/* This rank cannot go on. Returns false. */
bool job_fail(struct job *job, const char *format, ...) SPR_PRINTF(2, 3);

/* value[i] = maximum or sum over ranks. */
bool job_max(struct job *job, double *value, size_t count);
bool job_sum(struct job *job, double *value, size_t count);
bool job_sum_int(struct job *job, int64_t *value, size_t count);
/* Do all ranks have the same number below 2^62? */
bool job_same(struct job *job, int64_t value, bool *same);
bool job_barrier(struct job *job);
/* What the interfaces have carried. Zeros where all ranks share one host: they use none, and to
 * read them takes longer than a short call in shared memory, which then finds the caches full of
 * other things. */
struct links job_links(const struct job *job);
/* Zeroed, in huge pages where there are any, every page touched. Freed by spr_mem_free. */
bool job_memory(struct job *job, size_t bytes, void *memory);

/* A line of comment in the table, of rank 0. */
void job_comment(struct job *job, const char *format, ...) SPR_PRINTF(2, 3);

#endif
