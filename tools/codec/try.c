/* SPDX-License-Identifier: BSD-2-Clause
 *
 * `sparring-codec try CODEC FILE`: what a codec makes of a gradient, and what would suit it.
 */
#include "tools/codec/commands.h"

#include <stdio.h>

#include "base/mem.h"
#include "compress/select/topk.h"
#include "tools/codec/advice.h"
#include "tools/codec/file.h"
#include "tools/codec/json.h"
#include "tools/codec/quality.h"
#include "tools/codec/report.h"

/* Below this rate, in bit/s, the codec and its bytes take less time than the vector alone: one
 * rank's sending, nothing overlapped. NAN: never. */
static double worth_below(const struct quality *q, size_t n)
{
    double saved = 8 * ((double)(n * sizeof(float)) - (double)q->bytes);

    return saved > 0 ? saved / ((q->encode_us + q->decode_us) * 1e-6) : (double)NAN;
}

static void print_text(FILE *out, const struct gradient *g, const struct subject *subject,
                       const struct quality *q, const struct traits *t, const struct advice *advice)
{
    double rate = worth_below(q, g->n);

    fprintf(out, "%zu elements (%s); largest %.6g, RMS %.6g, zeros %.4g %%, not finite %zu\n", g->n,
            g->form, t->largest, t->rms, 100 * (double)t->zeros / (double)g->n, t->not_finite);
    fprintf(out, "energy in the largest");
    for (int i = 0; i < TRAIT_DENSITIES; i++)
        fprintf(out, "%s %g %%: %.2f %%", i ? ", in" : "", 100 * trait_densities[i],
                100 * t->energy[i]);
    fprintf(out, "\n%s: %zu bytes, %.5f of fp32, %.4f bits per element\n", subject->name, q->bytes,
            q->ratio, q->bits);
    fprintf(out,
            "  relative error %.4e, cosine %.6f (of one step; error feedback sends the rest "
            "later)\n",
            q->error, q->cosine);
    fprintf(out, "  encode %.1f us, decode %.1f us with one thread", q->encode_us, q->decode_us);
    if (isnan(rate))
        fputs(": it saves no bytes\n", out);
    else
        fprintf(out, ": saves time on links below %.3g Gbit/s\n", rate * 1e-9);
    fprintf(out, "recommendation: %s: %s\n", advice->codec, advice->reason);
}

#ifdef HAVE_JANSSON
static bool print_json(FILE *out, const struct options *options, const struct gradient *g,
                       const struct subject *subject, const struct quality *q,
                       const struct traits *t, const struct advice *advice)
{
    json_t *energy = json_array();
    for (int i = 0; i < TRAIT_DENSITIES; i++) {
        const struct json_member share[] = {{"density", json_number(trait_densities[i])},
                                            {"energy", json_number(t->energy[i])}};
        json_array_append_new(energy, json_object_of(share, SPR_ARRAY_LEN(share)));
    }
    const struct json_member recommendation[] = {{"codec", json_text(advice->codec)},
                                                 {"reason", json_text(advice->reason)}};
    const struct json_member members[] = {
        {"file", json_text(options->words[1])},
        {"form", json_text(g->form)},
        {"elements", json_integer((json_int_t)g->n)},
        {"largest", json_number(t->largest)},
        {"rms", json_number(t->rms)},
        {"zeros", json_integer((json_int_t)t->zeros)},
        {"not_finite", json_integer((json_int_t)t->not_finite)},
        {"energy", energy},
        {"codec", json_text(subject->name)},
        {"bytes", json_integer((json_int_t)q->bytes)},
        {"ratio", json_number(q->ratio)},
        {"bits", json_number(q->bits)},
        {"error", json_number(q->error)},
        {"cosine", json_number(q->cosine)},
        {"encode_us", json_number(q->encode_us)},
        {"decode_us", json_number(q->decode_us)},
        {"worth_below_bps", json_number(worth_below(q, g->n))},
        {"recommendation", json_object_of(recommendation, SPR_ARRAY_LEN(recommendation))},
    };
    return json_write(out, options, "result", json_object_of(members, SPR_ARRAY_LEN(members)));
}
#else
static bool print_json(FILE *out, const struct options *options, const struct gradient *g,
                       const struct subject *subject, const struct quality *q,
                       const struct traits *t, const struct advice *advice)
{
    (void)out, (void)options, (void)g, (void)subject, (void)q, (void)t, (void)advice;
    return false;
}
#endif

static bool try_on(const struct options *options, const struct gradient *g, struct subject *subject,
                   struct spr_error *error)
{
    float *decoded = spr_pages_alloc(g->n * sizeof(float));
    FILE *json = NULL;
    struct quality q;
    struct traits traits;
    struct advice advice;
    bool done = decoded != NULL;

    if (!done)
        spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for %zu elements", g->n);
    done = done && quality_of(subject, g->x, decoded, &q, error) == SPR_OK &&
           quality_times(&subject, 1, g->x, decoded, &q, error) == SPR_OK &&
           traits_of(&traits, g->x, g->n, error) == SPR_OK;
    spr_pages_free(decoded, g->n * sizeof(float));
    if (!done) {
        fprintf(stderr, "sparring-codec: %s\n", error->text);
        return false;
    }
    advise(&advice, &traits, g->n);
    if (options->json && !(json = output_open(options->json)))
        return false;
    print_text(json == stdout ? stderr : stdout, g, subject, &q, &traits, &advice);
    return !json || output_close(json, options->json,
                                 print_json(json, options, g, subject, &q, &traits, &advice));
}

int try_run(const struct options *options)
{
    struct spr_error error = {.rank = -1};
    struct gradient gradient;
    struct subject subject;

    /* Wrong usage, and known before a long file is read. */
    if (subject_open(&subject, options->words[0], 1, 0, &error) != SPR_OK) {
        fprintf(stderr, "sparring-codec: %s\n", error.text);
        return 2;
    }
    subject_close(&subject);
    if (gradient_read(&gradient, options->words[1], &error) != SPR_OK) {
        fprintf(stderr, "sparring-codec: %s\n", error.text);
        return 1;
    }
    bool done =
        subject_open(&subject, options->words[0], gradient.n, gradient.rows, &error) == SPR_OK;
    if (!done)
        fprintf(stderr, "sparring-codec: %s\n", error.text);
    done = done && try_on(options, &gradient, &subject, &error);
    subject_close(&subject);
    gradient_free(&gradient);
    return done ? 0 : 1;
}
