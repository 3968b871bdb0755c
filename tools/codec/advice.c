/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/advice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "compress/select/topk.h"

const double trait_densities[TRAIT_DENSITIES] = {0.001, 0.01, 0.1};

/* Selection is advised where it takes this part of the energy: the rest waits for some steps only.
 */
#define MOST_OF_THE_ENERGY 0.9
#define FP16_LARGEST 65504.0
#define FP16_SMALLEST_NORMAL 0x1p-14

static double square(double a) { return a * a; }

static void plain_traits(struct traits *t, const float *x, size_t n, double *energy)
{
    double tiny = 0;
    size_t finite = 0;

    *energy = 0;
    for (size_t i = 0; i < n; i++) {
        double a = (double)fabsf(x[i]);
        if (!isfinite(a)) {
            t->not_finite++;
            continue;
        }
        finite++;
        t->zeros += !(a > 0);
        t->largest = fmax(t->largest, a);
        *energy += square(a);
        tiny += a < FP16_SMALLEST_NORMAL ? square(a) : 0;
    }
    t->rms = finite ? sqrt(*energy / (double)finite) : 0;
    t->tiny = *energy > 0 ? tiny / *energy : 0;
}

spr_status traits_of(struct traits *traits, const float *x, size_t n, struct spr_error *error)
{
    double largest = trait_densities[TRAIT_DENSITIES - 1], energy;
    size_t k = spr_select_count(largest, n), list = (k + 16) * sizeof(float);
    size_t scratch_bytes = spr_topk_scratch(n, k);
    uint32_t *index = spr_pages_alloc(list);
    float *value = spr_pages_alloc(list);
    void *scratch = spr_pages_alloc(scratch_bytes);
    spr_status status = SPR_OK;

    *traits = (struct traits){0};
    plain_traits(traits, x, n, &energy);
    if (!index || !value || !scratch)
        status = spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for %zu elements", n);
    for (int d = 0; status == SPR_OK && d < TRAIT_DENSITIES; d++) {
        struct spr_topk_hint hint = {0};
        double part = 0;
        k = spr_select_count(trait_densities[d], n);
        spr_topk_select(x, n, k, &hint, index, value, scratch);
        for (size_t i = 0; i < k; i++)
            part += isfinite(value[i]) ? square((double)value[i]) : 0;
        traits->energy[d] = energy > 0 ? part / energy : 0;
    }
    spr_pages_free(index, list);
    spr_pages_free(value, list);
    spr_pages_free(scratch, scratch_bytes);
    return status;
}

#define ADVISE(name, ...)                                                                          \
    do {                                                                                           \
        snprintf(advice->codec, sizeof(advice->codec), "%s", name);                                \
        snprintf(advice->reason, sizeof(advice->reason), __VA_ARGS__);                             \
    } while (0)

static void advise_rounding(struct advice *advice, const struct traits *t)
{
    double last = 100 * t->energy[TRAIT_DENSITIES - 1];

    if (t->largest > FP16_LARGEST)
        ADVISE("bf16",
               "the energy is spread (%.0f %% in the largest 10 %%), and the largest "
               "element is beyond fp16",
               last);
    else if (t->tiny > 0.001)
        ADVISE("bf16",
               "the energy is spread (%.0f %% in the largest 10 %%), and %.1f %% of it in "
               "elements that are too small for fp16; scaling the loss would allow it",
               last, 100 * t->tiny);
    else
        ADVISE("fp16",
               "the energy is spread (only %.0f %% in the largest 10 %%), so a selection "
               "leaves much for later steps; fp16 halves the bytes at an error of 2e-4",
               last);
}

/* The smallest ratio of three digits that leaves none of `count` elements out. */
static void print_ratio(char number[32], size_t count, size_t n)
{
    double ratio = (double)count / (double)n, step = pow(10, floor(log10(ratio)) - 2);

    do {
        snprintf(number, 32, "%.3g", ratio);
        ratio += step;
    } while (spr_select_count(strtod(number, NULL), n) < count);
}

void advise(struct advice *advice, const struct traits *t, size_t n)
{
    double zeros = (double)t->zeros / (double)n;
    char codec[64], number[32];

    if (t->not_finite > 0) {
        ADVISE("none",
               "%zu elements are NaN or infinite: find out why first, a codec hands them on",
               t->not_finite);
        return;
    }
    if (t->zeros == n) {
        ADVISE("none", "all elements are zero");
        return;
    }
    if (1 - zeros <= 0.2) {
        print_ratio(number, n - t->zeros, n);
        snprintf(codec, sizeof(codec), "topk:ratio=%s", number);
        ADVISE(codec, "%.4g %% of the elements are zero: the others are all there is to send",
               100 * zeros);
        return;
    }
    for (int d = 0; d < TRAIT_DENSITIES; d++)
        if (trait_densities[d] * (double)n >= 1 && t->energy[d] >= MOST_OF_THE_ENERGY) {
            snprintf(codec, sizeof(codec), "topk:ratio=%g%%+fp16", 100 * trait_densities[d]);
            ADVISE(codec, "%g %% of the elements have %.1f %% of the energy",
                   100 * trait_densities[d], 100 * t->energy[d]);
            return;
        }
    if (trait_densities[TRAIT_DENSITIES - 1] * (double)n < 1)
        ADVISE("none", "a codec is not worth it for %zu element%s", n, spr_plural(n));
    else
        advise_rounding(advice, t);
}
