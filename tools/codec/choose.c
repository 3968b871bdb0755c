/* SPDX-License-Identifier: BSD-2-Clause
 *
 * `sparring-codec choose`: measures codecs on one vector, predicts how long an allreduce takes with
 * each (tools/codec/predict.h), and names the fastest that keeps to the bounds.
 *
 *   e  median time of a step, from the vector to its bytes
 *   m  of decoding such a step: a rank merges P shares of 1/P each
 *   f, d  of encoding and decoding a vector, or a list with as many entries as the union has
 *   b, u  bytes of both, as encoded
 *
 * Codecs of sums (random, powersgd) decode the sum within the step, so e has it in, m is the time
 * of decoding it once more, and d is 0. `none` is what spr_allreduce does, without a codec: it
 * sends from the vector and sums in place, so e and f are 0.
 */
#include "tools/codec/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "compress/codec_internal.h"
#include "tools/codec/file.h"
#include "tools/codec/json.h"
#include "tools/codec/predict.h"
#include "tools/codec/quality.h"
#include "tools/codec/report.h"

static const char ladder[] = "none;fp16;bf16;int8;onebit;topk:ratio=10%;topk:ratio=1%;"
                             "topk:ratio=0.1%;topk:ratio=1%+fp16;topk:ratio=1%+int8;"
                             "random:ratio=1%;powersgd:rank=4";

enum { MOST_CANDIDATES = 64 };

struct candidate {
    char spec[256]; /* as it was asked for */
    char canonical[SPR_CODEC_SPEC_BYTES];
    struct quality quality;
    struct work work;
    struct prediction prediction;
    double faster_below_bps; /* than dense */
    char excluded[48];       /* why; "": it is not */
};

struct choice {
    const struct options *options;
    struct gradient gradient;
    struct network network;
    struct candidate candidates[MOST_CANDIDATES];
    int count;
    const struct candidate *dense; /* none */
    const struct candidate *best;  /* NULL: all are excluded */
};

static bool is_dense(const struct candidate *c) { return strcmp(c->canonical, "none") == 0; }

static bool fail(const struct spr_error *error)
{
    fprintf(stderr, "sparring-codec: %s\n", error->text);
    return false;
}

/* Candidates --------------------------------------------------------------------------------- */

static bool add_candidate(struct choice *choice, const char *spec, size_t length)
{
    struct candidate *c = &choice->candidates[choice->count];
    struct spr_error error = {.rank = -1};
    struct subject subject;

    for (; length > 0 && *spec == ' '; spec++)
        length--;
    while (length > 0 && spec[length - 1] == ' ')
        length--;
    if (length == 0 || length >= sizeof(c->spec) || choice->count == MOST_CANDIDATES) {
        fprintf(stderr, "sparring-codec: --codecs wants 1 to %d codecs with ; between them%s\n",
                MOST_CANDIDATES, length == 0 ? ", and one is empty" : "");
        return false;
    }
    *c = (struct candidate){.excluded = ""};
    memcpy(c->spec, spec, length);
    if (subject_open(&subject, c->spec, 1, 0, &error) != SPR_OK)
        return fail(&error);
    snprintf(c->canonical, sizeof(c->canonical), "%s", subject.name);
    subject_close(&subject);
    choice->count++;
    return true;
}

/* Those of the list, and `none`, which the others are compared with. */
static bool list_candidates(struct choice *choice)
{
    const char *at = choice->options->codecs ? choice->options->codecs : ladder;
    bool dense = false;

    for (;; at++) {
        size_t length = strcspn(at, ";");
        if (!add_candidate(choice, at, length))
            return false;
        dense |= is_dense(&choice->candidates[choice->count - 1]);
        at += length;
        if (*at == '\0')
            return dense || add_candidate(choice, "none", strlen("none"));
    }
}

/* Measurement -------------------------------------------------------------------------------- */

static bool read_gradient(struct choice *choice)
{
    const struct options *options = choice->options;
    struct gradient *g = &choice->gradient;
    struct spr_error error = {.rank = -1};
    struct spr_rng rng = {.seed = options->seed};
    enum data kind = 0;

    if (options->word_count > 0)
        return gradient_read(g, options->words[0], &error) == SPR_OK || fail(&error);
    while (!options->distributions[kind])
        kind++;
    *g = (struct gradient){.n = options->sizes[0], .form = data_names[kind]};
    g->x = spr_pages_alloc(g->n * sizeof(float));
    if (!g->x) {
        fprintf(stderr, "sparring-codec: no memory for %zu elements\n", g->n);
        return false;
    }
    data_fill(kind, g->x, g->n, &rng);
    return true;
}

static struct work work_of(const struct candidate *c, const struct subject *subject,
                           const struct quality_sum *sum)
{
    struct work work = {
        .rounds = subject->rounds,
        .bytes = (double)subject->bytes,
        .sum_bytes = (double)sum->bytes,
        .encode_us = c->quality.encode_us,
        .merge_us = c->quality.decode_us,
        .sum_encode_us = sum->encode_us,
        .sum_decode_us = sum->decode_us,
    };

    if (subject->product) {
        work.merge_us = sum->decode_us;
        work.sum_decode_us = 0;
    }
    if (is_dense(c))
        work.encode_us = work.sum_encode_us = 0;
    return work;
}

static spr_status measure_one(struct choice *choice, struct candidate *c, float *decoded,
                              struct spr_error *error)
{
    const struct gradient *g = &choice->gradient;
    struct subject subject = {.n = 0}, *list = &subject;
    struct quality_sum sum;
    spr_status status = subject_open(&subject, c->spec, g->n, g->rows, error);

    if (status == SPR_OK)
        status = quality_of(&subject, g->x, decoded, &c->quality, error);
    if (status == SPR_OK)
        status = quality_times(&list, 1, g->x, decoded, &c->quality, error);
    if (status == SPR_OK)
        status = quality_sum(&subject, choice->network.ranks, &sum, error);
    if (status == SPR_OK)
        c->work = work_of(c, &subject, &sum);
    subject_close(&subject);
    return status;
}

static bool measure_all(struct choice *choice)
{
    size_t bytes = choice->gradient.n * sizeof(float);
    float *decoded = spr_pages_alloc(bytes);
    struct spr_error error = {.rank = -1};
    spr_status status = SPR_OK;

    if (!decoded)
        status = spr_error_set(&error, SPR_ERR_NOMEM, -1, "no memory for %zu elements",
                               choice->gradient.n);
    for (int i = 0; status == SPR_OK && i < choice->count; i++)
        status = measure_one(choice, &choice->candidates[i], decoded, &error);
    spr_pages_free(decoded, bytes);
    return status == SPR_OK || fail(&error);
}

/* Decision ----------------------------------------------------------------------------------- */

static int by_time(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;

    return (a->prediction.total_us > b->prediction.total_us) -
           (a->prediction.total_us < b->prediction.total_us);
}

static void judge(struct candidate *c, const struct options *options, double dense_bytes)
{
    /* What is not a number keeps to no bound. */
    if (options->error > 0 && !(c->quality.error <= options->error))
        snprintf(c->excluded, sizeof(c->excluded), "error above %g %%", 100 * options->error);
    else if (options->bytes > 0 && c->prediction.sent_bytes > options->bytes * dense_bytes)
        snprintf(c->excluded, sizeof(c->excluded), "bytes above %g %%", 100 * options->bytes);
}

static void decide(struct choice *choice)
{
    struct candidate *list = choice->candidates;

    for (int i = 0; i < choice->count; i++)
        list[i].prediction = predict(&list[i].work, &choice->network);
    qsort(list, (size_t)choice->count, sizeof(*list), by_time);
    for (int i = 0; i < choice->count && !choice->dense; i++)
        choice->dense = is_dense(&list[i]) ? &list[i] : NULL;
    for (int i = choice->count; i-- > 0;) {
        list[i].faster_below_bps =
            faster_below_bps(&list[i].work, &choice->dense->work, &choice->network);
        judge(&list[i], choice->options, choice->dense->prediction.sent_bytes);
        choice->best = list[i].excluded[0] ? choice->best : &list[i];
    }
}

/* Where dense is best: who is next to be faster, and below which rate. NULL: nobody. */
static const struct candidate *next_best(const struct choice *choice)
{
    const struct candidate *next = NULL;

    for (int i = 0; i < choice->count; i++) {
        const struct candidate *c = &choice->candidates[i];
        if (!c->excluded[0] && c->faster_below_bps > (next ? next->faster_below_bps : 0))
            next = c;
    }
    return next;
}

/* Report ------------------------------------------------------------------------------------- */

static double times_dense(const struct choice *choice, const struct candidate *c)
{
    return choice->dense->prediction.total_us / c->prediction.total_us;
}

static void print_table(FILE *out, const struct choice *choice)
{
    const struct network *n = &choice->network;
    int width = (int)strlen("codec");

    for (int i = 0; i < choice->count; i++)
        width = (int)spr_max_size((size_t)width, strlen(choice->candidates[i].spec));
    fprintf(
        out,
        "# %zu elements (%s), %d ranks, %g on each CPU; link %g Gbit/s, latency %g us\n"
        "# sent: bytes of each rank; error: of one step (error feedback sends the rest later);\n"
        "# times in ms: predicted, nothing overlaps; speed: 1 = dense\n",
        choice->gradient.n, choice->gradient.form, n->ranks, n->share, n->link_bps * 1e-9,
        n->latency_us);
    fprintf(out, "# %-*s %12s %10s %10s %10s %10s %10s %8s\n", width, "codec", "sent", "error",
            "encode", "wire", "decode", "total", "speed");
    for (int i = 0; i < choice->count; i++) {
        const struct candidate *c = &choice->candidates[i];
        const struct prediction *p = &c->prediction;
        fprintf(out, "  %-*s %12.0f %10.3e %10.3f %10.3f %10.3f %10.3f %8.2f%s%s\n", width, c->spec,
                p->sent_bytes, c->quality.error, p->encode_us * 1e-3, p->wire_us * 1e-3,
                p->decode_us * 1e-3, p->total_us * 1e-3, times_dense(choice, c),
                c->excluded[0] ? "  excluded: " : "", c->excluded);
    }
}

static void print_verdict(FILE *out, const struct choice *choice)
{
    bool bounds = choice->options->error > 0 || choice->options->bytes > 0;
    const struct candidate *best = choice->best;

    if (!best) {
        fputs("take none of these: no codec keeps to the bounds, nor does dense\n", out);
        return;
    }
    if (best == choice->dense) {
        fprintf(out, "take none (dense): no codec%s is faster on a link of this speed\n",
                bounds ? " that keeps to the bounds" : "");
        best = next_best(choice);
    } else {
        fprintf(out, "take %s: predicted %.3f ms, dense (none) %.3f ms, %.2f times as fast\n",
                best->spec, best->prediction.total_us * 1e-3,
                choice->dense->prediction.total_us * 1e-3, times_dense(choice, best));
    }
    if (best && isinf(best->faster_below_bps))
        fprintf(out, "%s is faster than dense on links of any speed\n", best->spec);
    else if (best && best->faster_below_bps > 0)
        fprintf(out, "%s is faster than dense on links below %.3g Gbit/s\n", best->spec,
                best->faster_below_bps * 1e-9);
    if (!(choice->options->error > 0))
        fputs("time alone was compared: bound what is lost in a step by --error\n", out);
}

#ifdef HAVE_JANSSON
static const char *faster_text(double below_bps)
{
    if (isnan(below_bps))
        return "above a rate";
    return isinf(below_bps) ? "at any rate" : below_bps > 0 ? "below a rate" : "never";
}

static json_t *row_object(const struct choice *choice, const struct candidate *c)
{
    const struct prediction *p = &c->prediction;
    const struct json_member members[] = {
        {"codec", json_text(c->canonical)},
        {"sent_bytes", json_number(p->sent_bytes)},
        {"error", json_number(c->quality.error)},
        {"cosine", json_number(c->quality.cosine)},
        {"encode_us", json_number(p->encode_us)},
        {"wire_us", json_number(p->wire_us)},
        {"decode_us", json_number(p->decode_us)},
        {"total_us", json_number(p->total_us)},
        {"speed", json_number(times_dense(choice, c))},
        {"faster", json_text(faster_text(c->faster_below_bps))},
        {"faster_below_bps", json_number(c->faster_below_bps)},
        {"excluded", json_text(c->excluded[0] ? c->excluded : NULL)},
    };
    return json_object_of(members, SPR_ARRAY_LEN(members));
}

static bool print_json(FILE *out, const struct choice *choice)
{
    const struct options *options = choice->options;
    const struct network *n = &choice->network;
    json_t *rows = json_array();

    for (int i = 0; i < choice->count; i++)
        json_array_append_new(rows, row_object(choice, &choice->candidates[i]));
    const struct json_member members[] = {
        {"file", json_text(options->word_count ? options->words[0] : NULL)},
        {"form", json_text(choice->gradient.form)},
        {"elements", json_integer((json_int_t)choice->gradient.n)},
        {"ranks", json_integer(n->ranks)},
        {"link_bps", json_number(n->link_bps)},
        {"latency_us", json_number(n->latency_us)},
        {"share", json_integer(options->share)},
        {"codecs", rows},
        {"choice", json_text(choice->best ? choice->best->canonical : NULL)},
    };
    return json_write(out, options, "result", json_object_of(members, SPR_ARRAY_LEN(members)));
}
#else
static bool print_json(FILE *out, const struct choice *choice)
{
    (void)out, (void)choice;
    return false;
}
#endif

int choose_run(const struct options *options)
{
    static struct choice choice;
    FILE *json = NULL;

    choice = (struct choice){
        .options = options,
        .network = {options->ranks, options->link_bps, options->latency * 1e6, options->share},
    };
    if (!list_candidates(&choice))
        return 2;
    bool done = read_gradient(&choice) && measure_all(&choice) &&
                (!options->json || (json = output_open(options->json)));
    if (done) {
        decide(&choice);
        FILE *table = json == stdout ? stderr : stdout;
        print_table(table, &choice);
        print_verdict(table, &choice);
        done = !json || output_close(json, options->json, print_json(json, &choice));
    }
    gradient_free(&choice.gradient);
    return done && choice.best ? 0 : 1;
}
