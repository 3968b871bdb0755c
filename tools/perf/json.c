/* SPDX-License-Identifier: BSD-2-Clause
 *
 * JSON, schema 1. Numbers that do not apply, or are not finite, are null.
 */
#include "tools/perf/report.h"

#ifdef HAVE_JANSSON

#include <jansson.h>
#include <math.h>

bool json_open(struct report *report)
{
    report->json = json_array();
    return report->json != NULL;
}

void json_drop(struct report *report)
{
    json_decref(report->json);
    report->json = NULL;
}

static json_t *real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *integer(double value)
{
    return isfinite(value) ? json_integer((json_int_t)llround(value)) : json_null();
}

static json_t *text(const char *value) { return value != NULL ? json_string(value) : json_null(); }

struct member {
    const char *name;
    json_t *value;
};

/* All values are taken over; false = out of memory. */
static bool put_all(json_t *object, const struct member *members, size_t count)
{
    bool done = object != NULL;
    for (size_t i = 0; i < count; i++)
        if (!done || json_object_set_new(object, members[i].name, members[i].value) != 0) {
            if (!done)
                json_decref(members[i].value);
            done = false;
        }
    return done;
}

static json_t *times(const struct figures *f)
{
    json_t *object = json_object();
    const struct member members[] = {{"min", real(f->min_us)},
                                     {"p50", real(f->p50_us)},
                                     {"p99", real(f->p99_us)},
                                     {"max", real(f->max_us)}};
    if (put_all(object, members, SPR_ARRAY_LEN(members)))
        return object;
    json_decref(object);
    return NULL;
}

static json_t *phases(const struct figures *f)
{
    json_t *object = json_object();
    for (int i = 0; i < PHASE_COUNT; i++)
        if (json_object_set_new(object, phase_names[i], real(f->phase_us[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static json_t *buckets(const struct trial *trial)
{
    json_t *object = json_object();
    const struct member members[] = {
        {"count", json_integer((json_int_t)trial->bucket_count)},
        {"in_turn_us", times(&trial->in_turn->figures)},
        {"gain", real(trial->in_turn->figures.p50_us / trial->figures.p50_us)},
        {"wire_us", real(trial->wire->figures.p50_us)},
        {"compute_us", real(trial->in_turn->figures.compute_us)}};
    if (put_all(object, members, SPR_ARRAY_LEN(members)))
        return object;
    json_decref(object);
    return NULL;
}

static const char *op_text(const struct trial *trial)
{
    bool reduces = trial->kind != KIND_ALLGATHER && trial->kind != KIND_BROADCAST &&
                   trial->kind != KIND_SENDRECV && trial->kind != KIND_BARRIER;
    return reduces ? spr_op_name(trial->op) : NULL;
}

bool json_add_row(struct report *report, const struct trial *trial)
{
    const struct job *job = trial->job;
    const struct figures *f = &trial->figures;
    struct rates rates = rates_of(trial);
    json_t *row = json_object();
    bool sparse = trial->kind == KIND_SPARSE || trial->kind == KIND_COMPRESSED;
    const struct member members[] = {
        {"collective", text(kind_names[trial->kind])},
        {"algorithm", text(trial->algorithm)},
        {"transport", text(job->transport)},
        {"ranks", json_integer(job->size)},
        {"hosts", json_integer(job->hosts)},
        {"dtype", text(spr_dtype_name(trial->dtype))},
        {"op", text(op_text(trial))},
        {"codec", text(trial->kind == KIND_COMPRESSED ? trial->codec_spec : NULL)},
        {"density", real(trial->density)},
        {"elements", json_integer((json_int_t)trial->elements)},
        {"bytes", json_integer((json_int_t)trial_bytes(trial))},
        {"iterations", json_integer(f->iterations)},
        {"time_us", times(f)},
        {"algbw_GBps", real(rates.algbw)},
        {"busbw_GBps", real(rates.busbw)},
        {"wirebw_GBps", real(rates.wirebw)},
        {"cpu_us", real(f->cpu_us)},
        {"ratio", real(rates.ratio)},
        {"overlap", real(f->overlap)},
        {"predicted_us", real(f->predicted_us)},
        {"taken", text(f->taken)},
        {"sent_bytes", integer(f->sent_bytes)},
        {"recv_bytes", integer(f->received_bytes)},
        {"link_sent_bytes", integer(f->link_sent_bytes)},
        {"link_recv_bytes", integer(f->link_received_bytes)},
        {"wrong", integer(f->wrong)},
        {"relerr", real(f->relerr)},
    };
    bool done = put_all(row, members, SPR_ARRAY_LEN(members));
    if (done && sparse)
        done = json_object_set_new(row, "phase_us", phases(f)) == 0;
    if (done && trial->in_turn != NULL)
        done = json_object_set_new(row, "buckets", buckets(trial)) == 0;
    if (!done) {
        json_decref(row);
        return false;
    }
    return json_array_append_new(report->json, row) == 0;
}

bool json_write(struct report *report, struct job *job)
{
    const struct options *options = job->options;
    json_t *root = json_object(), *command = json_array();
    const struct member members[] = {
        {"schema", json_integer(1)},        {"command", command},
        {"version", text(spr_version())},   {"hosts", json_integer(job->hosts)},
        {"ranks", json_integer(job->size)}, {"rows", json_incref(report->json)},
    };
    bool done = command != NULL;

    for (int i = 0; done && i < options->command_words; i++) {
        json_t *word = json_string(options->command[i]);
        if (word == NULL) /* not UTF-8 */
            word = json_string("?");
        done = json_array_append_new(command, word) == 0;
    }
    done = put_all(root, members, SPR_ARRAY_LEN(members)) && done;
    done = done && json_dumpf(root, report->file, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0 &&
           fputc('\n', report->file) != EOF && fflush(report->file) == 0;
    json_decref(root);
    return done;
}

#else

bool json_open(struct report *report)
{
    (void)report;
    return true;
}

bool json_add_row(struct report *report, const struct trial *trial)
{
    (void)report;
    (void)trial;
    return true;
}

bool json_write(struct report *report, struct job *job)
{
    (void)report;
    (void)job;
    return true;
}

void json_drop(struct report *report) { report->json = NULL; }

#endif
