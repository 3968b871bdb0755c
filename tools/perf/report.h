/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What rank 0 says: the table, and JSON. Everything here does nothing on the other ranks.
 */
#ifndef SPR_TOOLS_PERF_REPORT_H
#define SPR_TOOLS_PERF_REPORT_H

#include "tools/perf/trial.h"

/* Figures that follow from others, in 1e9 bytes per second; NAN where there is none. */
struct rates {
    double algbw, busbw, wirebw, ratio;
};
struct rates rates_of(const struct trial *trial);

struct report {
    int rows;            /* that have a busbw and are no baseline */
    double busbw, wrong; /* sums over rows; busbw over those */
    void *json;          /* a JSON array, or NULL */
    FILE *file;          /* where it goes; NULL = nowhere */
};

/* Opens the JSON file. */
bool report_open(struct report *report, struct job *job);
void report_header(struct job *job);
bool report_row(struct report *report, const struct trial *trial);
/* The first trial is sparse or compressed, the others are dense: which is faster? */
void report_verdict(const struct trial *sparse, const struct trial *dense, size_t dense_count);
/* Footer, and the JSON. */
bool report_close(struct report *report, struct job *job, bool complete);

/* json.c; without libjansson they do nothing. */
bool json_open(struct report *report);
bool json_add_row(struct report *report, const struct trial *trial);
bool json_write(struct report *report, struct job *job);
void json_drop(struct report *report);

#endif
