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
    switch (options_parse(&options, argc, argv)) {
    case OPTIONS_SHOWN:
        code = 0;
        break;
    case OPTIONS_WRONG:
        return 2;
    default:
        code = options.lines ? bench_lines(&options) : run[options.command](&options);
        break;
    }
    return streams_close(tool.name, code);
}
