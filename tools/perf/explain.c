/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/explain.h"

#include <math.h>
#include <string.h>

#include "tools/perf/buckets.h"

enum { MAX_PREDICTIONS = 24 };

bool explain_begin(struct job *job)
{
    char text[SPR_MODEL_BYTES];

    if (!job->options->explain)
        return true;
    spr_comm_model(job->comm, text, sizeof text);
    if (*text == '\0' && !job_ok(job, spr_comm_tune(job->comm)))
        return false;
    spr_comm_model(job->comm, text, sizeof text);
    job_comment(job, "model: %s", *text != '\0' ? text : "none, for one rank");
    return true;
}

/* Of the trial as it would run now, or of one of its buckets. Returns how many, or a negative
 * status. */
static int predict(const struct trial *trial, size_t bucket, spr_prediction *predictions)
{
    spr_comm *comm = trial->job->comm;

    if (trial->kind == KIND_COMPRESSED)
        return spr_codec_predict(comm, trial->buckets[bucket].codec, predictions, MAX_PREDICTIONS);
    if (trial->kind == KIND_SPARSE)
        return spr_comm_predict(comm, "sparse_allreduce", trial->count, trial->dtype,
                                trial->call.most_entries, 0, predictions, MAX_PREDICTIONS);
    if (trial->kind == KIND_ALLREDUCE)
        return spr_comm_predict(comm, "allreduce", trial->count, trial->dtype, 0, 0, predictions,
                                MAX_PREDICTIONS);
    return 0;
}

/* Buckets are often alike. */
static bool is_tuned(spr_comm *comm, spr_codec *codec)
{
    spr_prediction predictions[MAX_PREDICTIONS];
    int n = spr_codec_predict(comm, codec, predictions, MAX_PREDICTIONS);
    bool tuned = false;

    for (int i = 0; i < n && i < MAX_PREDICTIONS; i++)
        tuned |= predictions[i].chosen && isfinite(predictions[i].measured);
    return tuned;
}

bool tune_trial(struct trial *trial)
{
    spr_comm *comm = trial->job->comm;
    spr_status status = SPR_OK;

    if (!trial->job->options->tune || strcmp(trial->algorithm, "auto") != 0 || trial->beside)
        return true;
    if (trial->kind == KIND_SPARSE && trial->call.most_entries > 0)
        status = spr_comm_tune_list(comm, &trial->list, trial->count, trial->call.most_entries);
    else if (trial->kind == KIND_ALLREDUCE)
        status = spr_comm_tune_for(comm, "allreduce", trial->count, trial->dtype, 0);
    for (size_t i = 0; status == SPR_OK && i < trial->bucket_count; i++)
        if (!is_tuned(comm, trial->buckets[i].codec))
            status = spr_codec_tune(comm, trial->buckets[i].codec);
    return job_ok(trial->job, status);
}

bool explain_trial(struct trial *trial)
{
    bool any = strcmp(trial->algorithm, "auto") == 0;
    size_t buckets = spr_max_size(trial->bucket_count, 1), found = 0;
    double predicted = 0, tuned = 0;
    spr_prediction predictions[MAX_PREDICTIONS];

    for (size_t b = 0; b < buckets && !trial->beside; b++) {
        int n = predict(trial, b, predictions);
        if (n < 0)
            return job_ok(trial->job, (spr_status)n);
        for (int i = 0; i < n && i < MAX_PREDICTIONS; i++) {
            const spr_prediction *p = &predictions[i];
            if (any ? !p->chosen : strcmp(p->algorithm, trial->algorithm) != 0)
                continue;
            found++;
            predicted += p->seconds * 1e6;
            tuned += p->measured * 1e6;
            trial->figures.taken = any ? p->algorithm : NULL;
        }
    }
    if (found == buckets) {
        trial->figures.predicted_us = predicted;
        trial->figures.tuned_us = tuned;
    }
    return true;
}

/* What "auto" takes for such a row. */
static const char *choice_for(const struct trial *trial)
{
    spr_prediction predictions[MAX_PREDICTIONS];
    int n = predict(trial, 0, predictions);

    for (int i = 0; i < n && i < MAX_PREDICTIONS; i++)
        if (predictions[i].chosen)
            return predictions[i].algorithm;
    return "no algorithm";
}

void explain_group(const struct trial *trials, size_t count)
{
    const struct trial *best = NULL;

    for (size_t i = 0; i < count; i++) {
        const struct trial *trial = &trials[i];
        const struct figures *f = &trial->figures;
        if (!trial->job->options->explain || !isfinite(f->predicted_us))
            continue;
        /* The model knows nothing of buckets in flight together. */
        double p50_us = trial->in_turn != NULL ? trial->in_turn->figures.p50_us : f->p50_us;
        job_comment(trial->job, "%s %s%s%s: predicted %.1f us, measured %.1f (%+.0f %%)",
                    kind_names[trial->kind], f->taken != NULL ? "auto: " : "",
                    f->taken != NULL ? f->taken : trial->algorithm,
                    trial->in_turn != NULL ? ", one bucket at a time" : "", f->predicted_us, p50_us,
                    100 * (p50_us / f->predicted_us - 1));
        if (trial->kind == trial->job->options->kind && f->taken == NULL &&
            (best == NULL || f->predicted_us < best->figures.predicted_us))
            best = trial;
    }
    if (best != NULL && best->kind == KIND_COMPRESSED)
        job_comment(best->job, "predictions are without the time to select, %.1f us",
                    best->figures.phase_us[PHASE_SELECT]);
    if (best != NULL)
        job_comment(best->job, "auto takes %s", choice_for(best));
}
