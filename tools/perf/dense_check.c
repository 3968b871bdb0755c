/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/dense_check.h"

#include <math.h>
#include <string.h>

#include "base/crc32c.h"
#include "tools/perf/data.h"
#include "tools/perf/sample.h"

double rounding_bound(spr_dtype dtype, int steps)
{
    double k = steps * (dtype == SPR_FP64 ? 0x1p-53 : 0x1p-24);
    return k / (1 - k);
}

/* The result at `at` in recv of `count` elements against those of all ranks from `first` on. */
static void compare_sums(const struct trial *trial, size_t first, const char *at, size_t count,
                         struct tally *tally)
{
    double sum[SAMPLE_RUN] = {0}, size[SAMPLE_RUN] = {0}, x[SAMPLE_RUN];
    int ranks = trial->job->size, average = trial->op == SPR_AVG;
    double bound = rounding_bound(trial->dtype, ranks - 1 + average);
    double last = trial->dtype == SPR_FP16 ? 0x1p-11 : trial->dtype == SPR_BF16 ? 0x1p-8 : 0;
    double least = trial->dtype == SPR_FP16 ? 0x1p-25 : 0; /* half of the smallest subnormal */
    uint64_t raw[SAMPLE_RUN];

    for (int rank = 0; rank < ranks; rank++) {
        data_fill(trial->dtype, trial->job->options->seed, rank, first, count, raw);
        data_to_double(trial->dtype, raw, count, x);
        for (size_t i = 0; i < count; i++) {
            sum[i] += x[i];
            size[i] += fabs(x[i]);
        }
    }
    data_to_double(trial->dtype, at, count, x);
    for (size_t i = 0; i < count; i++) {
        double reference = average ? sum[i] / ranks : sum[i];
        double allowed = bound * (average ? size[i] / ranks : size[i]);
        double error = fabs(x[i] - reference);
        allowed = trial->dtype == SPR_FP64 ? 2 * allowed : allowed;
        allowed += last * (fabs(reference) + allowed) + least;
        tally->wrong += !(error <= allowed); /* NaN is wrong too */
        tally->error2 += error * error;
        tally->reference2 += reference * reference;
    }
}

static void compare_ends(const struct trial *trial, size_t first, const char *at, size_t count,
                         struct tally *tally)
{
    double end[SAMPLE_RUN] = {0}, x[SAMPLE_RUN];
    uint64_t raw[SAMPLE_RUN];

    for (int rank = 0; rank < trial->job->size; rank++) {
        data_fill(trial->dtype, trial->job->options->seed, rank, first, count, raw);
        data_to_double(trial->dtype, raw, count, x);
        for (size_t i = 0; i < count; i++) {
            if (rank == 0 || (trial->op == SPR_MIN ? x[i] < end[i] : x[i] > end[i]))
                end[i] = x[i];
        }
    }
    data_to_double(trial->dtype, at, count, x);
    for (size_t i = 0; i < count; i++) {
        tally->wrong += !(x[i] == end[i]);
        tally->error2 += (x[i] - end[i]) * (x[i] - end[i]);
        tally->reference2 += end[i] * end[i];
    }
}

/* One more number; sums wrap around. */
static int64_t fold(spr_op op, int64_t so_far, int64_t x)
{
    switch (op) {
    case SPR_MIN:
        return x < so_far ? x : so_far;
    case SPR_MAX:
        return x > so_far ? x : so_far;
    default:
        return (int64_t)((uint64_t)so_far + (uint64_t)x);
    }
}

static void compare_integers(const struct trial *trial, size_t first, const char *at, size_t count,
                             struct tally *tally)
{
    int64_t result[SAMPLE_RUN], x[SAMPLE_RUN];
    uint64_t raw[SAMPLE_RUN];

    for (int rank = 0; rank < trial->job->size; rank++) {
        data_fill(trial->dtype, trial->job->options->seed, rank, first, count, raw);
        data_to_int64(trial->dtype, raw, count, x);
        for (size_t i = 0; i < count; i++)
            result[i] = rank == 0 ? x[i] : fold(trial->op, result[i], x[i]);
    }
    data_to_int64(trial->dtype, at, count, x);
    for (size_t i = 0; i < count; i++) {
        if (trial->dtype == SPR_INT32)
            result[i] = (int32_t)(uint32_t)(uint64_t)result[i];
        if (trial->op == SPR_AVG)
            result[i] /= trial->job->size;
        tally->wrong += x[i] != result[i];
        tally->error2 += x[i] != result[i];
        tally->reference2 += 1;
    }
}

/* allgather, broadcast and sendrecv: the elements of one rank, bit by bit. */
static void compare_copies(const struct trial *trial, size_t first, const char *at, size_t count,
                           struct tally *tally)
{
    uint64_t raw[SAMPLE_RUN];
    size_t width = spr_dtype_size(trial->dtype);

    for (size_t i = 0; i < count; i++) {
        bool parts = trial->kind == KIND_ALLGATHER;
        size_t ranks = (size_t)trial->job->size,
               before = ((size_t)trial->job->rank + ranks - 1) % ranks;
        size_t other = trial->kind == KIND_SENDRECV ? before : 0;
        size_t rank = parts ? (first + i) / trial->count : other;
        /* As far as this rank's part goes. */
        size_t from = parts ? (first + i) % trial->count : first + i;
        size_t part = spr_min_size(count - i, trial->count - from);
        data_fill(trial->dtype, trial->job->options->seed, (int)rank, from, part, raw);
        for (size_t k = 0; k < part; k++) {
            bool wrong = memcmp((char *)raw + k * width, at + (i + k) * width, width) != 0;
            tally->wrong += wrong;
            tally->error2 += wrong;
            tally->reference2 += 1;
        }
        i += part - 1;
    }
}

bool dense_compare(struct trial *trial, struct tally *tally)
{
    size_t width = spr_dtype_size(trial->dtype), first, count;
    bool parts = trial->kind == KIND_REDUCE_SCATTER;
    size_t ours = parts ? trial->count * (size_t)trial->job->rank : 0;
    const char *recv = trial->vectors->recv;
    struct sample sample = sample_of(trial->kind == KIND_BARRIER ? 0 : trial->recv_count);

    while (sample_next(&sample, &first, &count)) {
        const char *at = recv + first * width;
        if (trial->kind == KIND_ALLGATHER || trial->kind == KIND_BROADCAST ||
            trial->kind == KIND_SENDRECV)
            compare_copies(trial, first, at, count, tally);
        else if (trial->dtype == SPR_INT32 || trial->dtype == SPR_INT64)
            compare_integers(trial, ours + first, at, count, tally);
        else if (trial->op == SPR_MIN || trial->op == SPR_MAX)
            compare_ends(trial, ours + first, at, count, tally);
        else
            compare_sums(trial, ours + first, at, count, tally);
    }
    if (parts || trial->kind == KIND_BARRIER || trial->kind == KIND_SENDRECV)
        return true;
    return job_same(trial->job, spr_crc32c(0, recv, trial->recv_count * width), &tally->same);
}
