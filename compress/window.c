/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Visiting the windows of a validated chunk. Entries come in batches of positions and fp32 values,
 * which lie in the chunk itself where its format allows and in a buffer on the stack where not.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "compress/chunk.h"
#include "compress/chunk_layout.h"
#include "compress/kernels/kernels.h"
#include "compress/kernels/values.h"

#define BATCH 256 /* entries; a multiple of 64 */

struct visit {
    uint32_t window; /* absolute */
    uint32_t len;    /* positions in it */
    uint32_t at;     /* U16: entries done; BITMAP, DENSE: positions done */
    /* Values that are there as fp32, in the chunk or, decoded, in scratch: from the entry on that
     * is the first of the window. NULL: they are decoded in batches. */
    const float *full;
    size_t full_entry, full_end; /* of the chunk; of those that can be read */
    const uint16_t *pos;
    const float *val;
    uint16_t pos_buffer[BATCH + SPR_KERNEL_SLACK];
    float val_buffer[BATCH + SPR_KERNEL_SLACK];
};

/* Coded values of the window. */
static void decode_window(struct spr_chunk *c, struct visit *v)
{
    const struct spr_coding *coding = c->coding;
    uint32_t i = v->window - c->first_window, entries = spr_chunk_window_entries(c, i);

    if (entries > 0)
        coding->coder->decode(coding->options, c->next_image, entries, SPR_DECODE_SET,
                              coding->values);
    c->next_image += spr_chunk_image_bytes(c, i, entries);
    v->full = coding->values;
    v->full_end = c->next_entry + entries;
}

static void visit_begin(struct spr_chunk *c, struct visit *v)
{
    assert(c->next_window < c->first_window + c->windows);
    v->window = c->next_window++;
    v->len = spr_blocks_window_len(c->blocks, c->owner, v->window);
    v->at = 0;
    v->full = NULL;
    v->full_entry = c->next_entry;
    v->full_end = c->count;
    if (c->vtype == SPR_V_FP32)
        v->full = (const float *)c->values + c->next_entry;
    else if (c->vtype == SPR_V_CODED)
        decode_window(c, v);
}

/* The values that have not been visited, and how many can be read. */
static const float *full_values(const struct spr_chunk *c, const struct visit *v, size_t *readable)
{
    *readable = v->full_end - c->next_entry;
    return v->full + (c->next_entry - v->full_entry);
}

/* ---- Positions of the next batch, one function per format; 0 = the window is done ---- */

static size_t next_u16(struct spr_chunk *c, struct visit *v)
{
    uint32_t left = c->per_window[v->window - c->first_window] - v->at;
    uint32_t n = left < BATCH ? left : BATCH;

    v->pos = c->pos16 + c->next_entry;
    v->at += n;
    return n;
}

static size_t next_u32(struct spr_chunk *c, struct visit *v)
{
    uint32_t start = (v->window - c->first_window) << SPR_WINDOW_LOG2;
    size_t n = 0;

    for (; n < BATCH && c->next_entry + n < c->count; n++) {
        uint32_t p = c->pos32[c->next_entry + n] - start;
        if (p >= v->len)
            break;
        v->pos_buffer[n] = (uint16_t)p;
    }
    v->pos = v->pos_buffer;
    return n;
}

static size_t next_bitmap(struct spr_chunk *c, struct visit *v)
{
    size_t n = 0;

    while (n == 0 && v->at < v->len) {
        size_t words = spr_min_size(BATCH / 64, spr_div_ceil(v->len - v->at, 64));

        n = spr_kernels()->positions((const char *)c->bitmap + c->next_word * 8, words, v->at,
                                     v->pos_buffer);
        c->next_word += words;
        v->at += BATCH;
    }
    v->pos = v->pos_buffer;
    return n;
}

static size_t next_dense(struct spr_chunk *c, struct visit *v)
{
    uint32_t n = v->len - v->at < BATCH ? v->len - v->at : BATCH;

    (void)c;
    for (uint32_t i = 0; i < n; i++)
        v->pos_buffer[i] = (uint16_t)(v->at + i);
    v->pos = v->pos_buffer;
    v->at += n;
    return n;
}

static size_t next_packed(struct spr_chunk *c, struct visit *v)
{
    uint32_t i = v->window - c->first_window, start = i << SPR_WINDOW_LOG2;
    const uint32_t *position;
    size_t n = spr_index_next(&c->positions, (uint64_t)(i + 1) << SPR_WINDOW_LOG2, &position);

    for (size_t k = 0; k < n; k++)
        v->pos_buffer[k] = (uint16_t)(position[k] - start);
    v->pos = v->pos_buffer;
    return n;
}

_Static_assert(SPR_INDEX_BLOCK <= BATCH, "a block of packed positions fits a batch");

static size_t (*const next_positions[SPR_CHUNK_FORMATS])(struct spr_chunk *, struct visit *) = {
    [SPR_CHUNK_U16] = next_u16,     [SPR_CHUNK_BITMAP] = next_bitmap, [SPR_CHUNK_U32] = next_u32,
    [SPR_CHUNK_DENSE] = next_dense, [SPR_CHUNK_PACKED] = next_packed,
};

/* The next n <= BATCH values as fp32. */
static const float *next_values(struct spr_chunk *c, struct visit *v, size_t n)
{
    const struct spr_kernels *kernels = spr_kernels();
    const uint16_t *half = (const uint16_t *)c->values + c->next_entry;
    size_t readable;
    const float *full = v->full ? full_values(c, v, &readable) : v->val_buffer;

    if (c->vtype == SPR_V_FP16)
        kernels->fp16_decode(half, v->val_buffer, n);
    else if (c->vtype == SPR_V_BF16)
        kernels->bf16_decode(half, v->val_buffer, n);
    c->next_entry += n;
    return full;
}

static size_t visit_next(struct spr_chunk *c, struct visit *v)
{
    size_t n = next_positions[c->format](c, v);

    if (n > 0)
        v->val = next_values(c, v, n);
    return n;
}

/* What visiting a window moves of the cursor, moves here. */
size_t spr_chunk_skip(struct spr_chunk *c)
{
    size_t n, before = c->next_entry;
    struct visit v;

    assert(c->vtype != SPR_V_CODED);
    visit_begin(c, &v);
    switch (c->format) {
    case SPR_CHUNK_U16:
    case SPR_CHUNK_BITMAP:
    case SPR_CHUNK_DENSE:
        c->next_entry += spr_chunk_window_entries(c, v.window - c->first_window);
        c->next_word += c->format == SPR_CHUNK_BITMAP ? spr_div_ceil(v.len, 64) : 0;
        break;
    default:
        while ((n = next_positions[c->format](c, &v)) > 0)
            c->next_entry += n;
    }
    return c->next_entry - before;
}

/* ---- Values alone ---- */

static void put_values(const float *val, size_t n, enum spr_decode how, float *out)
{
    switch (how) {
    case SPR_DECODE_SET:
        memcpy(out, val, n * sizeof(*out));
        break;
    case SPR_DECODE_ADD:
        spr_kernels()->sum(out, out, val, n);
        break;
    case SPR_DECODE_TAKE:
        for (size_t i = 0; i < n; i++)
            if (spr_magnitude(out[i]) >= 0x7f800000u)
                out[i] = 0;
            else if (!isnan(val[i]))
                out[i] -= val[i];
    }
}

size_t spr_chunk_values(struct spr_chunk *c, enum spr_decode how, float *out)
{
    uint32_t i = c->next_window - c->first_window;
    size_t n, total = 0;
    struct visit v;

    if (c->vtype == SPR_V_CODED && c->format == SPR_CHUNK_DENSE) { /* without a copy */
        total = spr_chunk_window_entries(c, i);
        c->coding->coder->decode(c->coding->options, c->next_image, total, how, out);
        c->next_image += spr_chunk_image_bytes(c, i, total);
        c->next_entry += total;
        c->next_window++;
        return total;
    }
    visit_begin(c, &v);
    for (; (n = visit_next(c, &v)) > 0; total += n)
        put_values(v.val, n, how, out + total);
    return total;
}

/* ---- Add ---- */

static void add_bitmap(struct spr_chunk *c, struct visit *v, float *acc, uint64_t *touched)
{
    const struct spr_kernels *kernels = spr_kernels();
    size_t words = spr_div_ceil(v->len, 64);
    const char *bits = (const char *)c->bitmap + c->next_word * 8;

    c->next_word += words;
    if (v->full) {
        size_t readable;
        const float *values = full_values(c, v, &readable);
        c->next_entry += kernels->add_bits(acc, touched, bits, words, values, readable);
        return;
    }
    for (size_t w = 0; w < words; w += BATCH / 64, bits += BATCH / 8) {
        size_t m = spr_min_size(BATCH / 64, words - w);
        size_t n = (size_t)kernels->popcount(bits, m);
        const float *values = next_values(c, v, n);

        kernels->add_bits(acc + w * 64, touched + w, bits, m, values, BATCH);
    }
}

static void add_dense(struct spr_chunk *c, struct visit *v, float *acc, uint64_t *touched)
{
    for (uint32_t at = 0; at < v->len; at += BATCH) {
        size_t n = spr_min_size(BATCH, v->len - at);

        spr_kernels()->sum(acc + at, acc + at, next_values(c, v, n), n);
    }
    memset(touched, 0xff, v->len / 64 * sizeof(*touched));
    if (v->len % 64)
        touched[v->len / 64] |= (UINT64_C(1) << (v->len % 64)) - 1;
}

size_t spr_chunk_add(struct spr_chunk *c, float *acc, uint64_t *touched)
{
    size_t n, before = c->next_entry;
    struct visit v;

    visit_begin(c, &v);
    switch (c->format) {
    case SPR_CHUNK_BITMAP:
        add_bitmap(c, &v, acc, touched);
        break;
    case SPR_CHUNK_DENSE:
        add_dense(c, &v, acc, touched);
        break;
    default:
        while ((n = visit_next(c, &v)) > 0)
            spr_kernels()->add_at(acc, touched, v.pos, v.val, n);
    }
    return c->next_entry - before;
}

/* ---- Positions in the whole vector ---- */

/* Where the positions of one window lie: block j of the window begins at base + j * stride. */
struct window_map {
    uint64_t base, stride;
    uint32_t log2, mask;
};

static struct window_map map_of(const struct spr_chunk *c, uint32_t window)
{
    const struct spr_blocks *b = c->blocks;

    return (struct window_map){
        .base = spr_blocks_global(b, c->owner, (uint64_t)window << SPR_WINDOW_LOG2),
        .stride = (uint64_t)b->ranks << b->block_log2,
        .log2 = b->block_log2,
        .mask = (1u << b->block_log2) - 1,
    };
}

static inline uint64_t map_global(const struct window_map *m, uint32_t pos)
{
    return m->base + (pos >> m->log2) * m->stride + (pos & m->mask);
}

/* Positions at .. at + *n of a window lie side by side, to the end of their block. */
static float *block_at(const struct window_map *m, float *dense, uint32_t at, uint32_t len,
                       uint32_t *n)
{
    uint32_t block = m->mask + 1 - (at & m->mask);

    *n = block < len - at ? block : len - at;
    return dense + map_global(m, at);
}

/* A window is written from its begin to its end, piece by piece of a block: in place, or, where the
 * result is too large to stay in a cache, put together in one and written past it. That is half the
 * traffic: of a line that a store misses, the memory is read first. */
#define PIECE 2048u /* positions, whole words of a bitmap; 8 KiB: in L1 */

struct fill {
    const struct spr_kernels *kernels;
    void (*stream)(const void *in, size_t bytes, void *out); /* NULL: in place */
    struct window_map map;
    float *dense;
    uint32_t len;        /* of the window */
    uint32_t begin, end; /* of the piece, in the window */
    float *place;        /* in the result */
    float *out;          /* where it is put together */
    _Alignas(64) float piece[PIECE];
};

static bool streams(uint64_t elements)
{
    return elements * sizeof(float) >= SPR_STREAM_BYTES && spr_values_kernels()->streams;
}

/* To the next piece. False: the window is done. */
static bool fill_next(struct fill *f)
{
    uint32_t n;

    if (f->stream)
        f->stream(f->piece, (f->end - f->begin) * sizeof(*f->piece), f->place);
    f->begin = f->end;
    if (f->begin == f->len)
        return false;
    f->out = f->place = block_at(&f->map, f->dense, f->begin, f->len, &n);
    if (f->stream) {
        n = n < PIECE ? n : PIECE;
        f->out = f->piece;
    }
    f->end = f->begin + n;
    return true;
}

static void fill_bitmap(struct spr_chunk *c, const struct visit *v, struct fill *f)
{
    while (fill_next(f)) {
        uint32_t n = f->end - f->begin;
        size_t readable;
        const float *values = full_values(c, v, &readable);

        c->next_entry += f->kernels->expand((const char *)c->bitmap + c->next_word * 8, n, values,
                                            readable, f->out);
        c->next_word += spr_div_ceil(n, 64);
    }
}

static void fill_dense(struct spr_chunk *c, const struct visit *v, struct fill *f)
{
    while (fill_next(f)) {
        uint32_t n = f->end - f->begin;
        size_t readable;

        memcpy(f->out, full_values(c, v, &readable), n * sizeof(*f->out));
        c->next_entry += n;
    }
}

/* Each piece is cleared just before it is written. */
static void fill_at(struct fill *f, const uint16_t *pos, const float *val, size_t n)
{
    for (size_t i = 0; i < n;) {
        while (f->end <= pos[i] && fill_next(f))
            f->kernels->clear(f->out, f->end - f->begin);
        for (; i < n && pos[i] < f->end; i++)
            f->out[pos[i] - f->begin] = val[i];
    }
}

static void fill_rest(struct fill *f)
{
    while (fill_next(f))
        f->kernels->clear(f->out, f->end - f->begin);
}

static void fill_entries(struct spr_chunk *c, struct visit *v, struct fill *f)
{
    size_t n;

    while ((n = visit_next(c, v)) > 0)
        fill_at(f, v->pos, v->val, n);
    fill_rest(f);
}

static void fill_begin(struct fill *f, struct window_map map, uint32_t len, uint64_t elements,
                       float *dense)
{
    f->kernels = spr_kernels();
    f->map = map;
    f->dense = f->place = dense;
    f->len = len;
    f->begin = f->end = 0;
    f->stream = streams(elements) ? spr_values_kernels()->stream : NULL;
}

static void fill_end(const struct fill *f)
{
    if (f->stream)
        spr_values_kernels()->fence();
}

void spr_chunk_fill(struct spr_chunk *c, float *dense)
{
    struct visit v;
    struct fill f;

    visit_begin(c, &v);
    fill_begin(&f, map_of(c, v.window), v.len, c->blocks->elements, dense);
    /* Blocks of whole words. */
    if (c->format == SPR_CHUNK_BITMAP && v.full && f.map.log2 >= 6)
        fill_bitmap(c, &v, &f);
    else if (c->format == SPR_CHUNK_DENSE && v.full)
        fill_dense(c, &v, &f);
    else
        fill_entries(c, &v, &f);
    fill_end(&f);
}

void spr_dense_fill(float *dense, uint64_t elements, uint32_t window, const uint16_t *pos,
                    const float *val, size_t n)
{
    uint64_t base = (uint64_t)window << SPR_WINDOW_LOG2;
    struct window_map whole = {.base = base, .log2 = SPR_WINDOW_LOG2, .mask = SPR_WINDOW - 1};
    struct fill f;

    fill_begin(&f, whole, (uint32_t)(elements - base < SPR_WINDOW ? elements - base : SPR_WINDOW),
               elements, dense);
    fill_at(&f, pos, val, n);
    fill_rest(&f);
    fill_end(&f);
}

void spr_dense_clear(float *out, size_t n)
{
    static const float zeros[PIECE];
    const struct spr_values_kernels *kernels = spr_values_kernels();

    if (!streams(n)) {
        spr_kernels()->clear(out, n);
        return;
    }
    for (size_t at = 0; at < n; at += PIECE)
        kernels->stream(zeros, spr_min_size(PIECE, n - at) * sizeof(*out), out + at);
    kernels->fence();
}

size_t spr_chunk_list(struct spr_chunk *c, uint32_t *index, float *value, size_t room)
{
    struct visit v;
    size_t n, total = 0;

    visit_begin(c, &v);
    struct window_map map = map_of(c, v.window);
    while ((n = visit_next(c, &v)) > 0) {
        size_t fit = total < room ? spr_min_size(n, room - total) : 0;

        for (size_t i = 0; i < fit; i++) {
            index[total + i] = (uint32_t)map_global(&map, v.pos[i]);
            value[total + i] = v.val[i];
        }
        total += n;
    }
    return total;
}

size_t spr_window_harvest(float *acc, uint64_t *touched, uint32_t len, uint16_t *pos, float *val)
{
    return spr_kernels()->harvest(acc, touched, spr_div_ceil(len, 64), pos, val);
}
