/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-run: starts the ranks of a job. It needs nothing of the library.
 */
#include <fcntl.h>
#include <unistd.h>

#include "tools/run/front.h"
#include "tools/run/options.h"
#include "tools/streams.h"

int main(int argc, char **argv)
{
    /* A descriptor that is opened later must not become a standard one. */
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
        ;
    if (fd > STDERR_FILENO)
        close(fd);
    struct options options;
    int code;
    switch (options_parse(&options, argc, argv)) {
    case OPTIONS_SHOWN:
        code = streams_close("sparring-run", 0);
        break;
    case OPTIONS_WRONG:
        code = 2;
        break;
    default:
        code = front_run(&options);
        break;
    }
    options_free(&options);
    return code;
}
