/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Index coder "auto": the one that takes the least time for this list over this link.
 *
 *   time = count * (encode + decode) + universe * position + 8 * bytes / rate
 *
 * with the measured costs of spr_index_costs and the exact bytes of each, from one pass over the
 * list. Clocks and loads have no part in it, so equal lists and rates give equal bytes.
 */
#include "compress/indices/coder.h"

/* One core of a server of 2023 (Sapphire Rapids, AVX2), lists of 64 Ki indices, uniform, 1 %.
 * Others are slower or faster by much the same factor for all of them. */
const struct spr_index_cost spr_index_costs[SPR_INDEX_IDS] = {
    [SPR_INDEX_U32] = {0.08f, 0.21f, 0},       [SPR_INDEX_U16] = {0.45f, 0.2f, 0},
    [SPR_INDEX_BITMAP] = {1.1f, 0, 0.145f},    [SPR_INDEX_BITPACK] = {0.18f, 0.24f, 0},
    [SPR_INDEX_ELIASFANO] = {0.45f, 0.55f, 0}, [SPR_INDEX_GOLOMB] = {1.9f, 3.2f, 0},
};

enum spr_index_id spr_index_choose(const uint64_t bytes[SPR_INDEX_IDS], size_t count,
                                   uint64_t universe, double rate, uint64_t room)
{
    enum spr_index_id best = SPR_INDEX_U32;
    double least = -1;

    for (int id = 0; id < SPR_INDEX_IDS; id++) {
        const struct spr_index_cost *cost = &spr_index_costs[id];
        double ns = (double)count * ((double)cost->encode_ns + (double)cost->decode_ns) +
                    (double)universe * (double)cost->position_ns + 8e9 * (double)bytes[id] / rate;

        if (bytes[id] <= room && (least < 0 || ns < least)) {
            least = ns;
            best = (enum spr_index_id)id;
        }
    }
    return best;
}

/* As much as the plain numbers take, so that no fast link is without them; more where lists are so
 * short that blocks take it. */
static size_t auto_room(uint64_t universe, size_t count)
{
    return spr_max_size(spr_index_u32.bound(universe, count),
                        spr_index_eliasfano.bound(universe, count));
}

static size_t auto_bound(uint64_t universe, size_t count)
{
    return auto_room(universe, count) + SPR_INDEX_OVERRUN;
}

static size_t auto_encode(const struct spr_index_options *options, const uint32_t *index,
                          size_t count, uint64_t universe, uint8_t *out)
{
    uint64_t bytes[SPR_INDEX_IDS];

    spr_index_sizes(index, count, universe, bytes);
    enum spr_index_id id =
        spr_index_choose(bytes, count, universe, options->rate, 1 + auto_bound(universe, count));
    out[-1] = (uint8_t)id;
    return spr_index_encode_positions(spr_index_coder_at(id), options, index, count, universe, out);
}

/* No bytes say that they are of this coder. */
static size_t auto_decode(struct spr_index_cursor *c, uint32_t *index, size_t room)
{
    (void)index;
    (void)room;
    return spr_index_fail(c, "indices: unknown coder");
}

static const struct spr_opt auto_options[] = {
    {
        .name = "rate",
        .default_value = "10gbit",
        .doc = "speed of the link that the bytes of the indices are weighed with",
        .type = SPR_OPT_RATE,
        .offset = offsetof(struct spr_index_options, rate),
        .min = 1,
        .max = 1e15,
    },
};

const struct spr_index_coder spr_index_auto = {
    .id = SPR_INDEX_U32, /* of an empty list */
    .name = "auto",
    .doc = "the quickest for the list and the speed of the link",
    .options = auto_options,
    .option_count = SPR_ARRAY_LEN(auto_options),
    .bound = auto_bound,
    .encode = auto_encode,
    .fixed_bytes = spr_index_no_fixed_bytes,
    .block_bytes = spr_index_no_block_bytes,
    .open = spr_index_no_header,
    .decode = auto_decode,
};
