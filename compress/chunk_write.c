/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/chunk.h"

#include <assert.h>
#include <string.h>

#include "base/util.h"
#include "compress/chunk_layout.h"
#include "compress/value.h"

size_t spr_vtype_bytes(enum spr_vtype v)
{
    static const size_t bytes[SPR_V_COUNT] = {
        [SPR_V_FP32] = 4,
        [SPR_V_FP16] = 2,
        [SPR_V_BF16] = 2,
    };

    return (unsigned)v < SPR_V_COUNT ? bytes[v] : 0;
}

/* ---- One entry per format ---- */

static size_t u16_bytes(size_t words, size_t count)
{
    (void)words;
    return spr_align_up(count * 2, 4);
}

static void u16_write(const struct spr_chunk_writer *w, uint8_t *out)
{
    memcpy(out, w->pos, w->count * sizeof(*w->pos));
    if (w->count & 1)
        memset(out + w->count * sizeof(*w->pos), 0, 2);
}

static size_t bitmap_bytes(size_t words, size_t count)
{
    (void)count;
    return words * 8;
}

static void bitmap_write(const struct spr_chunk_writer *w, uint8_t *out)
{
    const uint16_t *pos = w->pos;

    memset(out, 0, w->bitmap_words * 8);
    for (uint32_t i = 0; i < w->windows; i++) {
        uint64_t bits = 0;
        uint32_t last = 0;

        /* Every entry stores its word with the bits so far: no load and no branch on the data. */
        for (uint32_t e = 0; e < w->per_window[i]; e++) {
            uint32_t word = pos[e] >> 6;

            bits &= -(uint64_t)(word == last);
            bits |= UINT64_C(1) << (pos[e] & 63);
            memcpy(out + 8 * (size_t)word, &bits, 8);
            last = word;
        }
        pos += w->per_window[i];
        out += SPR_WINDOW / 8;
    }
}

static size_t u32_bytes(size_t words, size_t count)
{
    (void)words;
    return count * 4;
}

static void u32_write(const struct spr_chunk_writer *w, uint8_t *out)
{
    const uint16_t *pos = w->pos;

    for (uint32_t i = 0; i < w->windows; i++) {
        for (uint32_t e = 0; e < w->per_window[i]; e++) {
            uint32_t p = (i << SPR_WINDOW_LOG2) + pos[e];
            memcpy(out + 4 * (size_t)e, &p, 4);
        }
        pos += w->per_window[i];
        out += 4 * (size_t)w->per_window[i];
    }
}

static size_t dense_bytes(size_t words, size_t count)
{
    (void)words;
    (void)count;
    return 0;
}

static void dense_write(const struct spr_chunk_writer *w, uint8_t *out)
{
    (void)w;
    (void)out;
}

static const struct {
    const char *name;
    /* Bytes and content of the positions. */
    size_t (*bytes)(size_t words, size_t count);
    void (*write)(const struct spr_chunk_writer *w, uint8_t *out);
} formats[SPR_CHUNK_FORMATS] = {
    [SPR_CHUNK_U16] = {"u16", u16_bytes, u16_write},
    [SPR_CHUNK_BITMAP] = {"bitmap", bitmap_bytes, bitmap_write},
    [SPR_CHUNK_U32] = {"u32", u32_bytes, u32_write},
    [SPR_CHUNK_DENSE] = {"dense", dense_bytes, dense_write},
    [SPR_CHUNK_PACKED] = {"packed", dense_bytes, dense_write}, /* positions: write_packed() */
};

const char *spr_chunk_format_name(enum spr_chunk_format f)
{
    return (unsigned)f < SPR_CHUNK_FORMATS ? formats[f].name : "unknown";
}

size_t spr_chunk_front_bytes(enum spr_chunk_format f, enum spr_vtype v, size_t windows,
                             size_t bitmap_words, size_t count)
{
    return (spr_chunk_has_table(f, v) ? 4 * windows : 0) + formats[f].bytes(bitmap_words, count);
}

size_t spr_chunk_bytes(enum spr_chunk_format f, enum spr_vtype v, size_t windows, size_t positions,
                       size_t bitmap_words, size_t count)
{
    size_t values = f == SPR_CHUNK_DENSE ? positions : count;

    return SPR_CHUNK_HEADER_BYTES + spr_chunk_front_bytes(f, v, windows, bitmap_words, count) +
           spr_align_up(values * spr_vtype_bytes(v), 4);
}

size_t spr_chunk_bound(enum spr_vtype v, size_t windows)
{
    /* BITMAP is possible for any entries, so the cheapest format never takes more than a full one.
     */
    size_t positions = windows << SPR_WINDOW_LOG2;

    return spr_chunk_bytes(SPR_CHUNK_BITMAP, v, windows, positions, positions / 64, positions);
}

/* ---- Writer ---- */

/* Entries that the arrays hold: the guarantee of one more full window, and slack for SIMD stores.
 */
static size_t writer_room(size_t max_entries)
{
    return spr_align_up(max_entries + spr_min_size(max_entries, SPR_WINDOW) + 16, 32);
}

size_t spr_chunk_writer_scratch(uint32_t max_windows, size_t max_entries)
{
    return writer_room(max_entries) * (sizeof(float) + sizeof(uint16_t)) +
           spr_align_up(max_windows * sizeof(uint32_t), 64);
}

void spr_chunk_writer_init(struct spr_chunk_writer *w, const struct spr_blocks *blocks,
                           uint32_t owner, uint32_t max_windows, size_t max_entries, void *scratch)
{
    assert(max_entries >= spr_min_u64(SPR_WINDOW, spr_blocks_local(blocks, owner)) &&
           max_windows > 0);
    *w = (struct spr_chunk_writer){
        .blocks = blocks,
        .owner = owner,
        .max_windows = max_windows,
        .max_entries = max_entries,
    };
    w->val = scratch;
    w->pos = (uint16_t *)(void *)(w->val + writer_room(max_entries));
    w->per_window = (uint32_t *)(void *)(w->pos + writer_room(max_entries));
}

void spr_chunk_writer_begin(struct spr_chunk_writer *w, uint32_t first_window)
{
    w->first_window = first_window;
    w->windows = 0;
    w->count = w->positions = w->bitmap_words = 0;
}

void spr_chunk_writer_window(struct spr_chunk_writer *w, size_t entries)
{
    uint32_t len = spr_blocks_window_len(w->blocks, w->owner, w->first_window + w->windows);

    assert(entries <= len && w->windows < w->max_windows && w->count + entries <= w->max_entries);
    w->per_window[w->windows++] = (uint32_t)entries;
    w->count += entries;
    w->positions += len;
    w->bitmap_words += spr_div_ceil(len, 64);
}

_Bool spr_chunk_writer_room(const struct spr_chunk_writer *w, size_t entries)
{
    return w->windows < w->max_windows && w->count + entries <= w->max_entries;
}

/* The most that coded values take, in any format. */
static size_t coded_bound(const struct spr_chunk_writer *w)
{
    size_t bytes = spr_coding_is_fixed(w->coding) ? 0 : 4 * (size_t)w->windows;

    for (uint32_t i = 0; i < w->windows; i++)
        bytes += spr_coding_bound(w->coding, w->per_window[i]);
    return bytes;
}

static size_t front_bytes(const struct spr_chunk_writer *w, enum spr_chunk_format f,
                          enum spr_vtype v)
{
    return spr_chunk_front_bytes(f, v, w->windows, w->bitmap_words, w->count);
}

static size_t writer_bytes(const struct spr_chunk_writer *w, enum spr_chunk_format f,
                           enum spr_vtype v)
{
    return spr_chunk_bytes(f, v, w->windows, w->positions, w->bitmap_words, w->count) +
           (v == SPR_V_CODED ? coded_bound(w) : 0);
}

/* DENSE lists every position, so the list must be complete; windows of U32 do not say how many
 * entries they have, which coded values need. PACKED is tried on its own. */
static _Bool writer_can(const struct spr_chunk_writer *w, enum spr_chunk_format f, enum spr_vtype v)
{
    if (f == SPR_CHUNK_PACKED || (f == SPR_CHUNK_U32 && v == SPR_V_CODED))
        return 0;
    return f != SPR_CHUNK_DENSE || w->count == w->positions;
}

/* The cheapest format; of equally cheap ones the first. */
static enum spr_chunk_format writer_cheapest(const struct spr_chunk_writer *w, enum spr_vtype v)
{
    enum spr_chunk_format best = SPR_CHUNK_U16;

    for (unsigned f = 1; f < SPR_CHUNK_FORMATS; f++) {
        enum spr_chunk_format format = (enum spr_chunk_format)f;
        if (writer_can(w, format, v) && writer_bytes(w, format, v) < writer_bytes(w, best, v))
            best = format;
    }
    return best;
}

size_t spr_chunk_writer_bytes(const struct spr_chunk_writer *w, enum spr_vtype v)
{
    return writer_bytes(w, writer_cheapest(w, v), v);
}

static size_t write_coded(const struct spr_chunk_writer *w, uint8_t *out)
{
    _Bool fixed = spr_coding_is_fixed(w->coding);
    uint8_t *at = fixed ? out : out + 4 * (size_t)w->windows;
    const float *val = w->val;

    for (uint32_t i = 0; i < w->windows; i++) {
        uint32_t bytes = (uint32_t)spr_coding_encode(
            w->coding, w->blocks, w->owner, w->first_window + i, val, w->per_window[i], at);
        if (!fixed)
            memcpy(out + 4 * (size_t)i, &bytes, 4);
        at += bytes;
        val += w->per_window[i];
    }
    return (size_t)(at - out);
}

/* Returns the bytes, padding included. */
static size_t write_values(const struct spr_chunk_writer *w, enum spr_vtype v, uint8_t *out)
{
    uint16_t *half = (uint16_t *)(void *)out;

    switch (v) {
    case SPR_V_CODED:
        return write_coded(w, out);
    case SPR_V_FP16:
        spr_values_kernels()->fp16_encode(w->val, w->count, half);
        break;
    case SPR_V_BF16:
        spr_values_kernels()->bf16_encode(w->val, w->count, half);
        break;
    default:
        memcpy(out, w->val, w->count * sizeof(*w->val));
        return w->count * sizeof(*w->val);
    }
    if (w->count & 1)
        half[w->count] = 0;
    return spr_align_up(w->count * sizeof(*half), 4);
}

/* Entries per window, where the format has them. Returns their bytes. */
static size_t write_table(const struct spr_chunk_writer *w, enum spr_chunk_format f,
                          enum spr_vtype v, uint8_t *out)
{
    size_t bytes = spr_chunk_has_table(f, v) ? w->windows * sizeof(*w->per_window) : 0;

    memcpy(out, w->per_window, bytes);
    return bytes;
}

/* What precedes the values. Returns the bytes, padding included. */
static size_t write_front(const struct spr_chunk_writer *w, enum spr_chunk_format f,
                          enum spr_vtype v, uint8_t *out)
{
    formats[f].write(w, out + write_table(w, f, v, out));
    return front_bytes(w, f, v);
}

/* Returns the end of the positions; *eliasfano: the bytes that they would take in that code. */
static uint8_t *write_positions(const struct spr_chunk_writer *w,
                                const struct spr_index_coder *coder, uint8_t *out,
                                size_t *eliasfano)
{
    const uint16_t *pos = w->pos;
    struct spr_index_writer packed;
    uint8_t *end;

    spr_index_begin(&packed, coder, out);
    for (uint32_t i = 0; i < w->windows; i++) {
        spr_index_put(&packed, pos, w->per_window[i], i << SPR_WINDOW_LOG2);
        pos += w->per_window[i];
    }
    end = spr_index_end(&packed);
    *eliasfano = packed.eliasfano;
    return end;
}

/* The same of PACKED; *bytes are those of the positions alone. Where positions are clustered, one
 * gap makes all of its block wide: they go in Elias-Fano codes, if those are shorter by a quarter,
 * which long lists of random positions never are. */
static size_t write_packed(const struct spr_chunk_writer *w, enum spr_vtype v, uint8_t *out,
                           size_t *bytes)
{
    uint8_t *begin = out + write_table(w, SPR_CHUNK_PACKED, v, out);
    size_t eliasfano, padding;
    uint8_t *end = write_positions(w, w->indices, begin, &eliasfano);

    if (4 * eliasfano <= 3 * (size_t)(end - begin))
        end = write_positions(w, spr_index_coder_at(SPR_INDEX_ELIASFANO), begin, &eliasfano);
    *bytes = (size_t)(end - begin);
    padding = spr_align_up(*bytes, 4) - *bytes;
    memset(end, 0, padding);
    return (size_t)(end - out) + padding;
}

/* With a fifth of the positions and more, a bitmap is as short. */
static _Bool packs(const struct spr_chunk_writer *w, enum spr_vtype v, int force, size_t cap)
{
    if (!w->indices || w->count == 0 || (force >= 0 && force != SPR_CHUNK_PACKED))
        return 0;
    if (force < 0 && 5 * w->count >= w->positions)
        return 0;
    return writer_bytes(w, SPR_CHUNK_PACKED, v) +
               spr_index_bound(w->indices, w->positions, w->count) + 4 <=
           cap;
}

size_t spr_chunk_writer_finish(struct spr_chunk_writer *w, enum spr_vtype v, int force,
                               unsigned flags, void *out, size_t cap)
{
    enum spr_chunk_format f = writer_cheapest(w, v);
    uint8_t *payload = (uint8_t *)out + SPR_CHUNK_HEADER_BYTES;
    size_t front, packed = 0;

    if (force >= 0 && force < SPR_CHUNK_FORMATS && writer_can(w, (enum spr_chunk_format)force, v) &&
        writer_bytes(w, (enum spr_chunk_format)force, v) <= cap)
        f = (enum spr_chunk_format)force;
    assert(writer_bytes(w, f, v) <= cap && cap - SPR_CHUNK_HEADER_BYTES <= UINT32_MAX);
    assert(((uintptr_t)out & 3) == 0);

    front = packs(w, v, force, cap) ? write_packed(w, v, payload, &packed) : SIZE_MAX;
    if (packed > 0 && (force == SPR_CHUNK_PACKED || front < front_bytes(w, f, v))) {
        f = SPR_CHUNK_PACKED;
    } else {
        packed = 0;
        front = write_front(w, f, v, payload);
    }
    struct spr_chunk_header h = {
        .format = (uint8_t)f,
        .vtype = (uint8_t)v,
        .flags = (uint16_t)flags,
        .first_window = w->first_window,
        .windows = w->windows,
        .count = (uint32_t)w->count,
        .payload_bytes = (uint32_t)(front + write_values(w, v, payload + front)),
        .packed_bytes = (uint32_t)packed,
    };
    memcpy(out, &h, sizeof(h));
    return sizeof(h) + h.payload_bytes;
}
