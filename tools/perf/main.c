/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-perf: measures collectives, and checks their results.
 */
#include "tools/command_line.h"
#include "tools/perf/elastic.h"
#include "tools/perf/sweep.h"
#include "tools/streams.h"

int main(int argc, char **argv)
{
    struct options options;
    struct report report = {0};
    struct job job;
    bool done;
    int code;

    streams_open();
    if (options_end(options_parse(&options, argc, argv), &code))
        return code;
    if (options.elastic)
        return streams_close(tool.name, elastic_run(&options));
    done = job_open(&job, &options) && report_open(&report, &job) && sweep(&job, &report);
    done = report_close(&report, &job, done) && done;
    job_close(&job);
    return streams_close(tool.name, job.wrong_usage ? 2 : !done || report.wrong > 0);
}
