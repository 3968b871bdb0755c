/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/shares.h"

#include <assert.h>

#include "base/util.h"

#define STEPS_LOG2 16              /* rates are counted in so many parts of the fastest */
#define VECTOR (UINT64_C(1) << 28) /* what a link carries is counted in parts of one */
#define MOST_HOSTS 32768           /* with both products fit 64 bits */
#define MOST_ELEMENTS (UINT64_C(1) << 44)
#define LINE 64u /* elements */

static uint64_t fastest(const uint32_t *rate, int hosts)
{
    uint64_t most = 1;

    for (int h = 0; h < hosts; h++)
        most = rate[h] > most ? rate[h] : most;
    return most;
}

/* What a link carries beyond its own vector when all may take `time`: (H - 2) s. */
static uint64_t carried(uint32_t rate, uint64_t most, uint64_t time, uint64_t limit)
{
    uint64_t weight = ((uint64_t)rate << STEPS_LOG2) / most;
    uint64_t all = (weight > 0 ? weight : 1) * time;

    return all < VECTOR ? 0 : spr_min_u64(all - VECTOR, limit);
}

static uint64_t sum_of(const uint32_t *rate, int hosts, uint64_t most, uint64_t time,
                       uint64_t limit)
{
    uint64_t sum = 0;

    for (int h = 0; h < hosts; h++)
        sum += carried(rate[h], most, time, limit);
    return sum;
}

void spr_shares_by_rate(const uint32_t *rate, int hosts, uint32_t *cuts)
{
    uint64_t n = (uint64_t)hosts, most = fastest(rate, hosts), low = 0, high, limit, sum, at = 0;

    assert(hosts <= MOST_HOSTS);
    cuts[0] = 0;
    for (int h = 1; h <= hosts; h++)
        cuts[h] = (uint32_t)((uint64_t)h * SPR_WHOLE / n);
    if (hosts <= 2)
        return;
    limit = spr_min_u64(SPR_MOST_SHARES, n) * VECTOR * (n - 2) / n;
    high = VECTOR + limit; /* in which the slowest carries as much as anybody may */
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        *(sum_of(rate, hosts, most, middle, limit) < (n - 2) * VECTOR ? &low : &high) = middle;
    }
    sum = sum_of(rate, hosts, most, high, limit);
    for (int h = 0; h < hosts; h++) {
        at += carried(rate[h], most, high, limit);
        cuts[h + 1] = (uint32_t)(at * SPR_WHOLE / sum);
    }
}

double spr_shares_gain(const uint32_t *rate, int hosts, const uint32_t *cuts)
{
    double longest = 0, slowest = rate[0];

    for (int h = 0; h < hosts; h++) {
        double part = (double)(cuts[h + 1] - cuts[h]) / SPR_WHOLE;
        double time = (1 + (hosts - 2) * part) / rate[h];
        /* No fmax(): on its maximum over a loop gcc 12 for 64-bit ARM has an internal error. */
        longest = time > longest ? time : longest;
        slowest = rate[h] < slowest ? rate[h] : slowest;
    }
    return longest * slowest * hosts / (2 * (hosts - 1));
}

static uint32_t longest_of(const uint32_t *cuts, int hosts)
{
    uint32_t longest = 0;

    for (int h = 0; h < hosts; h++)
        longest = cuts[h + 1] - cuts[h] > longest ? cuts[h + 1] - cuts[h] : longest;
    return longest;
}

double spr_shares_most(const uint32_t *cuts, int hosts)
{
    return (double)longest_of(cuts, hosts) / SPR_WHOLE * hosts;
}

void spr_shares_cut(const uint32_t *cuts, int hosts, size_t elements, size_t *at)
{
    assert(elements < MOST_ELEMENTS);
    at[0] = 0;
    for (int h = 1; h < hosts; h++)
        at[h] = (size_t)(((uint64_t)elements * cuts[h] >> SPR_WHOLE_LOG2) / LINE * LINE);
    at[hosts] = elements;
}

/* Rounding moves both ends by less than a line. */
size_t spr_shares_longest(const uint32_t *cuts, int hosts, size_t elements)
{
    uint64_t part = (uint64_t)elements * longest_of(cuts, hosts) >> SPR_WHOLE_LOG2;

    return spr_align_up((size_t)part + LINE, LINE);
}
