/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/report.h"

#include <errno.h>
#include <stdlib.h>

#include "base/opt.h"

const char *reference_name(enum reference reference)
{
    return reference == REFERENCE_ADD ? "E" : "R1";
}

FILE *output_open(const char *path)
{
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");

    if (!file)
        fprintf(stderr, "sparring-codec: cannot write to %s: %s\n", path, strerror(errno));
    return file;
}

bool output_close(FILE *file, const char *path, bool written)
{
    errno = 0;
    bool done = written && fflush(file) == 0 && !ferror(file);
    int why = errno;

    if (file != stdout && fclose(file) != 0 && done) {
        why = errno;
        done = false;
    }
    if (!done)
        fprintf(stderr, "sparring-codec: cannot write to %s: %s\n", path,
                why ? strerror(why) : "it failed");
    return done;
}

bool report_open(struct report *report, const struct options *options)
{
    *report = (struct report){.options = options};
    return (!options->csv || (report->csv = output_open(options->csv))) &&
           (!options->json || (report->json = output_open(options->json)));
}

/* The table gives way to a file that goes to standard output. */
static FILE *table_of(const struct report *report)
{
    return report->csv == stdout || report->json == stdout ? stderr : stdout;
}

void report_header(const struct report *report)
{
    FILE *out = table_of(report);

    fputs("# time: median of a run; ratio: median of the run's time over that of R1 (a read) or E "
          "(r += g) beside it;\n"
          "# goal: the ratio at most, or Mitems/s at least; drop: triples that were disturbed, ~: "
          "nearly all were\n",
          out);
    fprintf(out, "# %-31s %10s %-14s %7s %3s %10s %7s %8s %6s %-3s %6s %8s %9s %7s %-6s %4s\n",
            "operation", "elements", "data", "density", "thr", "time(us)", "GB/s", "Mitems/s",
            "ratio", "of", "memcpy", "bits/elt", "error", "goal", "", "drop");
}

/* `digits` behind the point, or a dash. */
static const char *cell(char *text, size_t bytes, double value, int digits)
{
    if (isfinite(value))
        snprintf(text, bytes, "%.*f", digits, value);
    else
        snprintf(text, bytes, "%s", isnan(value) ? "-" : "inf");
    return text;
}
#define CELL(value, digits) cell((char[32]){0}, 32, value, digits)

static void print_row(const struct report *report, const struct result *r)
{
    FILE *out = table_of(report);
    char density[32] = "-", error[32] = "-";

    if (!isnan(r->density))
        snprintf(density, sizeof(density), "%g%%", r->density * 100);
    if (!isnan(r->error))
        snprintf(error, sizeof(error), "%.2e", r->error);
    fprintf(out, "  %-31s %10zu %-14s %7s %3d ", r->operation, r->elements, data_names[r->data],
            density, r->threads);
    if (r->failure[0])
        fprintf(out, "FAILED: %s\n", r->failure);
    else
        fprintf(out, "%10s %7s %8s %6s %-3s %6s %8s %9s %7s %-6s %3d%s\n", CELL(r->figures.us, 1),
                CELL(r->gbps, 2), CELL(r->items_rate, 1), CELL(r->figures.ratio, 3),
                reference_name(r->reference), CELL(r->to_memcpy, 2), CELL(r->bits, 3), error,
                CELL(r->wanted, 2),
                isnan(r->wanted) ? ""
                : r->met         ? "yes"
                                 : "MISSED",
                r->figures.dropped, r->figures.noisy ? "~" : "");
    fflush(out);
}

bool report_add(struct report *report, const struct result *row)
{
    if (report->count == report->room) {
        size_t room = report->room ? 2 * report->room : 64;
        struct result *rows = realloc(report->rows, room * sizeof(*rows));
        if (!rows) {
            fputs("sparring-codec: out of memory\n", stderr);
            return false;
        }
        report->rows = rows;
        report->room = room;
    }
    report->rows[report->count++] = *row;
    report->wrong += row->failure[0] != '\0';
    print_row(report, row);
    return true;
}

void result_judge(struct result *row, const struct trial *trial)
{
    const struct goal *goal = goal_of(trial);

    row->wanted = row->reached = (double)NAN;
    if (!goal)
        return;
    if (goal->items > 0) {
        row->wanted = goal->items * 1e-6;
        row->reached = row->items_rate;
        row->met = row->reached >= row->wanted &&
                   (!(goal->entropies > 0) ||
                    row->bits <= goal->entropies * index_entropy(trial->density));
    } else {
        row->wanted = goal->most[trial->slices - 1];
        row->reached = row->figures.ratio;
        row->met = row->reached <= row->wanted;
    }
}

bool report_close(struct report *report, bool complete)
{
    int goals = 0, met = 0;
    bool done = true;

    for (size_t i = 0; i < report->count; i++) {
        goals += !isnan(report->rows[i].wanted);
        met += !isnan(report->rows[i].wanted) && report->rows[i].met;
    }
    if (complete)
        fprintf(table_of(report), "# %zu rows, %d failed; %d of %d goals reached\n", report->count,
                report->wrong, met, goals);
    if (report->csv)
        done = output_close(report->csv, report->options->csv, csv_write(report));
    if (report->json)
        done = output_close(report->json, report->options->json, json_write_bench(report)) && done;
    if (complete && report->options->svg)
        done = svg_write(report) && done;
    free(report->rows);
    return done;
}

/* As JSON has it; empty: does not apply. */
static void put_number(FILE *out, double value)
{
    char text[32];

    fprintf(out, ",%s", isfinite(value) ? spr_print_double(value, text, sizeof(text)) : "");
}

bool csv_write(const struct report *report)
{
    FILE *out = report->csv;

    fputs("operation,elements,data,density,threads,reference,time_us,reference_us,ratio,ratio_low,"
          "ratio_high,triples,dropped,noisy,gbps,items_per_us,to_memcpy,bits,error,goal,met,"
          "failure\n",
          out);
    for (size_t i = 0; i < report->count; i++) {
        const struct result *r = &report->rows[i];
        const struct figures *f = &r->figures;
        const double first[] = {f->us, f->reference_us, f->ratio, f->ratio_low, f->ratio_high};
        const double second[] = {r->gbps, r->items_rate, r->to_memcpy,
                                 r->bits, r->error,      r->wanted};
        fprintf(out, "\"%s\",%zu,%s", r->operation, r->elements, data_names[r->data]);
        put_number(out, r->density);
        fprintf(out, ",%d,%s", r->threads, reference_name(r->reference));
        for (size_t k = 0; k < SPR_ARRAY_LEN(first); k++)
            put_number(out, first[k]);
        fprintf(out, ",%d,%d,%d", f->triples, f->dropped, f->noisy);
        for (size_t k = 0; k < SPR_ARRAY_LEN(second); k++)
            put_number(out, second[k]);
        fprintf(out, ",%s,\"%s\"\n", isnan(r->wanted) ? "" : r->met ? "1" : "0", r->failure);
    }
    return !ferror(out);
}
