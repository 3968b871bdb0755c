/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/buckets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/matrix_layout.h"
#include "tools/perf/wire.h"

bool buckets_open(struct trial *trial)
{
    struct job *job = trial->job;
    size_t n = trial->elements, buckets = job->options->buckets;

    if (buckets == 0)
        buckets = 1;
    if (buckets > n)
        return job_fail(job, "%zu buckets of %zu element%s", buckets, n, spr_plural(n));
    trial->buckets = calloc(buckets, sizeof *trial->buckets);
    if (trial->buckets == NULL)
        return job_fail(job, "out of memory");
    for (size_t i = 0; i < buckets; i++) {
        struct bucket *b = &trial->buckets[i];
        spr_layout layout[2];

        b->first = (size_t)((unsigned __int128)n * i / buckets);
        b->count = (size_t)((unsigned __int128)n * (i + 1) / buckets) - b->first;
        size_t parameters = matrix_layout(b->count, 0, layout);
        if (!job_ok(job, spr_codec_create(trial->codec_spec, layout, parameters, &b->codec)))
            return false;
        trial->bucket_count++;
    }
    return true;
}

void buckets_close(struct trial *trial)
{
    for (size_t i = 0; i < trial->bucket_count; i++)
        spr_codec_destroy(trial->buckets[i].codec);
    free(trial->buckets);
}

/* What was posted is waited for, whatever comes of another. */
spr_status buckets_run(struct trial *trial)
{
    spr_request *requests[MAX_BUCKETS];
    spr_status status = SPR_OK;
    size_t posted = 0;

    for (; status == SPR_OK && posted < trial->bucket_count; posted += status == SPR_OK) {
        const struct bucket *b = &trial->buckets[posted];
        status = spr_icompressed_allreduce(trial->job->comm, b->codec, trial->gradient + b->first,
                                           trial->op, &trial->call, &requests[posted]);
    }
    for (size_t i = 0; i < posted; i++) {
        spr_status result = spr_wait(&requests[i], -1.0);
        status = status != SPR_OK ? status : result;
    }
    return status;
}

spr_status buckets_run_in_turn(struct trial *trial)
{
    spr_status status = SPR_OK;

    for (size_t i = 0; status == SPR_OK && i < trial->bucket_count; i++) {
        const struct bucket *b = &trial->buckets[i];
        status = spr_compressed_allreduce(trial->job->comm, b->codec, trial->gradient + b->first,
                                          trial->op, &trial->call);
    }
    return status;
}

size_t buckets_entries(const struct trial *trial)
{
    const uint32_t *index;
    const float *value;
    size_t all = 0, count;

    for (size_t i = 0; i < trial->bucket_count; i++)
        if (spr_codec_last_list(trial->buckets[i].codec, &index, &value, &count))
            all += count;
    return all;
}

void buckets_residual(const struct trial *trial, size_t first, size_t count, float *values)
{
    for (size_t i = 0; i < trial->bucket_count; i++) {
        const struct bucket *b = &trial->buckets[i];
        size_t begin = spr_max_size(first, b->first);
        size_t end = spr_min_size(first + count, b->first + b->count);

        if (begin < end)
            memcpy(values + (begin - first), spr_codec_residual(b->codec) + (begin - b->first),
                   (end - begin) * sizeof *values);
    }
}

void buckets_beside(struct trial *trial, struct trial *in_turn, struct trial *wire)
{
    compressed_in_turn(in_turn, trial);
    wire_open(wire, trial);
    trial->in_turn = in_turn;
    trial->wire = wire;
}

void buckets_conclude(struct trial *trial)
{
    struct figures *f = &trial->figures;
    double wire_us = trial->wire->figures.p50_us, compute_us = trial->in_turn->figures.compute_us;
    double shorter = fmin(wire_us, compute_us), longer = fmax(wire_us, compute_us);

    f->wrong += trial->in_turn->figures.wrong + trial->wire->figures.wrong;
    f->overlap =
        trial->job->size > 1 && shorter > 0 ? 1 - (f->p50_us - longer) / shorter : (double)NAN;
}
