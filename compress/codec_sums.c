/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sums that are rounded, as the values were or by a coder of their own. Where a rank has summed
 * elements of a step and sends them on as that coder makes them, what it loses goes into the rank's
 * own residual, since nobody else knows of it: sums' = round(sum), residual += sum - sums'. So it
 * does where ranks of one host sum vectors before they are coded (spr_codec_sums_first()), and with
 * those of a host's sums that are not sent to others (union=hosts, after the merges of Shi et al.
 * 2019, "gTop-k", which lose what one of them leaves out of an index that another one keeps). Over
 * all ranks, what was sent and what stays is what went in (after Tang et al. 2019, "DoubleSqueeze",
 * whose server has a residual of its own for this).
 *
 * A step that is committed may be revoked, so this enters the residual late: when the next step
 * begins, or when somebody looks at it. Until then it is only listed; after somebody has looked,
 * what was there before is. A revoke gives the residual as it was, to the bit; beneath a later
 * step, the amount is taken off again.
 */
#include "compress/codec_internal.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/util.h"
#include "compress/kernels/kernels.h"

/* Elements of sums that this rank rounds, at most. */
static size_t most_of(const spr_codec *codec, const struct spr_codec_place *place)
{
    bool rounds = place->blocks.ranks > 1 && codec->sum_vtype != SPR_V_FP32;
    size_t own = rounds ? (size_t)spr_blocks_local(&place->blocks, place->rank) : 0;

    return spr_max_size(own, place->most_lost);
}

/* Windows of so many, of which each owner may have a short one. */
static size_t most_windows(const struct spr_codec_place *place, size_t elements)
{
    return elements / SPR_WINDOW + place->blocks.ranks + 1;
}

/* Is there a residual for what sums lose, and does the codec code sums at all? */
static bool may_round(const spr_codec *codec)
{
    if (spr_codec_feedback(codec)->rule == SPR_FEEDBACK_OFF)
        return false;
    if (codec->selection->selector)
        return spr_codec_sends_lists(codec);
    return codec->vtype == SPR_V_CODED && !(codec->traits & SPR_VALUES_RANDOM);
}

void spr_codec_sums_choose(spr_codec *codec)
{
    static const struct spr_value_coder *const coders[] = {
        [SPR_SUMS_EXACT] = &spr_value_fp32, [SPR_SUMS_FP16] = &spr_value_fp16,
        [SPR_SUMS_BF16] = &spr_value_bf16,  [SPR_SUMS_INT8] = &spr_value_int8,
        [SPR_SUMS_INT4] = &spr_value_int4,
    };
    int sums = may_round(codec) ? spr_codec_feedback(codec)->sums : SPR_SUMS_EXACT;

    if (sums == SPR_SUMS_ROUNDED && codec->traits & SPR_VALUES_RANDOM)
        sums = SPR_SUMS_EXACT;
    codec->sum_coder = sums == SPR_SUMS_ROUNDED ? codec->coder : coders[sums];
    if (sums == SPR_SUMS_ROUNDED)
        memcpy(codec->sum_options, codec->coder_options, sizeof codec->sum_options);
    else
        spr_opt_defaults(codec->sum_coder->options, codec->sum_coder->option_count,
                         codec->sum_options, NULL);
    codec->sum_vtype = spr_codec_vtype_of(codec->sum_coder);
}

enum spr_vtype spr_codec_sum_vtype(const spr_codec *codec) { return codec->sum_vtype; }

struct spr_coding spr_codec_sum_coding(const spr_codec *codec)
{
    return (struct spr_coding){.coder = codec->sum_coder, .options = codec->sum_options};
}

bool spr_codec_bounds_union(const spr_codec *codec)
{
    return spr_codec_sends_lists(codec) && spr_codec_feedback(codec)->joined == SPR_UNION_BOUNDED;
}

bool spr_codec_bounds_hosts(const spr_codec *codec)
{
    return spr_codec_sends_lists(codec) && spr_codec_feedback(codec)->joined == SPR_UNION_HOSTS;
}

void spr_codec_sums_take_back(spr_codec *codec, const float *result)
{
    struct spr_codec_lost *lost = &codec->lost[codec->slot];

    for (size_t i = 0; i < lost->count; i++)
        if (spr_magnitude(result[lost->index[i]]) == 0)
            lost->value[i] = 0;
}

spr_status spr_codec_sums_open(spr_codec *codec, int slot, const struct spr_codec_place *place)
{
    size_t most = most_of(codec, place), windows = most_windows(place, most);
    struct spr_codec_lost *lost = &codec->lost[slot];
    bool lists = spr_codec_sends_lists(codec);

    lost->count = lost->windows = 0;
    lost->state = SPR_LOST_LISTED;
    if (most <= lost->room && (lists || most == 0 || windows <= lost->window_room))
        return SPR_OK;
    spr_codec_sums_close(codec, slot);
    lost->room = most;
    lost->value = spr_pages_alloc(most * sizeof *lost->value);
    if (lists)
        lost->index = spr_pages_alloc(most * sizeof *lost->index);
    else
        lost->window = spr_calloc(windows, sizeof *lost->window);
    lost->window_room = lost->window ? windows : 0;
    if (lost->value && (lost->index || lost->window))
        return SPR_OK;
    spr_codec_sums_close(codec, slot);
    return spr_error_set(spr_thread_error(), SPR_ERR_NOMEM, -1,
                         "no memory for codec %s: %zu elements whose sums are rounded", codec->spec,
                         most);
}

void spr_codec_sums_close(spr_codec *codec, int slot)
{
    struct spr_codec_lost *lost = &codec->lost[slot];

    spr_pages_free(lost->value, lost->room * sizeof *lost->value);
    spr_pages_free(lost->index, lost->room * sizeof *lost->index);
    spr_free(lost->window);
    *lost = (struct spr_codec_lost){0};
}

void spr_codec_keep_rest(spr_codec *codec, const struct spr_codec_rest *r, float weight)
{
    struct spr_codec_lost *lost = &codec->lost[codec->slot];
    uint64_t begin = (uint64_t)r->window << SPR_WINDOW_LOG2;
    float *value = lost->value + lost->count;

    assert(lost->count + r->count <= lost->room);
    for (size_t i = 0; i < r->count; i++)
        value[i] = r->rest[i] * weight;
    for (size_t i = 0; lost->index && i < r->count; i++)
        lost->index[lost->count + i] =
            (uint32_t)spr_blocks_global(r->blocks, r->owner, begin + r->pos[i]);
    lost->count += r->count;
    if (lost->index)
        return;
    assert(lost->windows < lost->window_room);
    lost->blocks = *r->blocks;
    lost->window[lost->windows++] = (struct spr_codec_window){r->owner, r->window};
}

/* One element: what happens to it, and what the list has of it then. */
static inline void move(float *residual, float *value, enum spr_codec_lost_state from,
                        enum spr_codec_lost_state to)
{
    float before = *residual, listed = *value;

    switch (to) {
    case SPR_LOST_SHOWN: /* from LISTED */
        *residual = before + listed;
        *value = before;
        break;
    case SPR_LOST_ADDED:
        if (from == SPR_LOST_LISTED)
            *residual = before + listed;
        else
            *value = before - listed;
        break;
    case SPR_LOST_LISTED: /* back */
        *residual = from == SPR_LOST_SHOWN ? listed : before - listed;
        break;
    }
}

static void move_all(spr_codec *codec, int slot, enum spr_codec_lost_state to)
{
    struct spr_codec_lost *lost = &codec->lost[slot];
    enum spr_codec_lost_state from = lost->state;

    lost->state = to;
    if (lost->count == 0)
        return;
    codec->residual_zero = false;
    if (lost->index) {
        for (size_t i = 0; i < lost->count; i++)
            move(&codec->residual[lost->index[i]], &lost->value[i], from, to);
        return;
    }
    float *value = lost->value;
    for (size_t w = 0; w < lost->windows; w++) {
        const struct spr_codec_window *at = &lost->window[w];
        struct spr_blocks_runs runs = spr_blocks_runs(&lost->blocks, NULL, at->owner, at->window);

        for (size_t first, end; spr_blocks_run(&runs, &first, &end);)
            for (size_t i = first; i < end; i++)
                move(&codec->residual[i], value++, from, to);
    }
}

void spr_codec_sums_show(spr_codec *codec)
{
    if (codec->committed >= 0 && codec->lost[codec->committed].state == SPR_LOST_LISTED)
        move_all(codec, codec->committed, SPR_LOST_SHOWN);
}

void spr_codec_sums_add(spr_codec *codec)
{
    if (codec->committed >= 0 && codec->lost[codec->committed].state != SPR_LOST_ADDED)
        move_all(codec, codec->committed, SPR_LOST_ADDED);
}

void spr_codec_sums_revoke(spr_codec *codec)
{
    struct spr_codec_lost *lost = &codec->lost[codec->committed];

    if (lost->state != SPR_LOST_LISTED)
        move_all(codec, codec->committed, SPR_LOST_LISTED);
    lost->count = 0;
}

void spr_codec_sums_forget(spr_codec *codec)
{
    for (int slot = 0; slot < 2; slot++)
        codec->lost[slot].count = 0;
}
