/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the steps of a codec have shown, for the choice of the algorithm of the next one: the
 * algorithm of the last, and how many positions all lists had together. All ranks know the same,
 * since all have the same sum; what was learnt of other ranks (another era) does not count.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/util.h"
#include "collectives/collective.h"
#include "compress/codec.h"

#define PIECE 64u        /* positions; short, since the entries of some gradients are in clusters */
#define MOST_PIECES 1024 /* of them say how large a union was: 256 KiB are read */

void spr_history_recall(struct spr_plan *plan, const spr_comm *comm, spr_codec *codec)
{
    const struct spr_codec_history *history = spr_codec_history(codec);

    plan->most_entries = spr_codec_most_entries(codec);
    plan->codec_hash = spr_codec_hash(codec);
    if (history->era != comm->era)
        return;
    plan->last_union = history->union_entries;
    plan->last_algorithm = history->algorithm;
}

/* Entries of the union of which this is the sum, about: a piece of every so many is looked at,
 * another one of each, so that no period of the positions is met. A sum of zero counts as nobody's.
 */
static size_t estimate_union(const float *sum, size_t n)
{
    size_t pieces = spr_div_ceil(n, PIECE), of = spr_div_ceil(pieces, MOST_PIECES);
    size_t looked = 0, there = 0;

    for (size_t first = 0; first < pieces; first += of) {
        size_t piece = first + spr_hash_u32(first) % spr_min_size(of, pieces - first);
        size_t begin = piece * PIECE, end = spr_min_size(begin + PIECE, n);
        for (size_t i = begin; i < end; i++)
            there += sum[i] != 0;
        looked += end - begin;
    }
    return looked ? (size_t)((double)there / (double)looked * (double)n) : 0;
}

static bool is_dense(const char *algorithm)
{
    return algorithm && !strcmp(algorithm, spr_sparse_dense.name);
}

/* A step is summed as the one before is not. */
static void tell(const spr_request *rq, const struct spr_codec_history *before)
{
    bool dense = is_dense(rq->posted.algorithm);
    char grown[64] = "";

    if (rq->comm->rank != 0 || dense == is_dense(before->algorithm))
        return;
    if (before->union_entries)
        snprintf(grown, sizeof grown, "; the union before had %zu entries", before->union_entries);
    spr_info(SPR_SUB_COLL, "codec %s, %zu elements: summed as %s from operation %u on%s",
             spr_codec_spec(rq->codec), rq->plan.count, dense ? "a dense vector" : "lists",
             rq->operation, grown);
}

void spr_history_add(const spr_request *rq)
{
    struct spr_codec_history *history = spr_codec_history(rq->codec);

    if (history->era != rq->comm->era)
        *history = (struct spr_codec_history){.era = rq->comm->era};
    tell(rq, history);
    history->algorithm = rq->posted.algorithm;
    if (is_dense(history->algorithm))
        history->union_entries = estimate_union(rq->plan.dense, rq->plan.count);
    else if (rq->union_entries)
        history->union_entries = rq->union_entries;
}
