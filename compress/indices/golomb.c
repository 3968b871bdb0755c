/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Index coder "golomb": Golomb-Rice codes of the gaps, in blocks of 256 with a parameter each
 * (Golomb 1966, "Run-length encodings"; Rice and Plaunt 1971).
 *
 *   block:  w (u8), bits, low ones first, the rest of the last byte zero
 *   bits:   per gap g: g >> w zeros, a one, the lower w bits of g
 *
 * For geometrically distributed gaps of mean m, w + 1 is better than w from 2^w < m ln((1 +
 * sqrt(5)) / 2) = 0.4812 m on (Kiely 2004, "Selecting the Golomb parameter in Rice coding"); that
 * is within 1 % of the entropy, and the shortest of the coders here. Cost: a few ns per index, one
 * at a time.
 */
#include "compress/indices/bits.h"
#include "compress/indices/coder.h"

#define PART 123 /* of 256: 0.4812 */
/* spread >> w is below n * 256 / PART + 3. */
#define MOST_ZEROS 1024
#define WORD_BITS 56u /* that a load of 64 is good for, wherever in its first byte they begin */

static uint32_t sum_of_zeros(const uint32_t *gap, size_t n, unsigned width)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += gap[i] >> width;
    return sum;
}

static size_t golomb_block_bytes(const struct spr_index_block *block)
{
    unsigned width = spr_index_low_width(block->spread, block->n, PART);

    return 1 + spr_bits_bytes(block->n * (width + 1) + sum_of_zeros(block->gap, block->n, width));
}

struct writer {
    uint8_t *at;
    uint64_t bits; /* those of the byte at `at` and behind it */
    unsigned have; /* below 8 */
};

/* Up to WORD_BITS of them. */
static inline void put(struct writer *w, uint64_t bits, unsigned n)
{
    w->bits |= bits << w->have;
    spr_bits_store(w->at, w->bits);
    w->have += n;
    w->at += w->have / 8;
    w->bits >>= w->have / 8 * 8;
    w->have %= 8;
}

static uint8_t *encode_block(const uint32_t *x, size_t n, uint32_t first, uint8_t *out)
{
    uint32_t gap[SPR_INDEX_BLOCK];
    uint32_t spread = x[n - 1] - first - (uint32_t)(n - 1);
    unsigned width = spr_index_low_width(spread, n, PART);
    struct writer w = {.at = out + 1};

    spr_indices_kernels()->gaps(x, n, first, gap);
    *out = (uint8_t)width;
    for (size_t i = 0; i < n; i++) {
        uint32_t zeros = gap[i] >> width;
        uint64_t low = gap[i] & ((UINT32_C(1) << width) - 1);

        for (; zeros + 1 + width > WORD_BITS && zeros >= 8; zeros -= 8)
            put(&w, 0, 8);
        put(&w, (low << 1 | 1) << zeros, zeros + 1 + width);
    }
    return w.at + (w.have > 0);
}

/* `have` bits are good; those above are 0, or already what the bytes at `at` say. */
struct reader {
    const uint8_t *at, *end;
    uint64_t bits;
    unsigned have;
};

/* To WORD_BITS or more, or all there are. */
static inline void refill(struct reader *r)
{
    if (r->end - r->at >= 8) {
        r->bits |= spr_bits_load(r->at) << r->have;
        r->at += (63 - r->have) / 8;
        r->have |= WORD_BITS;
        return;
    }
    for (; r->have < WORD_BITS && r->at < r->end; r->have += 8)
        r->bits |= (uint64_t)*r->at++ << r->have;
}

static inline uint32_t take(struct reader *r, unsigned n)
{
    uint32_t v = (uint32_t)(r->bits & ((UINT64_C(1) << n) - 1));

    r->bits >>= n;
    r->have -= n;
    return v;
}

/* A gap that may be longer than a word, or end where the bytes do. */
static const char *read_slowly(struct reader *r, unsigned width, uint64_t *gap)
{
    uint64_t zeros = 0;

    for (;; zeros++) {
        refill(r);
        if (r->have == 0)
            return "Golomb codes of indices: truncated";
        if (take(r, 1))
            break;
        if (zeros == MOST_ZEROS)
            return "Golomb codes of indices: too many zeros";
    }
    refill(r);
    if (r->have < width)
        return "Golomb codes of indices: truncated";
    *gap = zeros << width | take(r, width);
    return NULL;
}

static const char *read_block(struct reader *r, unsigned width, uint64_t universe, uint64_t first,
                              uint32_t *x, size_t n)
{
    uint64_t next = first;

    for (size_t i = 0; i < n; i++) {
        uint64_t gap;

        refill(r);
        unsigned zeros = r->bits ? (unsigned)__builtin_ctzll(r->bits) : 63;
        if (zeros + 1 + width <= r->have) {
            r->bits = r->bits >> zeros >> 1;
            r->have -= zeros + 1;
            gap = (uint64_t)zeros << width | take(r, width);
        } else {
            const char *why = read_slowly(r, width, &gap);
            if (why)
                return why;
        }
        next += gap;
        if (next >= universe)
            return "Golomb codes of indices: out of range";
        x[i] = (uint32_t)next++;
    }
    if (width != spr_index_low_width(next - first - n, n, PART))
        return "Golomb codes of indices: not the parameter for this block";
    return NULL;
}

static bool decode_block(struct spr_index_cursor *c, uint32_t *x, size_t n)
{
    unsigned width = c->at < c->end ? *c->at++ : 0xff;
    struct reader r = {.at = c->at, .end = c->end};

    if (width > 31)
        return spr_index_fail(c, "Golomb codes of indices: no such parameter");
    const char *why = read_block(&r, width, c->universe, c->next, x, n);
    if (why)
        return spr_index_fail(c, why);
    if (take(&r, r.have % 8))
        return spr_index_fail(c, "Golomb codes of indices: padding is not zero");
    c->at = r.at - r.have / 8;
    c->next = (uint64_t)x[n - 1] + 1;
    return true;
}

static size_t golomb_decode(struct spr_index_cursor *c, uint32_t *index, size_t room)
{
    return spr_index_decode_blocks(c, index, room, decode_block);
}

const struct spr_index_coder spr_index_golomb = {
    .id = SPR_INDEX_GOLOMB,
    .name = "golomb",
    .doc = "Golomb-Rice codes of the gaps: the shortest, and the slowest",
    .paper = "Golomb 1966, Run-length encodings; Rice and Plaunt 1971, Adaptive variable-length "
             "coding for efficient compression of spacecraft television data",
    .bound = spr_index_unary_bound,
    .encode_block = encode_block,
    .fixed_bytes = spr_index_no_fixed_bytes,
    .block_bytes = golomb_block_bytes,
    .open = spr_index_no_header,
    .decode = golomb_decode,
};
