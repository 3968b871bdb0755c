/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The table, and JSON.
 */
#ifndef SPR_TOOLS_SIM_REPORT_H
#define SPR_TOOLS_SIM_REPORT_H

#include <stdio.h>

#include "tools/sim/run.h"

struct report {
    const struct options *options;
    FILE *table;             /* NULL: JSON goes to standard output */
    FILE *file;              /* of the JSON; NULL = none */
    void *rows, *crossovers; /* JSON arrays, or NULL */
    double wrong;            /* runs */
    size_t predicted, near;  /* runs that the model speaks of; within 20 % of the simulation */
    double worst;            /* ratio of such a pair, above 1 */
};

/* At which density sparse and dense take the same time. */
struct crossover {
    const struct run *run;  /* any of those compared */
    double lowest, highest; /* densities that were measured */
    double density;         /* NAN: below or above them */
    bool pays;              /* at the lowest */
};

extern const char *const level_names[SPR_SIM_LEVELS];

/* Says what is wrong on standard error. */
bool report_open(struct report *report, const struct options *options);
/* `dense`: the best dense run of the same world; NULL: of no interest. */
bool report_row(struct report *report, const struct run *run, const struct run *dense);
bool report_crossover(struct report *report, const struct crossover *crossover);
/* Footer, and the JSON. */
bool report_close(struct report *report, bool complete);

/* json.c; without libjansson they do nothing. */
bool json_open(struct report *report);
bool json_add_row(struct report *report, const struct run *run, const struct run *dense);
bool json_add_crossover(struct report *report, const struct crossover *crossover);
bool json_write(struct report *report);
void json_drop(struct report *report);

#endif
