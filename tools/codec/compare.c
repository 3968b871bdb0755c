/* SPDX-License-Identifier: BSD-2-Clause
 *
 * `sparring-codec compare A B`: the first step of two codecs on the same data, and the time of
 * later ones, in turns.
 */
#include "tools/codec/commands.h"

#include "base/mem.h"
#include "tools/codec/json.h"
#include "tools/codec/quality.h"
#include "tools/codec/report.h"

struct pair {
    const struct options *options;
    void *rows; /* a JSON array, or NULL */
    FILE *json, *table;
};

static bool fail(const struct spr_error *error)
{
    fprintf(stderr, "sparring-codec: %s\n", error->text);
    return false;
}

static void print_row(FILE *out, const char *data, const char *name, const struct quality *q)
{
    fprintf(out, "  %-14s %-36s %9.5f %9.4f %10.3e %8.5f %12.1f %12.1f\n", data, name, q->ratio,
            q->bits, q->error, q->cosine, q->encode_us, q->decode_us);
}

#ifdef HAVE_JANSSON
static bool add_json(struct pair *pair, const char *data, const struct subject *subject,
                     const struct quality *q)
{
    if (!pair->json)
        return true;
    const struct json_member members[] = {
        {"distribution", json_text(data)},
        {"codec", json_text(subject->name)},
        {"elements", json_integer((json_int_t)subject->n)},
        {"bytes", json_integer((json_int_t)q->bytes)},
        {"ratio", json_number(q->ratio)},
        {"bits", json_number(q->bits)},
        {"error", json_number(q->error)},
        {"cosine", json_number(q->cosine)},
        {"encode_us", json_number(q->encode_us)},
        {"decode_us", json_number(q->decode_us)},
    };

    return json_array_append_new(pair->rows, json_object_of(members, SPR_ARRAY_LEN(members))) == 0;
}

static bool write_json(struct pair *pair)
{
    return json_write(pair->json, pair->options, "rows", pair->rows);
}
#else
static bool add_json(struct pair *pair, const char *data, const struct subject *subject,
                     const struct quality *q)
{
    (void)pair, (void)data, (void)subject, (void)q;
    return true;
}

static bool write_json(struct pair *pair)
{
    (void)pair;
    return false;
}
#endif

/* Both on one vector; y has room for another. */
static bool compare_on(struct pair *pair, enum data kind, float *x, float *y, size_t n)
{
    struct subject subjects[2] = {{.n = 0}}, *list[2] = {&subjects[0], &subjects[1]};
    struct spr_rng rng = {.seed = pair->options->seed};
    struct spr_error error = {.rank = -1};
    struct quality q[2] = {{.bytes = 0}};
    char ratio[32] = "-"; /* of errors, unless there are none */
    bool done = true;

    data_fill(kind, x, n, &rng);
    for (int i = 0; done && i < 2; i++)
        done = subject_open(list[i], pair->options->words[i], n, 0, &error) == SPR_OK &&
               quality_of(list[i], x, y, &q[i], &error) == SPR_OK;
    done = (done && quality_times(list, 2, x, y, q, &error) == SPR_OK) || fail(&error);
    for (int i = 0; done && i < 2; i++) {
        print_row(pair->table, data_names[kind], subjects[i].name, &q[i]);
        done = add_json(pair, data_names[kind], list[i], &q[i]);
    }
    if (q[0].error > 0 || q[1].error > 0)
        snprintf(ratio, sizeof(ratio), "%.3f", q[0].error / q[1].error);
    if (done)
        fprintf(pair->table, "#   A/B: bytes %.3f, error %s, encode %.3f, decode %.3f\n",
                (double)q[0].bytes / (double)q[1].bytes, ratio, q[0].encode_us / q[1].encode_us,
                q[0].decode_us / q[1].decode_us);
    for (int i = 0; i < 2; i++)
        subject_close(list[i]);
    return done;
}

static bool compare_size(struct pair *pair, size_t n)
{
    size_t bytes = n * sizeof(float);
    float *x = spr_pages_alloc(bytes), *y = spr_pages_alloc(bytes);
    bool done = x && y;

    if (!done)
        fprintf(stderr, "sparring-codec: no memory for %zu elements\n", n);
    else
        fprintf(pair->table,
                "# %zu elements; ratio: of the bytes as fp32; time in us\n"
                "# %-14s %-36s %9s %9s %10s %8s %12s %12s\n",
                n, "data", "codec", "ratio", "bits/elt", "error", "cosine", "encode", "decode");
    for (int kind = 0; done && kind < DATA_KINDS; kind++)
        if (pair->options->distributions[kind])
            done = compare_on(pair, (enum data)kind, x, y, n);
    spr_pages_free(x, bytes);
    spr_pages_free(y, bytes);
    return done;
}

/* Wrong codecs are wrong usage, and said before anything is measured. */
static bool codecs_exist(const struct options *options)
{
    for (int i = 0; i < 2; i++) {
        struct spr_error error = {.rank = -1};
        struct subject subject;
        if (subject_open(&subject, options->words[i], 1, 0, &error) != SPR_OK)
            return fail(&error);
        subject_close(&subject);
    }
    return true;
}

int compare_run(const struct options *options)
{
    struct pair pair = {.options = options, .table = stdout};
    bool done = true;

    if (!codecs_exist(options))
        return 2;
    if (options->json && !(pair.json = output_open(options->json)))
        return 1;
#ifdef HAVE_JANSSON
    pair.rows = json_array();
#endif
    pair.table = pair.json == stdout ? stderr : stdout;
    for (size_t i = 0; done && i < options->size_count; i++)
        done = compare_size(&pair, options->sizes[i]);
    if (pair.json)
        done = output_close(pair.json, options->json, write_json(&pair)) && done;
#ifdef HAVE_JANSSON
    else
        json_decref(pair.rows);
#endif
    return done ? 0 : 1;
}
