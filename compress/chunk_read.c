/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/chunk.h"

#include <string.h>

#include "base/util.h"
#include "compress/chunk_layout.h"
#include "compress/kernels/kernels.h"

/* Positions of the range of windows, and words of its bitmap. */
struct range {
    uint64_t positions, words;
};

static struct range range_of(const struct spr_chunk *c)
{
    struct range r = {0, 0};

    if (c->windows > 0) {
        uint64_t full = c->windows - 1;
        uint32_t last = c->first_window + c->windows - 1;
        uint32_t len = spr_blocks_window_len(c->blocks, c->owner, last);

        r.positions = full * SPR_WINDOW + len;
        r.words = full * (SPR_WINDOW / 64) + (len + 63) / 64;
    }
    return r;
}

/* ---- Validation of what precedes the values, by format: NULL, or why not ---- */

static const char *check_per_window(struct spr_chunk *c, const uint8_t *payload)
{
    uint64_t sum = 0;

    c->per_window = (const uint32_t *)(const void *)payload;
    for (uint32_t i = 0; i < c->windows; i++)
        sum += c->per_window[i];
    return sum == c->count ? NULL : "entries per window do not add up to the count";
}

static const char *check_u16(struct spr_chunk *c, const uint8_t *payload, struct range r)
{
    const char *why = check_per_window(c, payload);

    (void)r;
    c->pos16 = (const uint16_t *)(const void *)(payload + 4 * (size_t)c->windows);
    if (why)
        return why;
    if ((c->count & 1) && c->pos16[c->count] != 0)
        return "padding is not zero";
    const struct spr_kernels *kernels = spr_kernels();
    const uint16_t *pos = c->pos16;
    for (uint32_t i = 0; i < c->windows; i++) {
        uint32_t n = c->per_window[i];
        uint32_t len = SPR_WINDOW;

        if (i == c->windows - 1)
            len = spr_blocks_window_len(c->blocks, c->owner, c->first_window + i);
        if (n > 0 && pos[n - 1] >= len)
            return "a position is out of range";
        if (!kernels->ascending16(pos, n))
            return "positions are not ascending";
        pos += n;
    }
    return NULL;
}

static const char *check_bitmap(struct spr_chunk *c, const uint8_t *payload, struct range r)
{
    c->bitmap = (const uint64_t *)(const void *)payload;
    if (r.positions % 64) {
        uint64_t last;
        memcpy(&last, payload + (r.words - 1) * 8, 8);
        if (last >> (r.positions % 64))
            return "a bit is out of range";
    }
    if (spr_kernels()->popcount(payload, (size_t)r.words) != c->count)
        return "the bitmap does not hold count bits";
    return NULL;
}

static const char *check_u32(struct spr_chunk *c, const uint8_t *payload, struct range r)
{
    c->pos32 = (const uint32_t *)(const void *)payload;
    if (c->count > 0 && c->pos32[c->count - 1] >= r.positions)
        return "a position is out of range";
    if (!spr_kernels()->ascending32(c->pos32, c->count))
        return "positions are not ascending";
    return NULL;
}

static const char *check_dense(struct spr_chunk *c, const uint8_t *payload, struct range r)
{
    (void)payload;
    return c->count == r.positions ? NULL : "a dense chunk lacks positions";
}

/* Positions are decoded twice, here and where they are used: nothing is used before all is known to
 * be right. */
static const char *check_packed(struct spr_chunk *c, const uint8_t *payload, struct range r)
{
    bool table = spr_chunk_has_table(c->format, c->vtype);
    const char *why = table ? check_per_window(c, payload) : NULL;
    const uint8_t *packed = payload + (table ? 4 * (size_t)c->windows : 0);
    struct spr_index_cursor look;
    const uint32_t *some;

    if (why)
        return why;
    if (c->count == 0)
        return "packed positions of no entries";
    for (size_t i = c->packed_bytes; i % 4; i++)
        if (packed[i] != 0)
            return "padding is not zero";
    if (spr_index_open(&c->positions, packed, c->packed_bytes, r.positions, c->count, &why))
        return why;
    if (!spr_index_has_blocks(c->positions.coder))
        return "packed positions are not in blocks";
    look = c->positions;
    for (uint32_t i = 0; i < c->windows; i++) {
        size_t entries = 0, n;

        while ((n = spr_index_next(&look, (uint64_t)(i + 1) << SPR_WINDOW_LOG2, &some)) > 0)
            entries += n;
        if (look.why)
            return look.why;
        if (table && entries != c->per_window[i])
            return "packed positions are of other windows";
    }
    return NULL;
}

static const char *(*const check_format[SPR_CHUNK_FORMATS])(struct spr_chunk *, const uint8_t *,
                                                            struct range) = {
    [SPR_CHUNK_U16] = check_u16,     [SPR_CHUNK_BITMAP] = check_bitmap, [SPR_CHUNK_U32] = check_u32,
    [SPR_CHUNK_DENSE] = check_dense, [SPR_CHUNK_PACKED] = check_packed,
};

/* ---- Coded values ---- */

uint32_t spr_chunk_window_entries(const struct spr_chunk *c, uint32_t i)
{
    uint32_t len = spr_blocks_window_len(c->blocks, c->owner, c->first_window + i);

    if (c->per_window)
        return c->per_window[i];
    if (c->format == SPR_CHUNK_DENSE)
        return len;
    return (uint32_t)spr_kernels()->popcount((const char *)c->bitmap + (size_t)i * (SPR_WINDOW / 8),
                                             spr_div_ceil(len, 64));
}

size_t spr_chunk_image_bytes(const struct spr_chunk *c, uint32_t i, size_t entries)
{
    uint32_t bytes;

    if (!c->image_bytes)
        return spr_coding_bound(c->coding, entries);
    memcpy(&bytes, (const char *)c->image_bytes + 4 * (size_t)i, 4);
    return bytes;
}

static const char *check_coded(struct spr_chunk *c, const uint8_t *at, size_t left)
{
    const char *why = NULL;

    if (!spr_coding_is_fixed(c->coding)) {
        size_t table = 4 * (size_t)c->windows;
        if (left < table)
            return "sizes of coded values are missing";
        c->image_bytes = at;
        at += table;
        left -= table;
    }
    c->values = c->next_image = at;
    for (uint32_t i = 0; i < c->windows; i++) {
        size_t entries = spr_chunk_window_entries(c, i);
        size_t bytes = spr_chunk_image_bytes(c, i, entries);
        if (bytes > left || bytes % 4 || (entries == 0 && bytes > 0))
            return "coded values have another length";
        if (entries > 0 && c->coding->coder->check(c->coding->options, at, bytes, entries, &why))
            return why;
        at += bytes;
        left -= bytes;
    }
    return left == 0 ? NULL : "bytes behind the coded values";
}

/* As many bytes as they need. */
static const char *check_plain(struct spr_chunk *c, const uint8_t *values)
{
    size_t bytes = c->count * spr_vtype_bytes(c->vtype);

    if (bytes % 4 && (values[bytes] | values[bytes + 1]))
        return "padding is not zero";
    c->values = values;
    return NULL;
}

static const char *check_header(const struct spr_chunk_header *h, size_t bytes,
                                uint32_t owner_windows, uint32_t expected_first, _Bool coded)
{
    if (h->format >= SPR_CHUNK_FORMATS)
        return "unknown chunk format";
    if (h->vtype >= SPR_V_COUNT + coded)
        return "unknown value type";
    if (h->vtype == SPR_V_CODED && h->format == SPR_CHUNK_U32)
        return "coded values in a format that has none";
    if (h->flags & ~(unsigned)SPR_CHUNK_LAST)
        return "unknown flags";
    if (h->zero[0] | h->zero[1])
        return "reserved bytes are not zero";
    if (h->packed_bytes > 0 && h->format != SPR_CHUNK_PACKED)
        return "packed positions in a format that has none";
    if (h->windows == 0)
        return "no windows";
    if (h->first_window != expected_first)
        return "not the expected window";
    if (h->first_window > owner_windows || h->windows > owner_windows - h->first_window)
        return "more windows than the owner has";
    if (h->payload_bytes != bytes - SPR_CHUNK_HEADER_BYTES)
        return "payload length differs from the bytes at hand";
    return NULL;
}

static const char *check(struct spr_chunk *c, const void *data, size_t bytes,
                         uint32_t expected_first)
{
    struct spr_chunk_header h;
    const uint8_t *payload = (const uint8_t *)data + SPR_CHUNK_HEADER_BYTES;

    if (bytes < SPR_CHUNK_HEADER_BYTES)
        return "shorter than a chunk header";
    if ((uintptr_t)data & 3)
        return "chunk is not aligned";
    memcpy(&h, data, sizeof(h));
    uint32_t windows = spr_blocks_windows(c->blocks, c->owner);
    const char *why = check_header(&h, bytes, windows, expected_first, c->coding != NULL);
    if (why)
        return why;

    c->format = (enum spr_chunk_format)h.format;
    c->vtype = (enum spr_vtype)h.vtype;
    c->flags = h.flags;
    c->first_window = c->next_window = h.first_window;
    c->windows = h.windows;
    c->count = h.count;
    c->packed_bytes = h.packed_bytes;
    struct range r = range_of(c);
    if (h.count > r.positions)
        return "more entries than positions";
    /* No overflow: windows <= 2^16 and count <= positions <= 2^32. */
    size_t front =
        SPR_CHUNK_HEADER_BYTES +
        spr_chunk_front_bytes(c->format, c->vtype, c->windows, (size_t)r.words, c->count) +
        spr_align_up(c->packed_bytes, 4);
    /* Before positions are looked at: those that are packed may be many in a byte. */
    if (bytes < front || (c->vtype != SPR_V_CODED &&
                          bytes - front != spr_align_up(c->count * spr_vtype_bytes(c->vtype), 4)))
        return "length differs from what count and format need";
    why = check_format[c->format](c, payload, r);
    if (why)
        return why;
    const uint8_t *values = (const uint8_t *)data + front;
    return c->vtype == SPR_V_CODED ? check_coded(c, values, bytes - front) : check_plain(c, values);
}

spr_status spr_chunk_open(struct spr_chunk *c, const void *data, size_t bytes,
                          const struct spr_blocks *blocks, uint32_t owner, uint32_t expected_first,
                          const struct spr_coding *coding, const char **why)
{
    struct spr_chunk chunk = {.blocks = blocks, .owner = owner, .coding = coding};
    const char *reason = check(&chunk, data, bytes, expected_first);

    if (reason) {
        *why = reason;
        return SPR_ERR_PROTO;
    }
    *c = chunk;
    return SPR_OK;
}

void spr_chunk_leave_rest(const struct spr_chunk_writer *w, const struct spr_coding *coding,
                          const void *encoded, size_t bytes)
{
    struct spr_chunk chunk;
    const char *why;
    float *val = w->val;

    (void)spr_chunk_open(&chunk, encoded, bytes, w->blocks, w->owner, w->first_window, coding,
                         &why); /* our own: cannot fail */
    for (uint32_t i = 0; i < w->windows; i++)
        val += spr_chunk_values(&chunk, SPR_DECODE_TAKE, val);
}

void spr_chunk_scatter(const struct spr_chunk_writer *w, float *vector)
{
    const float *val = w->val;

    for (uint32_t i = 0; i < w->windows; val += w->per_window[i++])
        spr_blocks_scatter(w->blocks, w->owner, w->first_window + i, val, vector);
}
