/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/wire.h"

#include <string.h>

#include "base/mem.h"
#include "compress/chunk_layout.h"
#include "compress/value.h"

/* Of a chunk: as sparse collectives cut them. */
#define TARGET_BYTES ((size_t)64 << 10)
#define MAX_ENTRIES (SPR_WINDOW + TARGET_BYTES / 6 + 64)

static uint32_t most_windows(const struct wire *wire)
{
    return spr_blocks_windows(&wire->blocks, 0);
}

struct spr_codec_place wire_place(struct wire *wire, size_t count)
{
    wire->blocks = spr_blocks_choose(count, WIRE_RANKS);
    return (struct spr_codec_place){.blocks = wire->blocks, .leaves_rest = true};
}

spr_status wire_open(struct wire *wire, size_t n, size_t count, struct spr_error *error)
{
    *wire = (struct wire){0};
    wire->blocks = spr_blocks_choose(n, WIRE_RANKS);
    /* No chunk is larger than in its U16 format, no dense step larger than fp32, no coded value in
     * the worst case much larger. */
    size_t sparse = 6 * count + (size_t)WIRE_RANKS * most_windows(wire) * 64;
    wire->room = 2 * spr_max_size(sparse, n * sizeof(float)) + TARGET_BYTES;
    wire->offsets = spr_malloc((spr_blocks_count(&wire->blocks) + 1) * sizeof(uint32_t));
    wire->scratch = spr_aligned_alloc(
        64, spr_align_up(spr_chunk_writer_scratch(most_windows(wire) + 1, MAX_ENTRIES), 64));
    wire->bytes = spr_pages_alloc(wire->room);
    wire->values = spr_malloc((SPR_WINDOW + 16) * sizeof(float));
    if (wire->offsets && wire->scratch && wire->bytes && wire->values)
        return SPR_OK;
    wire_close(wire);
    return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for %zu elements on the wire", n);
}

void wire_close(struct wire *wire)
{
    spr_free(wire->offsets);
    spr_free(wire->scratch);
    spr_free(wire->values);
    spr_pages_free(wire->bytes, wire->room);
    *wire = (struct wire){0};
}

/* All chunks for an owner, at `at`; returns where they end. */
static size_t encode_owner(struct wire *wire, const struct spr_codec_step *step, uint32_t owner,
                           size_t at)
{
    const uint32_t *offsets = step->dense ? NULL : wire->offsets;
    const float *value = step->dense ? step->vector : step->value;
    uint32_t windows = spr_blocks_windows(&wire->blocks, owner), next = 0;
    struct spr_chunk_writer w;

    spr_chunk_writer_init(&w, &wire->blocks, owner, most_windows(wire) + 1, MAX_ENTRIES,
                          wire->scratch);
    w.coding = &wire->coding;
    w.indices = wire->indices;
    while (next < windows) {
        spr_chunk_writer_begin(&w, next);
        for (; next < windows; next++) {
            size_t n = spr_blocks_gather_count(&wire->blocks, offsets, owner, next);
            if (w.windows && ((w.count + n) * 6 > TARGET_BYTES || !spr_chunk_writer_room(&w, n)))
                break;
            n = spr_blocks_gather(&wire->blocks, offsets, step->index, value, owner, next,
                                  w.pos + w.count, w.val + w.count);
            spr_chunk_writer_window(&w, n);
        }
        size_t bytes =
            spr_chunk_writer_finish(&w, wire->vtype, -1, next == windows ? SPR_CHUNK_LAST : 0,
                                    wire->bytes + at, wire->room - at);
        if (step->rest) { /* as collectives/sparse.c does it */
            spr_chunk_leave_rest(&w, wire_coding(wire), wire->bytes + at, bytes);
            spr_chunk_scatter(&w, step->rest);
        }
        at += bytes;
    }
    return at;
}

static size_t encode_dense(struct wire *wire, const float *vector)
{
    size_t n = wire->blocks.elements;

    memset(wire->end, 0, sizeof(wire->end));
    if (wire->vtype == SPR_V_FP16)
        spr_fp16_encode(vector, (uint16_t *)(void *)wire->bytes, n);
    else if (wire->vtype == SPR_V_BF16)
        spr_bf16_encode(vector, (uint16_t *)(void *)wire->bytes, n);
    else
        memcpy(wire->bytes, vector, n * sizeof(float));
    return n * spr_vtype_bytes(wire->vtype);
}

size_t wire_encode(struct wire *wire, const struct spr_codec_step *step)
{
    size_t at = 0;

    wire->vtype = step->vtype;
    wire->coding = step->coding;
    wire->coding.values = wire->values;
    if (step->dense && step->vtype != SPR_V_CODED)
        return encode_dense(wire, step->vector);
    if (!step->dense)
        spr_blocks_offsets(&wire->blocks, step->index, step->count, wire->offsets);
    for (uint32_t owner = 0; owner < WIRE_RANKS; owner++)
        wire->end[owner] = at = encode_owner(wire, step, owner, at);
    return at;
}

const struct spr_coding *wire_coding(const struct wire *wire)
{
    return wire->vtype == SPR_V_CODED ? &wire->coding : NULL;
}

size_t wire_chunk_bytes(const struct wire *wire, size_t at)
{
    struct spr_chunk_header header;

    if (wire->room - at < sizeof(header))
        return wire->room;
    memcpy(&header, wire->bytes + at, sizeof(header));
    return sizeof(header) + header.payload_bytes;
}

spr_status wire_decode(const struct wire *wire, float *out, struct spr_error *error)
{
    size_t at = 0, n = wire->blocks.elements;

    if (wire->end[WIRE_RANKS - 1] == 0) {
        if (wire->vtype == SPR_V_FP16)
            spr_fp16_decode((const uint16_t *)(const void *)wire->bytes, out, n);
        else if (wire->vtype == SPR_V_BF16)
            spr_bf16_decode((const uint16_t *)(const void *)wire->bytes, out, n);
        else
            memcpy(out, wire->bytes, n * sizeof(float));
        return SPR_OK;
    }
    for (uint32_t owner = 0; owner < WIRE_RANKS; owner++) {
        for (uint32_t first = 0; at < wire->end[owner];) {
            struct spr_chunk chunk;
            const char *why = "";
            size_t bytes = wire_chunk_bytes(wire, at);
            if (at + bytes > wire->end[owner] ||
                spr_chunk_open(&chunk, wire->bytes + at, bytes, &wire->blocks, owner, first,
                               wire_coding(wire), &why) != SPR_OK)
                return spr_error_set(error, SPR_ERR_PROTO, -1, "a chunk cannot be read: %s", why);
            for (uint32_t i = 0; i < chunk.windows; i++)
                spr_chunk_fill(&chunk, out);
            first += chunk.windows;
            at += bytes;
        }
    }
    return SPR_OK;
}
