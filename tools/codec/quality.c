/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/quality.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tools/codec/operations.h"
#include "tools/codec/predict.h"

enum { STEPS = 7, MOST_SUBJECTS = 4 };

static double cosine_of(const float *x, const float *y, size_t n)
{
    double xx = 0, yy = 0, xy = 0;

    for (size_t i = 0; i < n; i++) {
        double a = (double)x[i], b = (double)y[i];
        if (!isfinite(a) || !isfinite(b))
            continue;
        xx += a * a;
        yy += b * b;
        xy += a * b;
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx) / sqrt(yy) : (double)NAN;
}

spr_status quality_of(struct subject *subject, const float *x, float *decoded,
                      struct quality *quality, struct spr_error *error)
{
    size_t n = subject->n, bytes = subject_encode(subject, x);
    spr_status status = subject_decode(subject, decoded, error);

    if (status != SPR_OK)
        return status;
    *quality = (struct quality){
        .bytes = bytes,
        .ratio = (double)bytes / (double)(n * sizeof(float)),
        .bits = 8 * (double)bytes / (double)n,
        .error = relative_error(x, decoded, n),
        .cosine = cosine_of(x, decoded, n),
    };
    return SPR_OK;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double times[STEPS])
{
    qsort(times, STEPS, sizeof(*times), ascending);
    return times[STEPS / 2];
}

spr_status quality_times(struct subject *const *subjects, int count, const float *x, float *decoded,
                         struct quality *qualities, struct spr_error *error)
{
    double encode[MOST_SUBJECTS][STEPS], decode[MOST_SUBJECTS][STEPS];

    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < count; i++) {
            uint64_t begin = spr_monotonic_ns();
            subject_encode(subjects[i], x);
            uint64_t middle = spr_monotonic_ns();
            spr_status status = subject_decode(subjects[i], decoded, error);
            if (status != SPR_OK)
                return status;
            encode[i][step] = (double)(middle - begin) * 1e-3;
            decode[i][step] = (double)(spr_monotonic_ns() - middle) * 1e-3;
        }
    for (int i = 0; i < count; i++) {
        qualities[i].encode_us = median(encode[i]);
        qualities[i].decode_us = median(decode[i]);
    }
    return SPR_OK;
}

/* About `entries` of n positions, at random. Returns how many. */
static size_t random_support(uint32_t *index, size_t n, double entries)
{
    struct spr_rng rng = {.seed = 1};
    double part = entries / (double)n;
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        if (spr_rng_double(&rng) < part)
            index[count++] = (uint32_t)i;
    return count;
}

/* On one thread, `decoded` having room for all. */
static spr_status time_sum(struct subject *subject, const struct spr_codec_step *step,
                           float *decoded, struct quality_sum *sum, struct spr_error *error)
{
    double encode[STEPS], decode[STEPS];
    size_t bytes = 0;

    for (int i = -1; i < STEPS; i++) { /* one to warm up */
        uint64_t begin = spr_monotonic_ns();
        bytes = wire_encode(&subject->wire, step);
        uint64_t middle = spr_monotonic_ns();
        spr_status status = wire_decode(&subject->wire, decoded, error);
        if (status != SPR_OK)
            return status;
        encode[i < 0 ? 0 : i] = (double)(middle - begin) * 1e-3;
        decode[i < 0 ? 0 : i] = (double)(spr_monotonic_ns() - middle) * 1e-3;
    }
    *sum = (struct quality_sum){bytes, median(encode), median(decode)};
    return SPR_OK;
}

static struct spr_codec_kind kind_of(const struct subject *subject)
{
    struct spr_codec_kind kind = {.dense = false};
    struct spr_error error = {.rank = -1};

    (void)spr_codec_kind_of(subject->name, &kind, &error);
    return kind;
}

/* Of sums that are sent on. */
static enum spr_vtype sum_vtype(const struct subject *subject, int ranks)
{
    if (spr_codec_is_dense(subject->codec))
        return subject->wire.vtype;
    return ranks > 1 ? spr_codec_sum_vtype(subject->codec) : SPR_V_FP32;
}

/* So many entries all ranks get, of n. */
static double sums_sent(const struct subject *subject, double n, int ranks)
{
    double entries = (double)subject->entries;

    return kind_of(subject).bound_union ? entries : union_entries(n, entries, ranks);
}

/* As collectives send it. */
spr_status quality_sum(struct subject *subject, int ranks, struct quality_sum *sum,
                       struct spr_error *error)
{
    size_t n = subject->lists ? subject->n : subject->entries, bytes = n * sizeof(float);
    float *values = spr_pages_alloc(bytes), *decoded = spr_pages_alloc(bytes);
    uint32_t *index = spr_pages_alloc(n * sizeof(*index));
    struct spr_codec_step step = {
        .dense = !subject->lists,
        .vector = values,
        .value = values,
        .index = index,
        .count = n,
        .vtype = sum_vtype(subject, ranks),
        .coding = spr_codec_sum_coding(subject->codec),
    };
    struct spr_rng rng = {.seed = n};
    spr_status status;

    if (!values || !decoded || !index) {
        status = spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for %zu elements", n);
        goto out;
    }
    data_fill(DATA_NORMAL, values, n, &rng); /* some coders' bytes depend on the values */
    if (subject->lists)
        step.count = random_support(index, n, sums_sent(subject, (double)n, ranks));
    (void)wire_place(&subject->wire, n);
    status = time_sum(subject, &step, decoded, sum, error);
out:
    spr_pages_free(values, bytes);
    spr_pages_free(decoded, bytes);
    spr_pages_free(index, n * sizeof(*index));
    return status;
}
