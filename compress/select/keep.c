/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The largest entries of a list that is there already: those of the sums of a window that are sent
 * on (union=bounded, union=hosts).
 */
#include "compress/select/topk_internal.h"

#define BINS ((size_t)1 << SPR_TOPK_RADIX_LOG2)

size_t spr_topk_keep_scratch(size_t n) { return BINS + n; }

size_t spr_topk_keep(uint16_t *pos, float *value, size_t n, size_t k, struct spr_topk_entries *rest,
                     uint32_t *scratch)
{
    uint32_t *key = scratch + BINS, T;
    size_t greater, quota, kept = 0;

    if (n <= k)
        return n;
    for (size_t i = 0; i < n; i++)
        key[i] = spr_key(value[i]);
    T = spr_topk_kth(key, n, k, 0, SPR_TOPK_NO_LIMIT, scratch, &greater);
    quota = k - greater; /* of those that are equal to the threshold */
    for (size_t i = 0; i < n; i++) {
        uint32_t m = spr_key(value[i]);
        bool equal = m == T && quota > 0, keeps = m > T || equal;

        if (!keeps && rest) {
            rest->pos[rest->count] = pos[i];
            rest->value[rest->count++] = value[i];
        }
        pos[kept] = pos[i];
        value[kept] = value[i];
        quota -= equal;
        kept += keeps;
    }
    return kept;
}
