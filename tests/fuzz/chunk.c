/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse chunks (compress/chunk_read.c, compress/window.c). Input: mode, number of positions,
 * ranks, block, owner, expected window, room, a byte each; the chunk.
 *
 * An accepted chunk is read a second time, the plain way, by this file. What the library visits -
 * adding, filling, listing - must be just that, and what the library writes of it the same
 * bytes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "compress/chunk_layout.h"
#include "compress/value.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/index_reader.h"

enum {                 /* mode */
       FIX_HEADER = 1, /* lengths and counts that fit each other */
       FIX_COUNTS = 2, /* entries per window add up, padding is zero */
       FIX_ORDER = 4,  /* positions ascend */
};

#define MOST_WINDOWS 4
#define MOST_ENTRIES (MOST_WINDOWS * (size_t)SPR_WINDOW)

struct entries {
    size_t count, per_window[MOST_WINDOWS];
    uint32_t at[MOST_ENTRIES]; /* position from the start of the range */
    float value[MOST_ENTRIES];
};

struct setup {
    uint8_t mode, room;
    struct spr_blocks blocks;
    uint32_t owner, windows, first;
    uint32_t len[MOST_WINDOWS]; /* positions, of each window from `first` on */
};

static struct entries model;
static const float zeros[6000];
static float acc[SPR_WINDOW];
static uint64_t touched[SPR_WINDOW / 64];
static uint16_t harvest_pos[SPR_WINDOW + 16];
static float harvest_val[SPR_WINDOW + 16];

static struct setup read_setup(struct fuzz_in *in)
{
    static const uint32_t sizes[] = {1,    17,    63,    64,    65,     200,    1000,  4096,
                                     5000, 65535, 65536, 65537, 131072, 140000, 33000, 300};
    struct setup s = {.mode = fuzz_u8(in)};

    s.blocks.elements = sizes[fuzz_u8(in) % SPR_ARRAY_LEN(sizes)];
    s.blocks.ranks = 1 + fuzz_u8(in) % 4u;
    s.blocks.block_log2 = fuzz_u8(in) % (SPR_WINDOW_LOG2 + 1);
    s.owner = fuzz_u8(in) % s.blocks.ranks;
    s.windows = spr_blocks_windows(&s.blocks, s.owner);
    s.first = fuzz_u8(in) % (s.windows + 1);
    s.room = fuzz_u8(in);
    FUZZ_CHECK(s.windows <= MOST_WINDOWS);
    for (uint32_t w = s.first; w < s.windows; w++)
        s.len[w - s.first] = spr_blocks_window_len(&s.blocks, s.owner, w);
    return s;
}

/* ---- Repairs: most random bytes would be refused at the first check ---- */

static size_t positions_of(const struct setup *s, const struct spr_chunk_header *h)
{
    size_t n = 0;

    for (uint32_t w = 0; w < h->windows; w++)
        n += s->len[w];
    return n;
}

static size_t bytes_of(const struct setup *s, const struct spr_chunk_header *h)
{
    size_t positions = positions_of(s, h), words = 0;

    for (uint32_t w = 0; w < h->windows; w++)
        words += (s->len[w] + 63) / 64;
    if (h->count > positions)
        return SIZE_MAX;
    return spr_chunk_bytes((enum spr_chunk_format)h->format, (enum spr_vtype)h->vtype, h->windows,
                           positions, words, h->count) +
           spr_align_up(h->packed_bytes, 4);
}

/* The most entries of these formats that fit. */
static uint32_t most_entries(const struct setup *s, const struct spr_chunk_header *h, size_t bytes)
{
    size_t one = spr_vtype_bytes((enum spr_vtype)h->vtype) + (h->format == SPR_CHUNK_U32   ? 4
                                                              : h->format == SPR_CHUNK_U16 ? 2
                                                                                           : 0);
    struct spr_chunk_header fits = *h;

    fits.count = (uint32_t)spr_min_size(h->count, spr_min_size(positions_of(s, h), bytes / one));
    while (fits.count > 0 && bytes_of(s, &fits) > bytes)
        fits.count--;
    return fits.count;
}

static uint32_t bits_set(const struct setup *s, const struct spr_chunk_header *h, uint8_t *bitmap,
                         size_t bytes)
{
    uint32_t n = 0;

    for (uint32_t w = 0; w < h->windows; w++) {
        uint32_t len = s->len[w];

        for (uint32_t i = 0; i < len && i / 8 < bytes; i++)
            n += bitmap[i / 8] >> i % 8 & 1;
        for (uint32_t i = len; i % 64 && i / 8 < bytes; i++)
            bitmap[i / 8] &= (uint8_t) ~(1u << i % 8);
        size_t step = spr_min_size((len + 63) / 64 * 8, bytes);
        bitmap += step;
        bytes -= step;
    }
    return n;
}

/* Returns the bytes that the chunk now has. */
static size_t fix_header(const struct setup *s, uint8_t *chunk, size_t bytes)
{
    struct spr_chunk_header h;

    memcpy(&h, chunk, sizeof h);
    h.format %= SPR_CHUNK_FORMATS;
    h.vtype %= SPR_V_COUNT;
    h.flags &= SPR_CHUNK_LAST;
    h.first_window = s->first;
    if (s->first == s->windows)
        return bytes;
    h.windows = 1 + h.windows % (s->windows - s->first);
    memset(h.zero, 0, sizeof h.zero);
    h.packed_bytes = h.format == SPR_CHUNK_PACKED ? h.packed_bytes % (uint32_t)bytes : 0;
    if (h.format == SPR_CHUNK_BITMAP)
        h.count = bits_set(s, &h, chunk + sizeof h, bytes - sizeof h);
    if (h.format == SPR_CHUNK_DENSE)
        h.count = (uint32_t)positions_of(s, &h);
    if (h.format == SPR_CHUNK_U16 || h.format == SPR_CHUNK_U32 || h.format == SPR_CHUNK_PACKED)
        h.count = most_entries(s, &h, bytes);
    size_t exact = bytes_of(s, &h);
    if (exact <= bytes)
        bytes = exact;
    h.payload_bytes = (uint32_t)(bytes - sizeof h);
    memcpy(chunk, &h, sizeof h);
    return bytes;
}

static void fix_counts(uint8_t *chunk, size_t bytes)
{
    struct spr_chunk_header h;
    uint32_t *per_window = (uint32_t *)(void *)(chunk + sizeof h), left;

    memcpy(&h, chunk, sizeof h);
    if (h.vtype != SPR_V_FP32 && h.count & 1 && bytes >= sizeof h + 2)
        memset(chunk + bytes - 2, 0, 2);
    if (h.format == SPR_CHUNK_PACKED)
        for (size_t i = sizeof h + h.packed_bytes; i % 4 && i < bytes; i++)
            chunk[i] = 0;
    if (h.format != SPR_CHUNK_U16 || h.windows == 0 || bytes < sizeof h + 4 * (size_t)h.windows)
        return;
    left = h.count;
    for (uint32_t w = 0; w < h.windows; w++) {
        if (w == h.windows - 1 || per_window[w] > left)
            per_window[w] = left;
        left -= per_window[w];
    }
    size_t padding = sizeof h + 4 * (size_t)h.windows + 2 * (size_t)h.count;
    if (h.count & 1 && bytes >= padding + 2)
        memset(chunk + padding, 0, 2);
}

/* Positions become distances, most of them small. */
static void fix_order(uint8_t *chunk, size_t bytes)
{
    struct spr_chunk_header h;

    memcpy(&h, chunk, sizeof h);
    uint8_t *payload = chunk + sizeof h;
    if (h.format == SPR_CHUNK_U32 && bytes >= sizeof h + 4 * (size_t)h.count) {
        uint32_t *pos = (uint32_t *)(void *)payload;
        for (uint32_t i = 1; i < h.count; i++)
            pos[i] = pos[i - 1] + 1 + (pos[i] & (pos[i] >> 31 ? 0x1ffff : 7));
    }
    if (h.format != SPR_CHUNK_U16 ||
        bytes < sizeof h + 4 * (size_t)h.windows + 2 * (size_t)h.count || h.windows == 0)
        return;
    const uint32_t *per_window = (const uint32_t *)(const void *)payload;
    uint16_t *pos = (uint16_t *)(void *)(payload + 4 * (size_t)h.windows);
    uint32_t left = h.count;
    for (uint32_t w = 0; w < h.windows && per_window[w] <= left; w++) {
        for (uint32_t i = 1; i < per_window[w]; i++)
            pos[i] = (uint16_t)(pos[i - 1] + 1 + (pos[i] & (pos[i] >> 15 ? 0x3fff : 3)));
        pos += per_window[w];
        left -= per_window[w];
    }
}

/* ---- The plain reader ---- */

static float value_at(enum spr_vtype v, const uint8_t *values, size_t i)
{
    uint16_t half;
    float f;

    if (v == SPR_V_FP32) {
        memcpy(&f, values + 4 * i, 4);
        return f;
    }
    memcpy(&half, values + 2 * i, 2);
    if (v == SPR_V_FP16) {
        float magnitude = (half >> 10 & 31) == 0
                              ? ldexpf((float)(half & 1023), -24)
                              : ldexpf((float)(1024 + (half & 1023)), (half >> 10 & 31) - 25);
        if ((half >> 10 & 31) == 31)
            magnitude = half & 1023 ? NAN : INFINITY;
        return half >> 15 ? -magnitude : magnitude;
    }
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&f, &bits, 4);
    return f;
}

static void put(const struct setup *s, uint32_t at)
{
    uint32_t w = at >> SPR_WINDOW_LOG2;

    FUZZ_CHECK(w < MOST_WINDOWS && (at & (SPR_WINDOW - 1)) < s->len[w]);
    FUZZ_CHECK(model.count == 0 || at > model.at[model.count - 1]);
    model.per_window[w]++;
    model.at[model.count++] = at;
}

static void read_packed(const struct setup *s, const struct spr_chunk_header *h,
                        const uint8_t *payload)
{
    static uint32_t at[MOST_ENTRIES + SPR_INDEX_SLACK];

    reader_list(payload, h->count, positions_of(s, h), at);
    for (uint32_t i = 0; i < h->count; i++)
        put(s, at[i]);
}

static void read_plainly(const struct setup *s, const struct spr_chunk_header *h,
                         const uint8_t *payload, size_t bytes)
{
    const uint8_t *positions = payload;
    size_t per_value = spr_vtype_bytes((enum spr_vtype)h->vtype);
    uint32_t number;

    model.count = 0;
    memset(model.per_window, 0, sizeof model.per_window);
    for (uint32_t w = 0; w < h->windows; w++) {
        uint32_t start = w << SPR_WINDOW_LOG2, len = s->len[w];

        if (h->format == SPR_CHUNK_U16) {
            memcpy(&number, payload + 4 * (size_t)w, 4);
            positions = payload + 4 * (size_t)h->windows + 2 * model.count;
            for (uint32_t i = 0; i < number; i++)
                put(s, start + (uint32_t)(positions[2 * i] | positions[2 * i + 1] << 8));
        }
        for (uint32_t i = 0; i < len && h->format != SPR_CHUNK_U16; i++)
            if (h->format == SPR_CHUNK_DENSE ||
                (h->format == SPR_CHUNK_BITMAP && positions[i / 8] >> i % 8 & 1))
                put(s, start + i);
        if (h->format == SPR_CHUNK_BITMAP)
            positions += (len + 63) / 64 * 8;
    }
    for (uint32_t i = 0; i < h->count && h->format == SPR_CHUNK_U32; i++) {
        memcpy(&number, payload + 4 * (size_t)i, 4);
        put(s, number);
    }
    if (h->format == SPR_CHUNK_PACKED)
        read_packed(s, h, payload);
    FUZZ_CHECK(model.count == h->count);
    const uint8_t *values = payload + bytes - (h->count * per_value + 3) / 4 * 4;
    for (size_t i = 0; i < model.count; i++)
        model.value[i] = value_at((enum spr_vtype)h->vtype, values, i);
}

/* ---- What the library makes of it ---- */

static bool same(float a, float b) { return a == b || (isnan(a) && isnan(b)); }

static void check_add(const struct setup *s, struct spr_chunk c, uint32_t windows)
{
    size_t done = 0;

    for (uint32_t w = 0; w < windows; w++) {
        uint32_t len = s->len[w];

        spr_chunk_add(&c, acc, touched);
        size_t n = spr_window_harvest(acc, touched, len, harvest_pos, harvest_val);
        FUZZ_CHECK(n == model.per_window[w]);
        for (size_t i = 0; i < n; i++) {
            FUZZ_CHECK((w << SPR_WINDOW_LOG2) + harvest_pos[i] == model.at[done + i]);
            FUZZ_CHECK(same(harvest_val[i], model.value[done + i]));
        }
        /* Nothing is left in the window, nor outside of its positions. */
        FUZZ_CHECK(memcmp(acc, zeros, spr_min_size(len, SPR_ARRAY_LEN(zeros)) * sizeof *acc) == 0);
        FUZZ_CHECK(touched[0] == 0 && touched[(len - 1) / 64] == 0);
        FUZZ_CHECK(len >= SPR_WINDOW - 64 || (touched[len / 64 + 1] == 0 && acc[len] == 0));
        done += n;
    }
}

static void check_list(const struct setup *s, struct spr_chunk c, uint32_t windows)
{
    size_t done = 0;

    for (uint32_t w = 0; w < windows; w++) {
        size_t n = model.per_window[w], room = spr_min_size(s->room < 200 ? SIZE_MAX : s->room, n);
        uint32_t *index = malloc(room * sizeof *index + 1);
        float *value = malloc(room * sizeof *value + 1);

        FUZZ_CHECK(index && value);
        FUZZ_CHECK(spr_chunk_list(&c, index, value, room) == n);
        for (size_t i = 0; i < room; i++) {
            uint64_t local = ((uint64_t)s->first << SPR_WINDOW_LOG2) + model.at[done + i];
            FUZZ_CHECK(index[i] == spr_blocks_global(&s->blocks, s->owner, local));
            FUZZ_CHECK(same(value[i], model.value[done + i]));
        }
        free(index);
        free(value);
        done += n;
    }
}

static void check_fill(const struct setup *s, struct spr_chunk c, uint32_t windows)
{
    size_t left = 0, range = 0;
    float *dense;

    if (s->blocks.elements > 6000)
        return;
    dense = malloc(s->blocks.elements * sizeof *dense);
    FUZZ_CHECK(dense);
    for (size_t i = 0; i < s->blocks.elements; i++)
        dense[i] = -7.25f;
    for (uint32_t w = 0; w < windows; w++)
        spr_chunk_fill(&c, dense);
    for (size_t i = 0; i < model.count; i++) {
        uint64_t local = ((uint64_t)s->first << SPR_WINDOW_LOG2) + model.at[i];
        float *at = &dense[spr_blocks_global(&s->blocks, s->owner, local)];
        FUZZ_CHECK(same(*at, model.value[i]));
        *at = 0;
    }
    for (uint32_t w = 0; w < windows; w++)
        range += spr_blocks_window_len(&s->blocks, s->owner, s->first + w);
    for (size_t i = 0; i < s->blocks.elements; i++) {
        FUZZ_CHECK(dense[i] == -7.25f || dense[i] == 0);
        left += dense[i] == -7.25f;
    }
    FUZZ_CHECK(left == s->blocks.elements - range);
    free(dense);
}

/* The same entries, written in Elias-Fano codes because those are shorter by a quarter. */
static void check_shorter(const struct setup *s, const struct spr_chunk_header *h,
                          const uint8_t *chunk, size_t bytes)
{
    struct spr_chunk_header shorter;
    const char *why = NULL;
    struct spr_chunk c;

    memcpy(&shorter, chunk, sizeof shorter);
    FUZZ_CHECK(chunk[sizeof shorter] == SPR_INDEX_ELIASFANO);
    FUZZ_CHECK(4 * (size_t)shorter.packed_bytes <= 3 * (size_t)h->packed_bytes);
    FUZZ_CHECK(spr_chunk_open(&c, chunk, bytes, &s->blocks, s->owner, s->first, NULL, &why) ==
               SPR_OK);
    check_add(s, c, h->windows);
}

static void check_written(const struct setup *s, const struct spr_chunk_header *h,
                          const uint8_t *chunk, size_t bytes)
{
    static struct spr_chunk_writer w;
    static void *scratch;
    size_t done = 0;

    if (!scratch)
        scratch = aligned_alloc(
            64, spr_align_up(spr_chunk_writer_scratch(MOST_WINDOWS, MOST_ENTRIES), 64));
    size_t cap = bytes;
    const struct spr_index_coder *indices = NULL;
    if (h->format == SPR_CHUNK_PACKED) {
        indices = spr_index_coder_at(chunk[sizeof *h]);
        cap += spr_index_bound(indices, positions_of(s, h), h->count) + 4;
        cap = spr_max_size(cap, MOST_ENTRIES * 5); /* a bitmap fits */
    }
    uint8_t *out = malloc(cap);
    FUZZ_CHECK(scratch && out);
    spr_chunk_writer_init(&w, &s->blocks, s->owner, MOST_WINDOWS, MOST_ENTRIES, scratch);
    w.indices = indices;
    spr_chunk_writer_begin(&w, s->first);
    for (uint32_t k = 0; k < h->windows; k++) {
        for (size_t i = 0; i < model.per_window[k]; i++, done++) {
            w.pos[w.count + i] = (uint16_t)model.at[done];
            w.val[w.count + i] = model.value[done];
            if (isnan(model.value[done])) {
                free(out); /* which NaN it is does not count */
                return;
            }
        }
        spr_chunk_writer_window(&w, model.per_window[k]);
    }
    FUZZ_CHECK(indices || spr_chunk_writer_bytes(&w, (enum spr_vtype)h->vtype) <= bytes);
    FUZZ_CHECK(spr_chunk_writer_bytes(&w, (enum spr_vtype)h->vtype) <=
               spr_chunk_bound((enum spr_vtype)h->vtype, h->windows));
    size_t written =
        spr_chunk_writer_finish(&w, (enum spr_vtype)h->vtype, h->format, h->flags, out, cap);
    if (indices && out[sizeof *h] != chunk[sizeof *h])
        check_shorter(s, h, out, written);
    else
        FUZZ_CHECK(written == bytes && memcmp(out, chunk, bytes) == 0);
    free(out);
}

static void check_all(const struct setup *s, const uint8_t *chunk, size_t bytes)
{
    struct spr_chunk_header h;
    const char *why = NULL;
    struct spr_chunk c;
    spr_status status =
        spr_chunk_open(&c, chunk, bytes, &s->blocks, s->owner, s->first, NULL, &why);

    if (status != SPR_OK) {
        FUZZ_CHECK(status == SPR_ERR_PROTO && why && *why);
        return;
    }
    memcpy(&h, chunk, sizeof h);
    FUZZ_CHECK(c.windows == h.windows && h.windows >= 1 && h.windows <= s->windows - s->first);
    read_plainly(s, &h, chunk + sizeof h, bytes - sizeof h);
    check_add(s, c, h.windows);
    check_list(s, c, h.windows);
    check_fill(s, c, h.windows);
    check_written(s, &h, chunk, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    struct setup s = read_setup(&in);
    size_t bytes = in.left;
    uint8_t *chunk = fuzz_rest(&in);

    if (bytes >= SPR_CHUNK_HEADER_BYTES) {
        if (s.mode & FIX_HEADER)
            bytes = fix_header(&s, chunk, bytes);
        if (s.mode & FIX_COUNTS)
            fix_counts(chunk, bytes);
        if (s.mode & FIX_ORDER)
            fix_order(chunk, bytes);
        chunk = realloc(chunk, bytes);
        FUZZ_CHECK(chunk);
    }
    check_all(&s, chunk, bytes);
    free(chunk);
    return 0;
}

/* ---- Seeds ---- */

static void seed(unsigned size, unsigned ranks, unsigned every, int format, enum spr_vtype v)
{
    const uint8_t head[7] = {0, (uint8_t)size, (uint8_t)(ranks - 1), 6, 0, 0, 0};
    struct fuzz_in in = {head, sizeof head};
    struct setup s = read_setup(&in);
    static _Alignas(4) uint8_t out[1 << 15];
    static struct fuzz_seed seed;
    struct spr_chunk_writer w;
    void *scratch =
        aligned_alloc(64, spr_align_up(spr_chunk_writer_scratch(MOST_WINDOWS, MOST_ENTRIES), 64));
    char name[64];

    FUZZ_CHECK(scratch);
    spr_chunk_writer_init(&w, &s.blocks, s.owner, MOST_WINDOWS, MOST_ENTRIES, scratch);
    w.indices = spr_index_coder_find(size & 1 ? "eliasfano" : "bitpack");
    spr_chunk_writer_begin(&w, 0);
    for (uint32_t k = 0; k < s.windows; k++) {
        size_t n = 0;
        for (uint32_t p = every / 2; p < s.len[k]; p += every, n++) {
            w.pos[w.count + n] = (uint16_t)p;
            w.val[w.count + n] = (float)p * 0.25f - 3;
        }
        spr_chunk_writer_window(&w, n);
    }
    size_t bytes = spr_chunk_writer_finish(&w, v, format, SPR_CHUNK_LAST, out, sizeof out);
    free(scratch);
    fuzz_put(&seed, head, sizeof head);
    fuzz_put(&seed, out, bytes);
    snprintf(name, sizeof name, "%s_%u_of_%u_by_%u_%u",
             spr_chunk_format_name((enum spr_chunk_format)out[0]), every, size, ranks, (unsigned)v);
    fuzz_emit_seed(name, &seed);
}

void fuzz_seeds(void)
{
    for (int format = 0; format < SPR_CHUNK_FORMATS; format++)
        for (enum spr_vtype v = 0; v < SPR_V_COUNT; v++)
            seed(4, 2, format == SPR_CHUNK_DENSE ? 1 : 3, format, v);
    seed(0, 1, 1, -1, SPR_V_FP32);
    seed(5, 3, 40, -1, SPR_V_BF16);
    seed(13, 1, 9000, SPR_CHUNK_U16, SPR_V_FP16);
    seed(13, 1, 9000, SPR_CHUNK_U32, SPR_V_FP32);
    seed(10, 1, 20000, SPR_CHUNK_BITMAP, SPR_V_FP16);
    seed(13, 1, 300, SPR_CHUNK_PACKED, SPR_V_FP32);
    seed(12, 1, 100, SPR_CHUNK_PACKED, SPR_V_BF16);
    seed(0, 1, 1, SPR_CHUNK_PACKED, SPR_V_FP32);
}
