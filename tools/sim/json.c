/* SPDX-License-Identifier: BSD-2-Clause
 *
 * JSON, schema 1. Numbers that do not apply are null.
 */
#include "tools/sim/report.h"

#ifdef HAVE_JANSSON

#include <jansson.h>
#include <math.h>

#include <sparring/sparring.h>

#include "base/util.h"

struct member {
    const char *name;
    json_t *value;
};

static json_t *real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *integer(double value)
{
    return isfinite(value) ? json_integer((json_int_t)llround(value)) : json_null();
}

static json_t *text(const char *value) { return *value ? json_string(value) : json_null(); }

/* Takes the values over. NULL: no memory. */
static json_t *object_of(const struct member *members, size_t count)
{
    json_t *object = json_object();
    bool done = object != NULL;

    for (size_t i = 0; i < count; i++)
        if (done)
            done = json_object_set_new(object, members[i].name, members[i].value) == 0;
        else
            json_decref(members[i].value);
    if (done)
        return object;
    json_decref(object);
    return NULL;
}

bool json_open(struct report *report)
{
    report->rows = json_array();
    report->crossovers = json_array();
    return report->rows != NULL && report->crossovers != NULL;
}

void json_drop(struct report *report)
{
    json_decref(report->rows);
    json_decref(report->crossovers);
    report->rows = report->crossovers = NULL;
}

bool json_add_row(struct report *report, const struct run *run, const struct run *dense)
{
    const struct figures *f = &run->figures;
    const struct member members[] = {
        {"collective", text(kind_names[run->kind])},
        {"algorithm", text(run->algorithm)},
        {"codec", text(run->codec)},
        {"link_bps", real(run->link)},
        {"ranks", json_integer(run->ranks)},
        {"hosts", json_integer(f->hosts)},
        {"elements", json_integer((json_int_t)run->options->elements)},
        {"density", real(run->density)},
        {"union", real(f->union_density)},
        {"time_us", real(f->time_us)},
        {"dense_us", real(dense != NULL ? dense->figures.time_us : NAN)},
        {"gain", real(dense != NULL ? dense->figures.time_us / f->time_us : NAN)},
        {"sent_bytes", integer(f->sent_bytes)},
        {"busiest_bytes", integer(f->busiest_bytes)},
        {"host_bytes", real(f->host_bytes)},
        {"busiest_host_bytes", integer(f->busiest_host)},
        {"messages", integer(f->frames)},
        {"busiest_messages", integer(f->busiest_frames)},
        {"balance", real(f->balance)},
        {"memory_bytes", integer(f->memory)},
        {"wrong", integer(f->wrong)},
        {"same", json_boolean(f->same)},
        {"wall_s", real(f->wall_s)},
    };
    json_t *row = object_of(members, SPR_ARRAY_LEN(members));

    return row != NULL && json_array_append_new(report->rows, row) == 0;
}

bool json_add_crossover(struct report *report, const struct crossover *c)
{
    const struct member members[] = {
        {"algorithm", text(c->run->algorithm)}, {"link_bps", real(c->run->link)},
        {"ranks", json_integer(c->run->ranks)}, {"lowest", real(c->lowest)},
        {"highest", real(c->highest)},          {"pays_at_lowest", json_boolean(c->pays)},
        {"density", real(c->density)},
    };
    json_t *object = object_of(members, SPR_ARRAY_LEN(members));

    return object != NULL && json_array_append_new(report->crossovers, object) == 0;
}

static json_t *network_of(const struct options *o)
{
    const struct member members[] = {
        {"latency_us", real(o->latency_s * 1e6)},
        {"ranks_per_host", json_integer(o->ranks_per_host)},
        {"local_bps", real(o->local_link)},
        {"local_latency_us", real(o->local_latency_s * 1e6)},
        {"hosts_per_rack", o->hosts_per_rack > 0 ? json_integer(o->hosts_per_rack) : json_null()},
        {"oversubscription", real(o->oversubscription)},
        {"rack_latency_us", real(o->rack_latency_s * 1e6)},
    };

    return object_of(members, SPR_ARRAY_LEN(members));
}

bool json_write(struct report *report)
{
    const struct options *o = report->options;
    json_t *command = json_array(), *root;
    const struct member members[] = {
        {"schema", json_integer(1)},
        {"command", command},
        {"version", text(spr_version())},
        {"collective", text(kind_names[o->kind])},
        {"pattern", text(pattern_name(o))},
        {"overlap", real(o->overlap)},
        {"seed", json_integer((json_int_t)o->seed)},
        {"network", network_of(o)},
        {"rows", json_incref(report->rows)},
        {"crossovers", json_incref(report->crossovers)},
    };
    bool done = command != NULL;

    for (int i = 0; done && i < o->command_words; i++) {
        json_t *word = json_string(o->command[i]);
        if (word == NULL) /* not UTF-8 */
            word = json_string("?");
        done = json_array_append_new(command, word) == 0;
    }
    root = object_of(members, SPR_ARRAY_LEN(members));
    done = done && root != NULL &&
           json_dumpf(root, report->file, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0 &&
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

bool json_add_row(struct report *report, const struct run *run, const struct run *dense)
{
    (void)report;
    (void)run;
    (void)dense;
    return true;
}

bool json_add_crossover(struct report *report, const struct crossover *crossover)
{
    (void)report;
    (void)crossover;
    return true;
}

bool json_write(struct report *report)
{
    (void)report;
    return true;
}

void json_drop(struct report *report) { report->rows = report->crossovers = NULL; }

#endif
