/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/cli/perf_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct row rows[MAX_ROWS];
size_t row_count;

void perf_line_setup(void)
{
    const char *folder = getenv("top_builddir");
    char path[4096];

    shell_line_setup();
    snprintf(path, sizeof path, "%s/tools/sparring-run --timeout 60",
             folder != NULL ? folder : ".");
    setenv("RUN", path, 1);
    snprintf(path, sizeof path, "%s/tools/sparring-perf", folder != NULL ? folder : ".");
    setenv("PERF", path, 1);
}

void measure(const char *line)
{
    run(line);
    if (result.code != 0)
        fail_msg("exit code %d of: %s\n%s%s", result.code, line, result.output, result.error);
    row_count = 0;
    for (char *at = result.output; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        struct row *row = &rows[row_count];
        if (*at == '#')
            continue;
        assert_true(row_count < MAX_ROWS);
        int fields =
            sscanf(at, "%zu %zu %15s %15s %31s %15s %15s %lf %lf %lf %15s %15s %15s %15s %15s",
                   &row->size, &row->count, row->type, row->op, row->algorithm, row->density,
                   row->ratio, &row->time_us, &row->p50_us, &row->p99_us, row->algbw, row->busbw,
                   row->wirebw, row->wrong, row->relerr);
        if (fields != 15)
            fail_msg("%d fields of 15 in: %.160s", fields, at);
        row_count++;
    }
}
