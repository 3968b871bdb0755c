/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* false: an earlier cause is kept (or nobody wants the text). */
static bool begin(struct spr_error *error, spr_status status, int rank)
{
    if (!error || error->status != SPR_OK)
        return false;
    error->status = status;
    error->rank = rank;
    return true;
}

spr_status spr_error_set(struct spr_error *error, spr_status status, int rank, const char *fmt, ...)
{
    va_list args;

    if (!begin(error, status, rank))
        return status;
    va_start(args, fmt);
    vsnprintf(error->text, sizeof(error->text), fmt, args);
    va_end(args);
    return status;
}

spr_status spr_error_errno(struct spr_error *error, spr_status status, int rank, int saved_errno,
                           const char *fmt, ...)
{
    va_list args;
    size_t used;

    if (!begin(error, status, rank))
        return status;
    va_start(args, fmt);
    vsnprintf(error->text, sizeof(error->text), fmt, args);
    va_end(args);
    used = strlen(error->text);
    /* %m is the one thread-safe strerror() that glibc and musl spell the same. */
    errno = saved_errno;
    snprintf(error->text + used, sizeof(error->text) - used, ": %m");
    errno = saved_errno;
    return status;
}

void spr_error_clear(struct spr_error *error)
{
    if (!error)
        return;
    error->status = SPR_OK;
    error->rank = -1;
    error->text[0] = '\0';
}

bool spr_error_is_known(int32_t status)
{
    return status < 0 && strcmp(spr_status_name(status), "SPR_ERR_UNKNOWN") != 0;
}

struct spr_error *spr_thread_error(void)
{
    static _Thread_local struct spr_error error = {.rank = -1};

    return &error;
}
