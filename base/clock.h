/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Time is injected: the real clock is monotonic, the simulator's is virtual.
 */
#ifndef SPR_BASE_CLOCK_H
#define SPR_BASE_CLOCK_H

#include <stdint.h>

struct spr_clock {
    uint64_t (*now_ns)(void *ctx);
    void *ctx;
};

/* CLOCK_MONOTONIC. */
extern const struct spr_clock spr_clock_monotonic;

static inline uint64_t spr_now_ns(const struct spr_clock *clock)
{
    return clock->now_ns(clock->ctx);
}
/* Shortcut for the real clock. */
uint64_t spr_monotonic_ns(void);

/* Seconds as nanoseconds; not a number and less than nothing is 0, "for ever" about 30 years. */
static inline uint64_t spr_seconds_ns(double seconds)
{
    return seconds > 0 ? (uint64_t)((seconds < 1e9 ? seconds : 1e9) * 1e9) : 0;
}

/* A clock that only moves when told to. */
struct spr_virtual_clock {
    uint64_t ns;
};
struct spr_clock spr_clock_virtual(struct spr_virtual_clock *v);

/* The factor that scales all timeouts (SPARRING_TIME_FACTOR, default 1), for slow machines and
 * sanitizers. */
double spr_time_factor(void);

#endif
