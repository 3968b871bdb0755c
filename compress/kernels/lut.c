/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Permutations by bit mask, computed by the compiler.
 */
#include "compress/kernels/kernels.h"

#define BIT(m, i) ((uint64_t)(m) >> (i)&1)
#define COUNT(m)                                                                                   \
    (BIT(m, 0) + BIT(m, 1) + BIT(m, 2) + BIT(m, 3) + BIT(m, 4) + BIT(m, 5) + BIT(m, 6) + BIT(m, 7))
#define BELOW(m, i) COUNT((m) & ((1u << (i)) - 1))

#define COMPRESS_LANE(m, i) (BIT(m, i) * (i) << 8 * (BIT(m, i) * BELOW(m, i)))
#define EXPAND_LANE(m, i) ((BELOW(m, i) | (BIT(m, i) ^ 1) << 7) << 8 * (i))

#define ROW(lane, m)                                                                               \
    (lane(m, 0) | lane(m, 1) | lane(m, 2) | lane(m, 3) | lane(m, 4) | lane(m, 5) | lane(m, 6) |    \
     lane(m, 7))
#define ROWS4(lane, m) ROW(lane, m), ROW(lane, (m) + 1), ROW(lane, (m) + 2), ROW(lane, (m) + 3)
#define ROWS16(lane, m)                                                                            \
    ROWS4(lane, m), ROWS4(lane, (m) + 4), ROWS4(lane, (m) + 8), ROWS4(lane, (m) + 12)
#define ROWS64(lane, m)                                                                            \
    ROWS16(lane, m), ROWS16(lane, (m) + 16), ROWS16(lane, (m) + 32), ROWS16(lane, (m) + 48)
#define ROWS256(lane) ROWS64(lane, 0), ROWS64(lane, 64), ROWS64(lane, 128), ROWS64(lane, 192)

const uint64_t spr_lut_compress[256] = {ROWS256(COMPRESS_LANE)};
const uint64_t spr_lut_expand[256] = {ROWS256(EXPAND_LANE)};
