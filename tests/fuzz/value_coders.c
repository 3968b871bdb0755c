/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Images of the value coders (compress/values/), which come from a peer. Input: which coder and
 * options (of tests/unit/value_cases.h), how many values, then the image. What passes the check is
 * decoded, whole and in two parts, by scalar and SIMD kernels alike, and nothing else is read or
 * written than the image and the values.
 */
#include <math.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/value_cases.h"

#define MOST 3000

static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* Of just that size. */
static float *values(size_t n)
{
    float *v = malloc(n ? n * sizeof(*v) : 1);

    FUZZ_CHECK(v);
    for (size_t i = 0; i < n; i++)
        v[i] = (float)i * 0.5f - 100;
    return v;
}

static void decode_all(const struct value_case *c, const uint8_t *image, size_t bytes, size_t n)
{
    size_t cut = n / c->group / 2 * c->group, front;
    float *whole = values(n), *other = values(n);

    for (enum spr_decode how = SPR_DECODE_SET; how <= SPR_DECODE_TAKE; how++) {
        FUZZ_CHECK(c->coder->decode(c->options, image, n, how, whole) == bytes);
        spr_cpu_override(0);
        FUZZ_CHECK(c->coder->decode(c->options, image, n, how, other) == bytes);
        spr_cpu_override(UINT32_MAX);
        FUZZ_CHECK(same(whole, other, n));
    }
    c->coder->decode(c->options, image, n, SPR_DECODE_SET, whole);
    front = c->coder->decode(c->options, image, cut, SPR_DECODE_SET, other);
    FUZZ_CHECK(
        front + c->coder->decode(c->options, image + front, n - cut, SPR_DECODE_SET, other + cut) ==
        bytes);
    FUZZ_CHECK(same(whole, other, n));
    free(whole);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    struct value_case c = value_case(value_specs[fuzz_u8(&in) % VALUE_CASES]);
    size_t n = fuzz_u16(&in) % (MOST + 1), bytes = in.left;
    uint8_t *image = fuzz_rest(&in);
    const char *why = NULL;

    /* Where the size follows from the number, most inputs would only be too short or too long. */
    if ((c.traits & SPR_VALUES_FIXED) && bytes > 0 && bytes != c.coder->bound(c.options, n))
        while (n > 0 && c.coder->bound(c.options, n) > bytes)
            n--;
    spr_status status = c.coder->check(c.options, image, bytes, n, &why);
    if (status == SPR_OK)
        decode_all(&c, image, bytes, n);
    else
        FUZZ_CHECK(status == SPR_ERR_PROTO && why && *why);
    free(image);
    return 0;
}

/* ---- Seeds ---- */

static void seed(size_t k, size_t n, float scale)
{
    struct value_case c = value_case(value_specs[k]);
    struct fuzz_seed *s = calloc(1, sizeof *s);
    uint8_t *image = malloc(c.coder->bound(c.options, n) + 4);
    float *x = values(n);
    char name[64];

    FUZZ_CHECK(s && image);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(int32_t)spr_hash_u32(i) * scale;
    fuzz_put_u8(s, (unsigned)k);
    fuzz_put_u16(s, (unsigned)n);
    fuzz_put(s, image, value_encode(&c, 1, 0, x, n, image));
    snprintf(name, sizeof name, "%02u_%s_%u_%s", (unsigned)k, c.coder->name, (unsigned)n,
             scale > 0 ? isinf(scale) ? "inf" : "some" : "zero");
    fuzz_emit_seed(name, s);
    free(x);
    free(image);
    free(s);
}

void fuzz_seeds(void)
{
    for (size_t k = 0; k < VALUE_CASES; k++) {
        seed(k, 45, 0x1p-31f);
        seed(k, 150, 0x1p-31f);
    }
    seed(3, 10, 0);
    seed(9, 10, INFINITY);
    seed(17, 10, INFINITY);
    seed(17, 10, 0);
    seed(26, 10, INFINITY);
}
