/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-perf: measures collectives, and checks their results.
 */
#include <stdio.h>

#include "tools/perf/elastic.h"
#include "tools/perf/sweep.h"

int main(int argc, char **argv)
{
    struct options options;
    struct report report = {0};
    struct job job;
    bool done;

    switch (options_parse(&options, argc, argv)) {
    case OPTIONS_SHOWN:
        return 0;
    case OPTIONS_WRONG:
        return 2;
    default:
        break;
    }
    if (options.elastic)
        return elastic_run(&options);
    done = job_open(&job, &options) && report_open(&report, &job) && sweep(&job, &report);
    done = report_close(&report, &job, done) && done;
    job_close(&job);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "sparring-perf: cannot write to standard output\n");
        return 1;
    }
    if (job.wrong_usage)
        return 2;
    return done && report.wrong == 0 ? 0 : 1;
}
