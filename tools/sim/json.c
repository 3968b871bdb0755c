/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/sim/report.h"

#ifdef HAVE_JANSSON

#include <math.h>

#include "base/util.h"
#include "tools/json.h"

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

static json_t *level_of(const struct level *l, const char *name)
{
    const struct json_member members[] = {
        {"level", json_text(name)},
        {"count", json_integer(l->count)},
        {"sent_bytes", json_whole(l->sent)},
        {"busiest", json_integer(l->sender)},
        {"busiest_bytes", json_whole(l->most_sent)},
        {"balance", json_number(level_balance(l))},
        {"most_received", json_integer(l->receiver)},
        {"most_received_bytes", json_whole(l->most_received)},
        {"messages", json_whole(l->frames)},
        {"busiest_messages", json_whole(l->of_one)},
    };

    return json_object_of(members, SPR_ARRAY_LEN(members));
}

/* Of those that are there, and of which something is known. */
static json_t *levels_of(const struct figures *f)
{
    json_t *levels = json_array();

    for (int i = 0; i < SPR_SIM_LEVELS && !f->by_model; i++)
        if (f->levels[i].count > 0)
            json_array_append_new(levels, level_of(&f->levels[i], level_names[i]));
    return levels;
}

bool json_add_row(struct report *report, const struct run *run, const struct run *dense)
{
    const struct figures *f = &run->figures;
    const struct level *ranks = &f->levels[SPR_SIM_RANKS], *hosts = &f->levels[SPR_SIM_HOSTS];
    const struct json_member members[] = {
        {"collective", json_text(kind_names[run->kind])},
        {"algorithm", json_text(run->algorithm)},
        {"codec", json_text(*run->codec ? run->codec : NULL)},
        {"link_bps", json_number(run->link)},
        {"ranks", json_integer(run->ranks)},
        {"hosts", json_integer(hosts->count)},
        {"elements", json_integer((json_int_t)run->options->elements)},
        {"density", json_number(run->density)},
        {"union", json_number(f->union_density)},
        {"time_us", json_number(f->time_us)},
        {"dense_us", json_number(dense != NULL ? dense->figures.time_us : NAN)},
        {"gain", json_number(dense != NULL ? dense->figures.time_us / f->time_us : NAN)},
        {"sent_bytes", json_whole(ranks->sent)},
        {"busiest_bytes", json_whole(ranks->most_sent)},
        {"host_bytes", json_number(hosts->sent / hosts->count)},
        {"busiest_host_bytes", json_whole(hosts->most_sent)},
        {"messages", json_whole(ranks->frames)},
        {"busiest_messages", json_whole(ranks->of_one)},
        {"balance", json_number(level_balance(ranks))},
        {"levels", levels_of(f)},
        {"memory_bytes", json_whole(f->memory)},
        {"predicted_us", json_number(f->predicted_us)},
        {"by_model", json_boolean(f->by_model)},
        {"wrong", json_whole(f->wrong)},
        {"same", f->by_model ? json_null() : json_boolean(f->same)},
        {"wall_s", json_number(f->wall_s)},
    };
    json_t *row = json_object_of(members, SPR_ARRAY_LEN(members));

    return row != NULL && json_array_append_new(report->rows, row) == 0;
}

bool json_add_crossover(struct report *report, const struct crossover *c)
{
    const struct json_member members[] = {
        {"algorithm", json_text(c->run->algorithm)}, {"link_bps", json_number(c->run->link)},
        {"ranks", json_integer(c->run->ranks)},      {"lowest", json_number(c->lowest)},
        {"highest", json_number(c->highest)},        {"pays_at_lowest", json_boolean(c->pays)},
        {"density", json_number(c->density)},
    };
    json_t *object = json_object_of(members, SPR_ARRAY_LEN(members));

    return object != NULL && json_array_append_new(report->crossovers, object) == 0;
}

static json_t *network_of(const struct options *o)
{
    const struct json_member members[] = {
        {"latency_us", json_number(o->latency_s * 1e6)},
        {"ranks_per_host", json_integer(o->ranks_per_host)},
        {"local_bps", json_number(o->local_link)},
        {"local_latency_us", json_number(o->local_latency_s * 1e6)},
        {"hosts_per_rack", o->hosts_per_rack > 0 ? json_integer(o->hosts_per_rack) : json_null()},
        {"oversubscription", json_number(o->oversubscription)},
        {"rack_latency_us", json_number(o->rack_latency_s * 1e6)},
        {"slow", json_number(o->slow)},
    };

    return json_object_of(members, SPR_ARRAY_LEN(members));
}

/* How near it was to what was simulated: its validated error. */
static json_t *model_of(const struct report *report)
{
    const struct json_member members[] = {
        {"rows", json_integer((json_int_t)report->predicted)},
        {"within_20_percent", json_integer((json_int_t)report->near)},
        {"worst_factor", json_number(report->predicted > 0 ? report->worst : NAN)},
    };

    return json_object_of(members, SPR_ARRAY_LEN(members));
}

bool json_write(struct report *report)
{
    const struct options *o = report->options;
    const struct json_member members[] = {
        {"collective", json_text(kind_names[o->kind])},
        {"pattern", json_text(pattern_names[o->pattern])},
        {"overlap", json_number(o->overlap)},
        {"seed", json_integer((json_int_t)o->seed)},
        {"network", network_of(o)},
        {"model", model_of(report)},
        {"rows", json_incref(report->rows)},
        {"crossovers", json_incref(report->crossovers)},
    };

    return json_print_run(report->file, o->command, o->command_words, members,
                          SPR_ARRAY_LEN(members)) &&
           fflush(report->file) == 0;
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
