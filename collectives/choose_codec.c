/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which codec makes steps of a gradient the fastest, or whether dense does: tried, with links and
 * CPUs as they are, by new codecs on the caller's gradient. They take turns (A B C A B C), so that
 * what else happens on machines and network meets all of them.
 *
 * Every rank has the same figures in the end, the largest of any rank, and so the same choice. What
 * one rank alone would fail with, a wrong spec or no memory, is agreed on before anything is tried.
 */
#include "collectives/choose_codec.h"

#include <math.h>
#include <string.h>

#include "base/fork.h"
#include "base/log.h"
#include "collectives/collective.h"
#include "collectives/tune.h"

#define RUNS 5 /* that count, after one that does not */
#define STAYS 0.9

struct choosing {
    spr_comm *comm;
    const spr_choice_options *options;
    const char *const *specs;
    const float *gradient;
    int count;   /* of codecs; the trial after theirs is dense */
    int current; /* in use; the largest of any rank, as some may have failed to change, or be new */
    spr_codec **codec;       /* [count] */
    void *work;              /* what a step is made on */
    double *figures;         /* [count + 1][FIGURES], which ranks agree on at once */
    spr_codec_trial *trials; /* [count + 1] */
};

/* Of a trial. */
enum { SECONDS, ERROR = SECONDS + RUNS, BYTES, FIGURES };

static size_t elements_of(const struct choosing *c) { return spr_codec_elements(c->codec[0]); }

/* What is wrong with the arguments, as far as this rank can see; all but NULL pointers. */
static spr_status check(const struct choosing *c)
{
    const spr_choice_options *o = c->options;

    if (c->count < 1)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "no codec to choose from");
    if (!(o->most_error >= 0) || !(o->most_bytes >= 0) || isinf(o->most_error + o->most_bytes))
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "bounds of an error and of bytes are 0, for none, or more, not %g and "
                             "%g",
                             o->most_error, o->most_bytes);
    if (o->current < -1 || o->current > c->count)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "the codec in use is -1 to %d, not %d", c->count, o->current);
    return SPR_OK;
}

static spr_status make(struct choosing *c, const spr_layout *layout, size_t parameters)
{
    size_t count = (size_t)c->count;
    spr_status status = SPR_OK;

    c->codec = spr_calloc(count, sizeof *c->codec);
    c->figures = spr_calloc(count + 1, FIGURES * sizeof *c->figures);
    c->trials = spr_calloc(count + 1, sizeof *c->trials);
    for (size_t i = 0; c->codec && i < count && status == SPR_OK; i++) {
        status = spr_codec_create(c->specs[i], layout, parameters, &c->codec[i]);
        if (status == SPR_OK) /* the first step, which is not timed, and no warnings */
            status = spr_codec_watch(c->codec[i], RUNS + 1, 0, -1);
    }
    if (status)
        return status;
    if (!c->codec || !c->figures || !c->trials)
        return spr_error_set(spr_thread_error(), SPR_ERR_NOMEM, -1, "no memory to try %d codecs",
                             c->count);
    return spr_mem_alloc(c->comm, elements_of(c) * sizeof *c->gradient, &c->work);
}

static void drop(struct choosing *c)
{
    for (int i = 0; c->codec && i < c->count; i++)
        spr_codec_destroy(c->codec[i]);
    spr_free(c->codec);
    if (c->work)
        spr_mem_free(c->comm, c->work);
    spr_free(c->figures);
    spr_free(c->trials);
}

/* All are ready for the same, or all fail. mine: what this rank's own preparations ended with. */
static spr_status agree_on_start(struct choosing *c, spr_status mine)
{
    const spr_choice_options *o = c->options;
    const double same[] = {c->count, mine ? 0 : o->most_error, mine ? 0 : o->most_bytes};
    enum { SAME = SPR_ARRAY_LEN(same), STATUS = 2 * SAME, RANK, CURRENT, AGREED };
    double most[AGREED];
    struct spr_error own = *spr_thread_error();
    spr_status status;

    for (int i = 0; i < SAME; i++) {
        most[i] = same[i];
        most[SAME + i] = -same[i];
    }
    most[STATUS] = -(double)mine;
    most[RANK] = mine ? c->comm->rank : -1;
    most[CURRENT] = o->current;
    status = spr_tuning_agree(c->comm, most, AGREED);
    if (status)
        return status;
    if (mine) {
        *spr_thread_error() = own;
        return mine;
    }
    if (most[STATUS] > 0)
        return spr_error_set(spr_thread_error(), (spr_status)-most[STATUS], (int)most[RANK],
                             "rank %d cannot try these codecs; its own error says why",
                             (int)most[RANK]);
    for (int i = 0; i < SAME; i++)
        if (most[i] != -most[SAME + i])
            return spr_error_set(spr_thread_error(), SPR_ERR_MISMATCH, -1,
                                 "ranks want to choose from other numbers of codecs, or within "
                                 "other bounds: %d, %g and %g here",
                                 c->count, o->most_error, o->most_bytes);
    c->current = (int)most[CURRENT];
    return SPR_OK;
}

/* One step of a trial, from when all are ready; *seconds on this rank. */
static spr_status step(struct choosing *c, int trial, double *seconds)
{
    size_t elements = elements_of(c);
    spr_status status;
    uint64_t begin;

    memcpy(c->work, c->gradient, elements * sizeof *c->gradient);
    status = spr_barrier(c->comm, NULL);
    begin = spr_monotonic_ns();
    if (status == SPR_OK && trial < c->count)
        status = spr_compressed_allreduce(c->comm, c->codec[trial], c->work, SPR_AVG, NULL);
    else if (status == SPR_OK)
        status = spr_allreduce(c->comm, c->work, c->work, elements, SPR_FP32, SPR_AVG, NULL);
    *seconds = (double)(spr_monotonic_ns() - begin) * 1e-9;
    return status;
}

/* All trials' figures, as the slowest rank has them. */
static spr_status measure(struct choosing *c)
{
    int trials = c->count + 1;
    spr_status status = SPR_OK;

    for (int run = -1; run < RUNS; run++)
        for (int i = 0; i < trials && status == SPR_OK; i++) {
            double seconds;

            status = step(c, i, &seconds);
            if (run >= 0)
                c->figures[i * FIGURES + SECONDS + run] = seconds;
        }
    for (int i = 0; i < trials && status == SPR_OK; i++) {
        spr_codec_quality quality = {.struct_size = sizeof quality, .ratio = 1};

        if (i < c->count)
            status = spr_codec_measured(c->codec[i], SPR_ALL_PARAMETERS, &quality);
        c->figures[i * FIGURES + ERROR] = quality.relative_error;
        c->figures[i * FIGURES + BYTES] = quality.ratio;
    }
    if (status == SPR_OK)
        status = spr_tuning_agree(c->comm, c->figures, (size_t)trials * FIGURES);
    for (int i = 0; i < trials && status == SPR_OK; i++) {
        double *figures = &c->figures[i * FIGURES];

        c->trials[i] = (spr_codec_trial){
            .spec = i < c->count ? c->specs[i] : "dense",
            .seconds = spr_tuning_median(&figures[SECONDS], RUNS),
            .error = figures[ERROR],
            .bytes = figures[BYTES],
        };
    }
    return status;
}

int spr_trials_decide(spr_codec_trial *trials, int n, const spr_choice_options *options,
                      int current)
{
    int best = -1;

    for (int i = 0; i < n; i++) {
        trials[i].allowed = (options->most_error == 0 || trials[i].error <= options->most_error) &&
                            (options->most_bytes == 0 || trials[i].bytes <= options->most_bytes);
        if (trials[i].allowed && (best < 0 || trials[i].seconds < trials[best].seconds))
            best = i;
    }
    if (current >= 0 && trials[current].allowed &&
        trials[best].seconds > STAYS * trials[current].seconds)
        best = current;
    return best;
}

static spr_status decide(struct choosing *c, int *chosen)
{
    const spr_choice_options *o = c->options;
    int trials = c->count + 1, best = spr_trials_decide(c->trials, trials, o, c->current);

    if (o->trials)
        memcpy(o->trials, c->trials, (size_t)trials * sizeof *c->trials);
    for (int i = 0; i < trials && c->comm->rank == 0; i++)
        spr_info(SPR_SUB_COLL, "codec %s: %.3f ms a step, error %.3g, %.4f of the bytes%s",
                 c->trials[i].spec, c->trials[i].seconds * 1e3, c->trials[i].error,
                 c->trials[i].bytes,
                 i == best              ? ", chosen"
                 : c->trials[i].allowed ? ""
                                        : ", not allowed");
    if (best < 0)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "none of %d codecs, nor dense, is within an error of %g and %g of the "
                             "bytes",
                             c->count, o->most_error, o->most_bytes);
    *chosen = best;
    return SPR_OK;
}

spr_status spr_codec_choose(spr_comm *comm, const char *const *specs, int count,
                            const spr_layout *layout, size_t parameters, const float *gradient,
                            const spr_choice_options *options, int *chosen)
{
    static const spr_choice_options any = SPR_CHOICE_OPTIONS_INIT;
    struct choosing c = {.comm = comm, .specs = specs, .count = count, .gradient = gradient};
    spr_status status;

    spr_error_clear(spr_thread_error());
    if (!comm || !specs || !layout || !gradient || !chosen ||
        (options && options->struct_size != sizeof *options))
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "spr_codec_choose: a pointer is NULL, or struct_size is not %zu",
                             sizeof *options);
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    c.options = options ? options : &any;
    status = check(&c);
    if (status == SPR_OK)
        status = make(&c, layout, parameters);
    status = agree_on_start(&c, status);
    if (status == SPR_OK) {
        status = measure(&c);
        /* Of which the others may not know. */
        if (status == SPR_ERR_NOMEM)
            status = spr_comm_failed_call(comm, status, spr_thread_error());
    }
    if (status == SPR_OK)
        status = decide(&c, chosen);
    drop(&c);
    return status;
}
