/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Natural compression (Horvath et al. 2019, "Natural compression for distributed deep learning"):
 * every element goes to one of the two powers of two next to it, t = 2^a * (1 + f) to 2^(a + 1)
 * with the probability f, else to 2^a: unbiased, 9 bits (sign and exponent), and no scale. Its
 * variance is at most 1/8 of the square. It needs no division: a random number is added to the
 * fraction bits, and the carry into the exponent is the decision.
 *
 * A block of m <= 1024 elements:
 *
 *    0                 m
 *   +-----------------+---------+------------------+---------+
 *   | exponents, a    | zeros   | m signs, from    | zeros   |
 *   | byte each       | up to 4 | bit 0 on         | up to 4 |
 *   +-----------------+---------+------------------+---------+
 *
 * Exponents have the bias of fp32 (127). 0 is zero, and denormal numbers go to 0 or 2^-126,
 * unbiased, too; 255 is NaN, which NaN and Inf become. Above 2^127 there is no power of two that is
 * finite: those go to 2^127.
 */
#include "compress/values/group.h"

#define BLOCK 1024u

static unsigned natural_traits(const void *options)
{
    (void)options;
    return SPR_VALUES_FIXED | SPR_VALUES_RANDOM | SPR_VALUES_UNBIASED;
}

static size_t natural_group(const void *options)
{
    (void)options;
    return BLOCK;
}

static size_t block_bytes(size_t n) { return spr_padded(8 * n) + spr_padded(n); }

static size_t natural_bound(const void *options, size_t n)
{
    (void)options;
    return n / BLOCK * block_bytes(BLOCK) + block_bytes(n % BLOCK);
}

static size_t natural_encode(const void *options, struct spr_draw draw, const float *in, size_t n,
                             void *out)
{
    uint8_t *to = out;

    (void)options;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = spr_min_size(BLOCK, n - at);
        uint8_t *signs = to + spr_padded(8 * m);

        spr_values_kernels()->natural(in + at, m, spr_draw_after(draw, at), to);
        spr_pad(to, 8 * m);
        spr_values_kernels()->signs(in + at, m, signs);
        spr_pad(signs, m);
        to += block_bytes(m);
    }
    return (size_t)(to - (uint8_t *)out);
}

static spr_status natural_check(const void *options, const void *bytes, size_t size, size_t n,
                                const char **why)
{
    const uint8_t *from = bytes;

    if (size != natural_bound(options, n)) {
        *why = "values: not the bytes that their number needs";
        return SPR_ERR_PROTO;
    }
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = spr_min_size(BLOCK, n - at);

        if (!spr_padding_is_zero(from, 8 * m) ||
            !spr_padding_is_zero(from + spr_padded(8 * m), m)) {
            *why = "values: bits behind the last one of a block";
            return SPR_ERR_PROTO;
        }
        from += block_bytes(m);
    }
    return SPR_OK;
}

static size_t natural_decode(const void *options, const void *bytes, size_t n, enum spr_decode how,
                             float *out)
{
    const uint8_t *from = bytes;

    (void)options;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = spr_min_size(BLOCK, n - at);

        spr_values_kernels()->decode_natural(from, from + spr_padded(8 * m), m, how, out + at);
        from += block_bytes(m);
    }
    return (size_t)(from - (const uint8_t *)bytes);
}

const struct spr_value_coder spr_value_natural = {
    .name = "natural",
    .doc = "9 bits: sign and exponent, at random one of the two powers of two next to it",
    .paper = "Horvath et al. 2019, Natural compression for distributed deep learning",
    .traits = natural_traits,
    .group = natural_group,
    .bound = natural_bound,
    .encode = natural_encode,
    .check = natural_check,
    .decode = natural_decode,
    .feed = spr_value_feed,
};
