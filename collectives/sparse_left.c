/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/sparse_left.h"

#include <math.h>

#include "base/util.h"
#include "compress/codec.h"

static bool make_entries(spr_request *rq, struct spr_topk_entries *e, size_t span)
{
    e->pos = spr_arena_buffer(&rq->arena, span * sizeof *e->pos);
    e->value = spr_arena_buffer(&rq->arena, span * sizeof *e->value);
    return e->pos && e->value;
}

bool spr_left_make(spr_request *rq, struct spr_left *l, size_t span)
{
    l->largest = spr_arena_buffer(&rq->arena, spr_topk_keep_scratch(span) * sizeof *l->largest);
    return l->largest && make_entries(rq, &l->other, span) && make_entries(rq, &l->own, span);
}

size_t spr_left_take(const struct spr_left *l, uint16_t *pos, float *val, size_t n, size_t entries,
                     int ranks, struct spr_topk_entries *left)
{
    if (!l->largest)
        return n;
    left->count = 0;
    return spr_topk_keep(pos, val, n, spr_div_ceil(entries, (size_t)ranks), left, l->largest);
}

void spr_left_keep(const spr_request *rq, uint32_t owner, uint32_t window,
                   const struct spr_topk_entries *left)
{
    const struct spr_sparse_state *s = rq->state;
    const struct spr_codec_rest r = {.blocks = &s->blocks,
                                     .owner = owner,
                                     .window = window,
                                     .pos = left->pos,
                                     .rest = left->value,
                                     .count = left->count};

    if (left->count == 0)
        return;
    for (size_t i = 0; i < left->count; i++) /* nothing of NaN and Inf, as in any residual */
        left->value[i] = isfinite(left->value[i]) ? left->value[i] : 0;
    spr_codec_keep_rest(rq->codec, &r, 1);
}

void spr_left_add_own(spr_request *rq, struct spr_left *l)
{
    const struct spr_sparse_state *s = rq->state;
    struct spr_topk_entries *own = &l->own;
    size_t n = 0;

    for (size_t i = 0; i < own->count; i++) {
        uint16_t pos = own->pos[i];
        if (s->touched[pos / 64] >> pos % 64 & 1) {
            s->accumulator[pos] += own->value[i];
            continue;
        }
        own->pos[n] = pos;
        own->value[n++] = own->value[i];
    }
    own->count = n;
    spr_left_keep(rq, (uint32_t)s->own, s->merged, own);
    own->count = 0;
}
