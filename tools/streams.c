/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void streams_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY); /* as `fd` */
}

int streams_close(const char *tool, int code)
{
    bool failed = ferror(stdout); /* of an earlier write, whose reason is gone */

    errno = 0;
    if (fflush(stdout) == 0 && !failed)
        return code;
    fprintf(stderr, "%s: cannot write to standard output%s%s\n", tool, errno ? ": " : "",
            errno ? strerror(errno) : "");
    return code ? code : 1;
}
