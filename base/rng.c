/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Philox2x64-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2,
 * 3", SC'11. The counter is the low word of the block, the high word is 0, the seed is the key, and
 * the first word of the output is the value.
 */
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"

#define ROUNDS 10
#define MULTIPLIER 0xd2b74407b1ce6e93ull
#define KEY_STEP 0x9e3779b97f4a7c15ull /* golden ratio */

uint64_t spr_rng_u64(uint64_t seed, uint64_t counter)
{
    uint64_t low = counter, high = 0, key = seed;

    for (int round = 0; round < ROUNDS; round++) {
        unsigned __int128 product = (unsigned __int128)low * MULTIPLIER;

        low = (uint64_t)(product >> 64) ^ key ^ high;
        high = (uint64_t)product;
        key += KEY_STEP;
    }
    return low;
}

/* Durstenfeld, CACM 7 (1964), algorithm 235. */
void spr_rng_order(struct spr_rng *r, size_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t left = n; left > 1; left--) {
        size_t place = spr_rng_below(r, left), last = order[left - 1];

        order[left - 1] = order[place];
        order[place] = last;
    }
}

uint64_t spr_rng_test_seed(void)
{
    const char *text = getenv("SPARRING_SEED");
    uint64_t seed;

    if (text && *text) {
        char *end;

        errno = 0;
        seed = strtoull(text, &end, 0);
        if (errno == 0 && *end == '\0')
            return seed;
        spr_warn(SPR_SUB_INIT, "SPARRING_SEED='%s' ignored: not a 64-bit integer", text);
    }
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
        seed = spr_monotonic_ns(); /* early boot; any seed will do, it is printed */
    return seed;
}
