/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Random-k: the positions, which every rank can compute.
 */
#ifndef SPR_COMPRESS_SELECT_RANDOM_H
#define SPR_COMPRESS_SELECT_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "compress/kernels/select.h"

/* k strata of [0, n), 1 <= k <= n < 2^32; the positions are a function of all four arguments. */
struct spr_strata spr_random_strata(size_t n, size_t k, uint64_t seed, uint64_t step);
/* Positions first .. first + count - 1 of the k, ascending. */
void spr_random_indices(const struct spr_strata *s, size_t first, size_t count, uint32_t *index);
/* The first of the k positions that is >= `position`; k: none. */
size_t spr_random_find(const struct spr_strata *s, size_t k, size_t position);

#endif
