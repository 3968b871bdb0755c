/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The registry, and what all coders have in common: first byte, empty lists, cursors.
 */
#include "compress/indices/indices.h"

#include <assert.h>

#include "compress/indices/coder.h"

static const struct spr_index_coder *const coders[] = {
    [SPR_INDEX_U32] = &spr_index_u32,
    [SPR_INDEX_U16] = &spr_index_u16,
    [SPR_INDEX_BITMAP] = &spr_index_bitmap,
    [SPR_INDEX_BITPACK] = &spr_index_bitpack,
    [SPR_INDEX_ELIASFANO] = &spr_index_eliasfano,
    [SPR_INDEX_GOLOMB] = &spr_index_golomb,
    &spr_index_auto,
};

uint64_t spr_index_no_fixed_bytes(uint64_t universe, size_t count)
{
    (void)universe;
    (void)count;
    return 0;
}

size_t spr_index_no_block_bytes(const struct spr_index_block *block)
{
    (void)block;
    return 0;
}

void spr_index_no_header(struct spr_index_cursor *c) { (void)c; }

const struct spr_index_coder *spr_index_coder_at(size_t i)
{
    return i < SPR_ARRAY_LEN(coders) ? coders[i] : NULL;
}

const struct spr_index_coder *spr_index_coder_find(const char *name)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(coders); i++)
        if (strcmp(coders[i]->name, name) == 0)
            return coders[i];
    return NULL;
}

const char *spr_index_coder_name(const struct spr_index_coder *coder) { return coder->name; }

const char *spr_index_coder_doc(const struct spr_index_coder *coder) { return coder->doc; }

const char *spr_index_coder_paper(const struct spr_index_coder *coder) { return coder->paper; }

const struct spr_opt *spr_index_coder_options(const struct spr_index_coder *coder, size_t *n)
{
    *n = coder->option_count;
    return coder->options;
}

/* ---- Encode ---- */

size_t spr_index_bound(const struct spr_index_coder *coder, uint64_t universe, size_t count)
{
    return 1 + (count > 0 ? coder->bound(universe, count) : 0);
}

size_t spr_index_encode_positions(const struct spr_index_coder *coder,
                                  const struct spr_index_options *options, const uint32_t *index,
                                  size_t count, uint64_t universe, uint8_t *out)
{
    uint8_t *at = out;

    if (coder->encode)
        return coder->encode(options, index, count, universe, out);
    for (size_t i = 0; i < count; i += SPR_INDEX_BLOCK) {
        uint32_t first = i > 0 ? index[i - 1] + 1 : 0;

        at = coder->encode_block(index + i, spr_min_size(SPR_INDEX_BLOCK, count - i), first, at);
    }
    return (size_t)(at - out);
}

size_t spr_index_encode(const struct spr_index_coder *coder,
                        const struct spr_index_options *options, const uint32_t *index,
                        size_t count, uint64_t universe, void *out)
{
    uint8_t *bytes = out;

    assert(universe <= UINT64_C(1) << 32 && count <= universe);
    assert(count == 0 || index[count - 1] < universe);
    *bytes = (uint8_t)coder->id;
    return 1 + (count > 0
                    ? spr_index_encode_positions(coder, options, index, count, universe, bytes + 1)
                    : 0);
}

bool spr_index_has_blocks(const struct spr_index_coder *coder) { return coder->encode_block; }

void spr_index_begin(struct spr_index_writer *w, const struct spr_index_coder *coder, void *out)
{
    w->coder = coder;
    w->first = 0;
    w->have = 0;
    w->eliasfano = 1;
    w->at = out;
    *w->at++ = (uint8_t)coder->id;
}

static void flush(struct spr_index_writer *w)
{
    uint32_t last = w->block[w->have - 1];
    struct spr_index_block block = {.n = w->have,
                                    .spread = last - w->first - (uint32_t)(w->have - 1)};

    w->at = w->coder->encode_block(w->block, w->have, w->first, w->at);
    w->eliasfano += spr_index_eliasfano.block_bytes(&block);
    w->first = last + 1;
    w->have = 0;
}

void spr_index_put(struct spr_index_writer *w, const uint16_t *position, size_t n, uint32_t base)
{
    while (n > 0) {
        size_t fits = spr_min_size(n, SPR_INDEX_BLOCK - w->have);

        for (size_t i = 0; i < fits; i++)
            w->block[w->have + i] = base + position[i];
        w->have += fits;
        position += fits;
        n -= fits;
        if (w->have == SPR_INDEX_BLOCK)
            flush(w);
    }
}

uint8_t *spr_index_end(struct spr_index_writer *w)
{
    if (w->have > 0)
        flush(w);
    return w->at;
}

void spr_index_sizes(const uint32_t *index, size_t count, uint64_t universe,
                     uint64_t bytes[SPR_INDEX_IDS])
{
    const struct spr_indices_kernels *kernels = spr_indices_kernels();
    uint32_t gap[SPR_INDEX_BLOCK], first = 0;

    for (size_t id = 0; id < SPR_INDEX_IDS; id++)
        bytes[id] = 1 + (count > 0 ? coders[id]->fixed_bytes(universe, count) : 0);
    for (size_t i = 0; i < count; i += SPR_INDEX_BLOCK) {
        struct spr_index_block block = {.gap = gap, .n = spr_min_size(SPR_INDEX_BLOCK, count - i)};
        uint32_t last = index[i + block.n - 1];

        block.any = kernels->gaps(index + i, block.n, first, gap);
        block.spread = last - first - (uint32_t)(block.n - 1);
        first = last + 1;
        for (size_t id = 0; id < SPR_INDEX_IDS; id++)
            bytes[id] += coders[id]->block_bytes(&block);
    }
}

/* ---- Decode ---- */

spr_status spr_index_open(struct spr_index_cursor *c, const void *bytes, size_t size,
                          uint64_t universe, size_t count, const char **why)
{
    const uint8_t *at = bytes;

    assert(universe <= UINT64_C(1) << 32);
    *c = (struct spr_index_cursor){.universe = universe, .left = count};
    if (size == 0)
        c->why = "indices: no bytes";
    else if (*at >= SPR_INDEX_IDS)
        c->why = "indices: unknown coder";
    else if (count > universe)
        c->why = "indices: more than there are positions";
    else if (count == 0 && size > 1)
        c->why = "indices: bytes for none";
    if (!c->why) {
        c->coder = coders[*at];
        c->at = at + 1;
        c->end = at + size;
        if (count > 0)
            c->coder->open(c);
    }
    if (!c->why)
        return SPR_OK;
    *why = c->why;
    return SPR_ERR_PROTO;
}

static size_t decode(struct spr_index_cursor *c, uint32_t *index, size_t room)
{
    size_t n = c->coder->decode(c, index, room);

    if (c->why)
        return 0;
    c->left -= n;
    if (c->left == 0 && c->at < c->end)
        return spr_index_fail(c, "indices: bytes are left over");
    return n;
}

spr_status spr_index_decode(const void *bytes, size_t size, uint64_t universe, size_t count,
                            uint32_t *index, const char **why)
{
    struct spr_index_cursor c;
    spr_status status = spr_index_open(&c, bytes, size, universe, count, why);

    while (status == SPR_OK && c.left > 0) {
        index += decode(&c, index, (size_t)c.left);
        if (c.why) {
            *why = c.why;
            status = SPR_ERR_PROTO;
        }
    }
    return status;
}

/* What a cursor has decoded is taken: the next block. */
static void refill(struct spr_index_cursor *c)
{
    c->taken = 0;
    c->have = c->left > 0 && !c->why ? decode(c, c->buffer, SPR_INDEX_BLOCK) : 0;
}

spr_status spr_index_check(const void *bytes, size_t size, uint64_t universe, size_t count,
                           const char **why)
{
    struct spr_index_cursor c;
    spr_status status = spr_index_open(&c, bytes, size, universe, count, why);

    while (status == SPR_OK && c.left > 0) {
        refill(&c);
        if (c.why) {
            *why = c.why;
            status = SPR_ERR_PROTO;
        }
    }
    return status;
}

size_t spr_index_next(struct spr_index_cursor *c, uint64_t limit, const uint32_t **index)
{
    if (c->taken == c->have)
        refill(c);
    size_t left = c->have - c->taken, n = left;

    *index = c->buffer + c->taken;
    if (left > 0 && (*index)[left - 1] >= limit)
        for (n = 0; (*index)[n] < limit;)
            n++;
    c->taken += n;
    return n;
}
