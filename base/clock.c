/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/opt.h"

uint64_t spr_monotonic_ns(void)
{
    struct timespec ts;

    /* Cannot fail: the clock exists on every Linux and ts is ours. */
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t monotonic_now(void *ctx)
{
    (void)ctx;
    return spr_monotonic_ns();
}

const struct spr_clock spr_clock_monotonic = {monotonic_now, NULL};

static uint64_t virtual_now(void *ctx) { return ((const struct spr_virtual_clock *)ctx)->ns; }

struct spr_clock spr_clock_virtual(struct spr_virtual_clock *v)
{
    return (struct spr_clock){virtual_now, v};
}

static pthread_once_t factor_once = PTHREAD_ONCE_INIT;
static double factor = 1.0;

static void read_factor(void)
{
    const char *text = getenv("SPARRING_TIME_FACTOR");
    double value;

    if (!text || !*text)
        return;
    /* The bounds keep scaled timeouts well inside 64 bits of nanoseconds. */
    if (spr_parse_double(text, &value) && value >= 0.001 && value <= 1000.0)
        factor = value;
    else
        spr_warn(SPR_SUB_INIT, "SPARRING_TIME_FACTOR='%s' ignored: not a number from 0.001 to 1000",
                 text);
}

double spr_time_factor(void)
{
    pthread_once(&factor_once, read_factor);
    return factor;
}
