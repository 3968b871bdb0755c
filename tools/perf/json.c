/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/report.h"

#include <math.h>

#ifdef HAVE_JANSSON

#include "tools/json.h"

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

static json_t *times(const struct figures *f)
{
    return OBJECT({"min", json_number(f->min_us)}, {"p50", json_number(f->p50_us)},
                  {"p99", json_number(f->p99_us)}, {"max", json_number(f->max_us)});
}

static json_t *phases(const struct figures *f)
{
    json_t *object = json_object();
    for (int i = 0; i < PHASE_COUNT; i++)
        if (json_object_set_new(object, phase_names[i], json_number(f->phase_us[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static json_t *buckets(const struct trial *trial)
{
    const struct figures *in_turn = &trial->in_turn->figures;

    return OBJECT({"count", json_integer((json_int_t)trial->bucket_count)},
                  {"in_turn_us", times(in_turn)},
                  {"gain", json_number(in_turn->p50_us / trial->figures.p50_us)},
                  {"wire_us", json_number(trial->wire->figures.p50_us)},
                  {"compute_us", json_number(in_turn->compute_us)});
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
    bool sparse = trial->kind == KIND_SPARSE || trial->kind == KIND_COMPRESSED;
    bool lists = trial->entries > 0 && trial->bucket_count <= 1; /* all in one operation */
    const struct json_member members[] = {
        {"collective", json_text(kind_names[trial->kind])},
        {"algorithm", json_text(trial->algorithm)},
        {"transport", json_text(job->transport)},
        {"ranks", json_integer(job->size)},
        {"hosts", json_integer(job->hosts)},
        {"dtype", json_text(spr_dtype_name(trial->dtype))},
        {"op", json_text(op_text(trial))},
        {"codec", json_text(trial->kind == KIND_COMPRESSED ? trial->codec_spec : NULL)},
        {"density", json_number(trial->density)},
        {"elements", json_integer((json_int_t)trial->elements)},
        {"bytes", json_integer((json_int_t)trial_bytes(trial))},
        {"iterations", json_integer(f->iterations)},
        {"time_us", times(f)},
        {"algbw_GBps", json_number(rates.algbw)},
        {"busbw_GBps", json_number(rates.busbw)},
        {"wirebw_GBps", json_number(rates.wirebw)},
        {"cpu_us", json_number(f->cpu_us)},
        {"cpu_sum_us", json_number(f->cpu_sum_us)},
        {"ratio", json_number(rates.ratio)},
        {"overlap", json_number(f->overlap)},
        {"entries", json_whole(lists ? (double)trial->entries : (double)NAN)},
        {"union_entries", json_whole(lists ? f->union_entries : (double)NAN)},
        {"predicted_us", json_number(f->predicted_us)},
        {"tuned_us", json_number(f->tuned_us)},
        {"taken", json_text(f->taken)},
        {"sent_bytes", json_whole(f->sent_bytes)},
        {"recv_bytes", json_whole(f->received_bytes)},
        {"link_sent_bytes", json_whole(f->link_sent_bytes)},
        {"link_recv_bytes", json_whole(f->link_received_bytes)},
        {"wrong", json_whole(f->wrong)},
        {"relerr", json_number(f->relerr)},
    };
    json_t *row = json_object_of(members, SPR_ARRAY_LEN(members));
    bool done = row != NULL;
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
    const struct json_member members[] = {{"hosts", json_integer(job->hosts)},
                                          {"ranks", json_integer(job->size)},
                                          {"rows", json_incref(report->json)}};

    return json_print_run(report->file, options->command, options->command_words, members,
                          SPR_ARRAY_LEN(members)) &&
           fflush(report->file) == 0;
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
