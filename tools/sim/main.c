/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-sim: what collectives would cost on many ranks, found by running them over a simulated
 * network.
 */
#include <limits.h>
#include <malloc.h>
#include <sys/prctl.h>

#include "tools/command_line.h"
#include "tools/sim/sweep.h"
#include "tools/streams.h"

int main(int argc, char **argv)
{
    struct options options;
    struct report report;
    bool done;
    int code;

    streams_open();
    if (options_end(options_parse(&options, argc, argv), &code))
        return code;
    /* Buffers of hundreds of ranks, each written a few bytes: huge pages would take all memory. */
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    /* What frames held is used for the next ones, not given back to be asked for again. What is
     * larger than any frame is mapped: of what a rank holds for 4096 peers few pages are written.
     */
    (void)mallopt(M_MMAP_THRESHOLD, 512 << 10);
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX);
    (void)mallopt(M_TOP_PAD, 64 << 20);
    done = report_open(&report, &options) && sweep(&report);
    done = report_close(&report, done) && done;
    return streams_close(tool.name, !done || report.wrong > 0);
}
