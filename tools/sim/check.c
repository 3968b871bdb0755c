/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A result against the inputs of all ranks.
 *
 * A sum of P numbers, added in whatever order, has an error of at most g(P-1) * sum |x|,
 * g(k) = k u / (1 - k u), u the unit roundoff (Higham, Accuracy and Stability of Numerical
 * Algorithms, 2nd ed., section 4.2). What a rank has sent through a codec is what its gradient has
 * lost to the residual, which starts at zero; there are codecs whose residual does not tell.
 */
#include <math.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/util.h"
#include "tools/perf/sample.h"
#include "tools/sim/input.h"

/* How far a codec's result may be from the sum of what the residuals say was sent. */
struct loss {
    double last; /* unit roundoff of sums that travel in 16 bits */
    double rest; /* ... of residuals, in the largest value with which an element shares a scale */
};

static struct loss loss_of(const char *codec)
{
    struct spr_codec_kind kind = codec_kind(codec);
    bool rounds = kind.coded || kind.round_sums || kind.bound_hosts;
    struct loss loss = {.rest = rounds ? 0x1p-23 : 0};

    if (!kind.lists && strstr(codec, "bf16") != NULL)
        loss.last = 0x1p-8;
    else if (!kind.lists && strstr(codec, "fp16") != NULL)
        loss.last = 0x1p-11;
    return loss;
}

/* Sums over ranks, of a run of elements. */
struct sums {
    double sum[SAMPLE_RUN], size[SAMPLE_RUN], rest[SAMPLE_RUN];
};

static void add(const struct input *input, int rank, size_t first, size_t count, bool rounds,
                struct sums *s)
{
    const float *after =
        input->kind == KIND_COMPRESSED ? spr_codec_residual(input->codecs[rank]) + first : NULL;
    double largest = 0, sent[SAMPLE_RUN];
    float value[SAMPLE_RUN];

    input_values(input, rank, first, count, value);
    for (size_t i = 0; i < count; i++) {
        sent[i] = (double)value[i] - (after != NULL ? (double)after[i] : 0);
        double size = fabs((double)value[i]) + (after != NULL ? fabs((double)after[i]) : 0);
        if (size > largest) /* no fmax(): see spr_estimate_of() */
            largest = size;
    }
    for (size_t i = 0; i < count; i++) {
        s->sum[i] += sent[i];
        s->size[i] += rounds ? largest : fabs(sent[i]);
        s->rest[i] += rounds ? largest : 0;
    }
}

static double wrong_in_run(const struct input *input, size_t first, size_t count,
                           const struct loss *loss)
{
    bool average = input->kind == KIND_COMPRESSED;
    double steps = (input->ranks - 1 + average) * 0x1p-24, wrong = 0;
    double bound = steps / (1 - steps) + 0x1p-40; /* the fp64 sums are not exact either */
    double divisor = average ? input->ranks : 1;
    struct sums s = {0};

    for (int r = 0; r < input->ranks; r++)
        add(input, r, first, count, loss->rest > 0, &s);
    for (size_t i = 0; i < count; i++) {
        double allowed = bound * s.size[i] / divisor;
        allowed +=
            loss->last * (fabs(s.sum[i]) / divisor + allowed) + (loss->last > 0 ? 0x1p-25 : 0);
        allowed += loss->rest * s.rest[i] / divisor;
        double error = fabs((double)input->vectors[0][first + i] - s.sum[i] / divisor);
        wrong += !(error <= allowed); /* NaN is wrong too */
    }
    return wrong;
}

struct verdict input_check(const struct input *input, const char *codec)
{
    size_t bytes = input->support.elements * sizeof(float), first, count;
    uint32_t crc = spr_crc32c(0, input->vectors[0], bytes);
    struct sample sample = sample_of(input->support.elements);
    struct verdict verdict = {.same = true};
    struct loss loss = {0, 0};

    for (int r = 1; r < input->ranks; r++)
        verdict.same &= spr_crc32c(0, input->vectors[r], bytes) == crc;
    if (input->kind == KIND_COMPRESSED) {
        loss = loss_of(codec);
        if (!codec_kind(codec).conserves)
            verdict.wrong = NAN;
    }
    while (isfinite(verdict.wrong) && sample_next(&sample, &first, &count))
        verdict.wrong += wrong_in_run(input, first, count, &loss);
    return verdict;
}
