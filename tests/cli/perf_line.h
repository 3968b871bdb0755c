/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Shell lines in which $PERF is sparring-perf, and $RUN starts it as the ranks of a job, of a
 * minute at most; and the table that it prints.
 */
#ifndef TESTS_CLI_PERF_LINE_H
#define TESTS_CLI_PERF_LINE_H

#include <stddef.h>

#include "tests/cli/shell_line.h"

enum { MAX_ROWS = 64 };

/* A row of the table. */
struct row {
    size_t size, count;
    char type[16], op[16], algorithm[32], density[16], ratio[16];
    double time_us, p50_us, p99_us;
    char algbw[16], busbw[16], wirebw[16], wrong[16], relerr[16];
};
extern struct row rows[MAX_ROWS];
extern size_t row_count;

/* Once, before the first; shell_line_end() after the last. */
void perf_line_setup(void);
/* Run, and take the table apart. */
void measure(const char *line);

#endif
