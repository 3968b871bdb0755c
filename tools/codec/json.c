/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/json.h"

#include "tools/codec/report.h"

#ifdef HAVE_JANSSON

bool json_write(FILE *out, const struct options *options, const char *name, json_t *value)
{
    return json_print_run(out, options->argv, options->argc, &(struct json_member){name, value}, 1);
}

static json_t *row_object(const struct result *r)
{
    const struct figures *f = &r->figures;
    bool measured = !r->failure[0], goal = !isnan(r->wanted);
    const struct json_member members[] = {
        {"operation", json_text(r->operation)},
        {"elements", json_integer((json_int_t)r->elements)},
        {"distribution", json_text(data_names[r->data])},
        {"density", json_number(r->density)},
        {"threads", json_integer(r->threads)},
        {"reference", json_text(reference_name(r->reference))},
        {"time_us", measured ? json_number(f->us) : json_null()},
        {"reference_us", measured ? json_number(f->reference_us) : json_null()},
        {"ratio", measured ? json_number(f->ratio) : json_null()},
        {"ratio_low", measured ? json_number(f->ratio_low) : json_null()},
        {"ratio_high", measured ? json_number(f->ratio_high) : json_null()},
        {"triples", json_integer(f->triples)},
        {"dropped", json_integer(f->dropped)},
        {"noisy", json_boolean(f->noisy)},
        {"GBps", json_number(r->gbps)},
        {"items_per_us", json_number(r->items_rate)},
        {"to_memcpy", json_number(r->to_memcpy)},
        {"bits", json_number(r->bits)},
        {"error", json_number(r->error)},
        {"goal", json_number(r->wanted)},
        {"reached", goal ? json_boolean(r->met) : json_null()},
        {"failure", measured ? json_null() : json_text(r->failure)},
    };
    return json_object_of(members, SPR_ARRAY_LEN(members));
}

bool json_write_bench(const struct report *report)
{
    json_t *rows = json_array();
    bool done = rows != NULL;

    for (size_t i = 0; done && i < report->count; i++)
        done = json_array_append_new(rows, row_object(&report->rows[i])) == 0;
    return json_write(report->json, report->options, "rows", rows) && done;
}

#else

bool json_write_bench(const struct report *report)
{
    (void)report;
    return false;
}

#endif
