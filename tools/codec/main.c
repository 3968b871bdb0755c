/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-codec: measures codecs, tries them on gradients, and chooses among them.
 */
#include "tools/codec/commands.h"
#include "tools/command_line.h"
#include "tools/streams.h"

int main(int argc, char **argv)
{
    static int (*const run[COMMAND_COUNT])(const struct options *options) = {
        [COMMAND_BENCH] = bench_run,   [COMMAND_COMPARE] = compare_run, [COMMAND_TRY] = try_run,
        [COMMAND_CHOOSE] = choose_run, [COMMAND_LIST] = list_run,
    };
    struct options options;
    int code;

    streams_open();
    if (options_end(options_parse(&options, argc, argv), &code))
        return code;
    code = options.lines ? bench_lines(&options) : run[options.command](&options);
    return streams_close(tool.name, code);
}
