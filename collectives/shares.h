/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How much of a vector each host ought to own where their links are not equally fast. H hosts; s is
 * the part that a host owns, w the rate of its link. Others' parts of its contribution leave it
 * once, 1 - s, and sums of what it owns go to H - 1 others; the same comes in. So its link carries,
 * in each direction,
 *
 *   1 + (H - 2) s   vectors, which takes   T = (1 + (H - 2) s) / w
 *
 * The longest of these is shortest where all take the same T, but for those that would own less
 * than nothing: they own nothing, and their links carry their own contribution and the result. Nor
 * does anybody own more than SPR_MOST_SHARES equal parts: it adds what it owns, all others send to
 * it at once, and CPUs are no faster where links are. Of two hosts each carries one vector, whoever
 * owns what.
 */
#ifndef SPR_COLLECTIVES_SHARES_H
#define SPR_COLLECTIVES_SHARES_H

#include <stddef.h>
#include <stdint.h>

/* Parts are counted in these: whole numbers, so that all ranks come to the same ones. */
#define SPR_WHOLE_LOG2 20
#define SPR_WHOLE (1u << SPR_WHOLE_LOG2)
#define SPR_MOST_SHARES 2u

/* rate[hosts], all above 0, of any unit: cuts[hosts + 1] becomes where the part of each begins, and
 * SPR_WHOLE. O(hosts). */
void spr_shares_by_rate(const uint32_t *rate, int hosts, uint32_t *cuts);

/* The time with these parts over that with equal ones, on links alone: 1 or less, but for rounding.
 */
double spr_shares_gain(const uint32_t *rate, int hosts, const uint32_t *cuts);
/* The longest part, over an equal one. */
double spr_shares_most(const uint32_t *cuts, int hosts);

/* The same cuts of so many elements, below 2^44, at whole cache lines: at[hosts + 1]. */
void spr_shares_cut(const uint32_t *cuts, int hosts, size_t elements, size_t *at);
/* So long is a part of them at most. Does not shrink when `elements` grow. */
size_t spr_shares_longest(const uint32_t *cuts, int hosts, size_t elements);

#endif
