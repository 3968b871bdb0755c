/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a host leaves out of the sums of its ranks' lists (union=hosts): of a window the largest are
 * sent on, as many as its ranks have on average, and the codec of the rank that sums keeps the
 * rest. Used by sparse_hosts.c.
 */
#ifndef SPR_COLLECTIVES_SPARSE_LEFT_H
#define SPR_COLLECTIVES_SPARSE_LEFT_H

#include "collectives/sparse.h"
#include "compress/select/topk.h"

struct spr_left {
    uint32_t *largest; /* scratch to select among sums; NULL: all are sent */
    /* [span] Of the window that was summed last for another owner; of `merged`, for this one. */
    struct spr_topk_entries other, own;
};

/* Room for windows of `span` positions. False: no memory. */
bool spr_left_make(spr_request *rq, struct spr_left *l, size_t span);
/* Of the n sums of a window, to which `ranks` ranks have brought so many entries, those that are
 * sent stay, and the others go to `left`. Returns how many stay. */
size_t spr_left_take(const struct spr_left *l, uint16_t *pos, float *val, size_t n, size_t entries,
                     int ranks, struct spr_topk_entries *left);
/* What was left out of a window of an owner stays with this rank. */
void spr_left_keep(const spr_request *rq, uint32_t owner, uint32_t window,
                   const struct spr_topk_entries *left);
/* All have brought window `merged` of the own part: what was left out and is in the union anyway is
 * added, and what is not stays. */
void spr_left_add_own(spr_request *rq, struct spr_left *l);

#endif
