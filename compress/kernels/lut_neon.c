/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Permutations of four lanes by bit mask, as bytes for TBL.
 */
#include "compress/kernels/lanes_neon.h"

#define L(lane) (0x03020100u + 0x04040404u * (lane))
#define NONE UINT32_MAX

const uint32_t spr_lut_compress4[16][4] = {
    {NONE, NONE, NONE, NONE}, {L(0), NONE, NONE, NONE}, {L(1), NONE, NONE, NONE},
    {L(0), L(1), NONE, NONE}, {L(2), NONE, NONE, NONE}, {L(0), L(2), NONE, NONE},
    {L(1), L(2), NONE, NONE}, {L(0), L(1), L(2), NONE}, {L(3), NONE, NONE, NONE},
    {L(0), L(3), NONE, NONE}, {L(1), L(3), NONE, NONE}, {L(0), L(1), L(3), NONE},
    {L(2), L(3), NONE, NONE}, {L(0), L(2), L(3), NONE}, {L(1), L(2), L(3), NONE},
    {L(0), L(1), L(2), L(3)},
};
const uint32_t spr_lut_expand4[16][4] = {
    {NONE, NONE, NONE, NONE}, {L(0), NONE, NONE, NONE}, {NONE, L(0), NONE, NONE},
    {L(0), L(1), NONE, NONE}, {NONE, NONE, L(0), NONE}, {L(0), NONE, L(1), NONE},
    {NONE, L(0), L(1), NONE}, {L(0), L(1), L(2), NONE}, {NONE, NONE, NONE, L(0)},
    {L(0), NONE, NONE, L(1)}, {NONE, L(0), NONE, L(1)}, {L(0), L(1), NONE, L(2)},
    {NONE, NONE, L(0), L(1)}, {L(0), NONE, L(1), L(2)}, {NONE, L(0), L(1), L(2)},
    {L(0), L(1), L(2), L(3)},
};
