/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/info/report.h"

#define NAME(name, format)                                                                         \
    char name[PATH_MAX];                                                                           \
    do {                                                                                           \
        va_list arguments;                                                                         \
        va_start(arguments, format);                                                               \
        vsnprintf(name, sizeof name, format, arguments);                                           \
        va_end(arguments);                                                                         \
    } while (0)

static bool first_line(char *text, size_t bytes, const char *path)
{
    FILE *file = fopen(path, "re");
    bool good = file && fgets(text, (int)bytes, file);

    if (file)
        fclose(file);
    if (!good)
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return good;
}

bool file_line(char *text, size_t bytes, const char *format, ...)
{
    NAME(path, format);
    return first_line(text, bytes, path);
}

uint64_t file_number(const char *format, ...)
{
    char text[64], *end;
    unsigned long long value;

    NAME(path, format);
    if (!first_line(text, sizeof text, path))
        return INFO_NONE;
    errno = 0;
    value = strtoull(text, &end, 0);
    return end == text || errno || text[0] == '-' ? INFO_NONE : value;
}

bool file_there(const char *format, ...)
{
    NAME(path, format);
    return access(path, F_OK) == 0;
}

bool file_link(char *text, size_t bytes, const char *format, ...)
{
    char to[PATH_MAX];
    const char *last;
    ssize_t n;

    NAME(path, format);
    n = readlink(path, to, sizeof to - 1);
    to[n > 0 ? n : 0] = '\0';
    last = strrchr(to, '/');
    snprintf(text, bytes, "%s", last ? last + 1 : to);
    return n > 0;
}
