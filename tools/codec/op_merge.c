/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What an owner does in a sparse reduce-scatter: the chunks of 8 ranks are added window by window,
 * in the order of ranks, and the union is taken out. The lists are drawn independently, at the
 * density; the owner has an eighth of the vector, so the inputs are about density x n.
 */
#include "tools/codec/operations.h"

#include "compress/kernels/kernels.h"
#include "tools/codec/wire.h"

struct merge {
    struct wire wire[WIRE_RANKS]; /* the lists of all owners; only those for owner 0 are used */
    float *accumulator, *value, *sums;
    uint64_t *touched;
    uint16_t *position;
    size_t inputs, entries;
    double checksum; /* of the union */
};

/* Is the position in the rank's list? And its value. */
static bool drawn(const struct trial *trial, uint32_t rank, size_t i, float *value)
{
    uint32_t bits = spr_hash_u32(trial->vector->seed * 0x9e3779b97f4a7c15u + i * WIRE_RANKS + rank);

    *value = trial->vector->x[(i + rank) % trial->vector->n];
    return bits < (uint32_t)(trial->density * 0xffffffff);
}

static bool draw_list(struct trial *trial, uint32_t rank, uint32_t *index, float *value,
                      struct spr_error *error)
{
    struct merge *s = trial->state;
    struct spr_codec_step step = {.index = index, .value = value};
    size_t n = trial->vector->n;

    if (wire_open(&s->wire[rank], n, (size_t)(2 * trial->density * (double)n) + 1000, error) !=
        SPR_OK)
        return false;
    for (size_t i = 0; i < n; i++) {
        index[step.count] = (uint32_t)i;
        step.count += drawn(trial, rank, i, &value[step.count]);
    }
    wire_encode(&s->wire[rank], &step);
    return true;
}

static bool merge_setup(struct trial *trial, struct spr_error *error)
{
    struct merge *s = trial_pages(trial, sizeof(*s), error);
    size_t n = trial->vector->n;
    uint32_t *index;
    float *value;

    if (!s)
        return false;
    trial->state = s;
    if (!(s->accumulator = trial_pages(trial, SPR_WINDOW * sizeof(float), error)) ||
        !(s->touched = trial_pages(trial, SPR_WINDOW / 8, error)) ||
        !(s->value = trial_pages(trial, (SPR_WINDOW + 16) * sizeof(float), error)) ||
        !(s->position = trial_pages(trial, (SPR_WINDOW + 16) * sizeof(uint16_t), error)) ||
        !(s->sums = trial_pages(trial, n * sizeof(float), error)) ||
        !(index = trial_pages(trial, (n + 1) * sizeof(*index), error)) ||
        !(value = trial_pages(trial, (n + 1) * sizeof(*value), error)))
        return false;
    for (uint32_t rank = 0; rank < WIRE_RANKS; rank++)
        if (!draw_list(trial, rank, index, value, error))
            return false;
    return true;
}

static void merge_close(struct trial *trial)
{
    struct merge *s = trial->state;

    for (uint32_t rank = 0; s && rank < WIRE_RANKS; rank++)
        wire_close(&s->wire[rank]);
}

/* A rank's chunks for owner 0: the current one, and where the next one is. */
struct stream {
    struct spr_chunk chunk;
    size_t at;
    uint32_t until; /* window after the current chunk's last */
};

static bool advance(const struct wire *wire, struct stream *stream, uint32_t window)
{
    const char *why;

    if (window < stream->until)
        return true;
    size_t bytes = wire_chunk_bytes(wire, stream->at);
    if (stream->at + bytes > wire->end[0] ||
        spr_chunk_open(&stream->chunk, wire->bytes + stream->at, bytes, &wire->blocks, 0, window,
                       wire_coding(wire), &why) != SPR_OK)
        return false;
    stream->at += bytes;
    stream->until = window + stream->chunk.windows;
    return true;
}

/* keep: the sums go to s->sums, for the check. */
static bool merge_all(struct merge *s, bool keep)
{
    const struct spr_blocks *blocks = &s->wire[0].blocks;
    uint32_t windows = spr_blocks_windows(blocks, 0);
    struct stream streams[WIRE_RANKS] = {{.at = 0}};

    s->inputs = s->entries = 0;
    for (uint32_t w = 0; w < windows; w++) {
        for (uint32_t rank = 0; rank < WIRE_RANKS; rank++) {
            if (!advance(&s->wire[rank], &streams[rank], w))
                return false;
            spr_chunk_add(&streams[rank].chunk, s->accumulator, s->touched);
        }
        size_t count = spr_window_harvest(
            s->accumulator, s->touched, spr_blocks_window_len(blocks, 0, w), s->position, s->value);
        s->entries += count;
        for (size_t i = 0; keep && i < count; i++)
            s->sums[spr_blocks_global(blocks, 0, (uint64_t)w * SPR_WINDOW + s->position[i])] =
                s->value[i];
    }
    return true;
}

static void merge_run(struct trial *trial, int slice, int slices)
{
    struct merge *s = trial->state;

    (void)slice;
    (void)slices;
    if (!merge_all(s, false))
        s->entries = 0; /* check() sees it */
}

static bool merge_check(struct trial *trial, struct spr_error *error)
{
    struct merge *s = trial->state;
    const struct spr_blocks *blocks = &s->wire[0].blocks;
    size_t entries = s->entries, expected = 0;
    bool right = merge_all(s, true) && entries == s->entries;

    for (uint64_t local = 0; local < spr_blocks_local(blocks, 0); local++) {
        size_t i = (size_t)spr_blocks_global(blocks, 0, local), inputs = 0;
        float sum = 0, value;
        for (uint32_t rank = 0; rank < WIRE_RANKS; rank++)
            if (drawn(trial, rank, i, &value)) {
                sum += value;
                inputs++;
            }
        expected += inputs > 0;
        s->inputs += inputs;
        right &= inputs == 0 || s->sums[i] == sum || isnan(sum);
    }
    trial->items = (double)s->inputs;
    if (!right || entries != expected)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "a wrong sum, or a wrong union") == SPR_OK;
    return true;
}

void op_merge_add(struct operations *list)
{
    struct operation row = {.reference = REFERENCE_READ,
                            .by_density = true,
                            .next = one_phase,
                            .setup = merge_setup,
                            .prepare = no_prepare,
                            .run = merge_run,
                            .check = merge_check,
                            .close = merge_close};

    operations_add(list, &row, "merge of 8");
}
