/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The table: lines with a number first are data, '#' is comment.
 */
#include "tools/sim/report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <sparring/sparring.h>

#include "base/util.h"

static const char *number(char text[32], const char *format, double value)
{
    if (isfinite(value))
        snprintf(text, 32, format, value);
    else
        snprintf(text, 32, "-");
    return text;
}

/* Of a rate, as --link takes it. */
static const char *rate(char text[32], double bits_per_s)
{
    bool giga = bits_per_s >= 1e9;

    snprintf(text, 32, "%.6g%s", bits_per_s / (giga ? 1e9 : 1e6), giga ? "gbit" : "mbit");
    return text;
}

static void network(FILE *out, const struct options *o)
{
    char text[32];

    fprintf(out, "# a host: %d rank%s, one port of the link's rate each way, latency %.4g us",
            o->ranks_per_host, spr_plural((uint64_t)o->ranks_per_host), o->latency_s * 1e6);
    if (o->ranks_per_host > 1)
        fprintf(out, "; inside: %s, %.4g us", rate(text, o->local_link), o->local_latency_s * 1e6);
    if (o->slow > 1)
        fprintf(out, "\n# the last host: its port is %.4g times slower", o->slow);
    if (o->hosts_per_rack > 0)
        fprintf(out, "\n# a rack: %d hosts, oversubscription %.4g, latency + %.4g us",
                o->hosts_per_rack, o->oversubscription, o->rack_latency_s * 1e6);
    fputs("\n# the time is that of the network alone: no CPU time of ranks, kernels and "
          "protocols is in it\n",
          out);
}

static void header(FILE *out, const struct options *o)
{
    fprintf(out, "# sparring-sim %s: %s, %zu elements (%zu bytes), seed %" PRIu64 "\n",
            spr_version(), kind_names[o->kind], o->elements, o->elements * sizeof(float), o->seed);
    if (o->kind != KIND_ALLREDUCE)
        fprintf(out, "# pattern %s, overlap %.4g%%%s%s\n", pattern_names[o->pattern],
                100 * o->overlap, o->kind == KIND_COMPRESSED ? ", codec " : "",
                o->kind == KIND_COMPRESSED ? o->codec : "");
    network(out, o);
    fputs("# gain = time of the best dense allreduce on the same network, the row without a "
          "density, / time\n"
          "# union = part of the elements that any rank sends; sent, msgs: by all ranks; busiest: "
          "by the rank\n"
          "#   that sends most; headers included, and messages that grant others; host = to other "
          "hosts, mean\n"
          "# balance = busiest / mean of the ranks; memory = what the library holds at most, per "
          "rank\n"
          "# #wrong = elements of rank 0 that differ from a sum in fp64; all ranks must have the "
          "same bits;\n#   model: not simulated\n#\n",
          out);
    fprintf(out, "# %8s %5s %5s %12s %8s %8s %11s %7s %12s %11s %11s %8s %8s %7s %10s %6s\n",
            "link", "ranks", "hosts", "algo", "density", "union", "time(us)", "gain", "sent(B)",
            "busiest(B)", "host(B)", "msgs", "busiest", "balance", "memory(B)", "#wrong");
    fflush(out);
}

bool report_open(struct report *report, const struct options *options)
{
    const char *json = options->json;

    *report = (struct report){.options = options, .table = stdout};
    if (json != NULL && strcmp(json, "-") == 0) {
        report->table = NULL;
        report->file = stdout;
    } else if (json != NULL) {
        report->file = fopen(json, "ae"); /* what is in it stays until there is something better */
        if (report->file == NULL) {
            fprintf(stderr, "sparring-sim: --json %s: %s\n", json, strerror(errno));
            return false;
        }
    }
    if (report->file != NULL && !json_open(report)) {
        fputs("sparring-sim: out of memory\n", stderr);
        return false;
    }
    if (report->table != NULL)
        header(report->table, options);
    return true;
}

static bool out_of_memory(void)
{
    fputs("sparring-sim: out of memory\n", stderr);
    return false;
}

static const char *wrong(char text[32], const struct figures *f)
{
    if (f->by_model)
        return "model";
    return f->same ? number(text, "%.0f", f->wrong) : "differ";
}

/* How near was the model? */
static void weigh_model(struct report *report, const struct figures *f)
{
    double ratio = f->predicted_us / f->time_us;

    if (!isfinite(ratio) || f->by_model)
        return;
    report->predicted++;
    report->near += fabs(ratio - 1) < 0.2;
    report->worst = fmax(report->worst, fmax(ratio, 1 / ratio));
}

const char *const level_names[SPR_SIM_LEVELS] = {"rank", "host", "rack"};

/* Below a row, a line for each level. */
static void print_levels(FILE *out, const struct figures *f)
{
    for (int i = 0; i < SPR_SIM_LEVELS && !f->by_model; i++) {
        const struct level *l = &f->levels[i];
        const char *name = level_names[i];
        if (l->count < 2)
            continue;
        fprintf(out, "#   %d %ss: sent %.0f B on average", l->count, name, l->sent / l->count);
        if (l->sent > 0)
            fprintf(out,
                    ", at most %.0f (%s %d, %.3f times that), received at most %.0f (%s %d); "
                    "messages %.1f, at most %.0f",
                    l->most_sent, name, l->sender, level_balance(l), l->most_received, name,
                    l->receiver, l->frames / l->count, l->of_one);
        fputc('\n', out);
    }
}

bool report_row(struct report *report, const struct run *run, const struct run *dense)
{
    const struct figures *f = &run->figures;
    const struct level *ranks = &f->levels[SPR_SIM_RANKS], *hosts = &f->levels[SPR_SIM_HOSTS];
    char link[32], density[32], share[32], gain[32], bad[32], sent[32], busiest[32], host[32];
    char frames[32], most[32], balance[32], memory[32];

    weigh_model(report, f);
    report->wrong += f->wrong > 0 || !f->same;
    if (report->table != NULL) {
        fprintf(report->table,
                "%10s %5d %5d %12s %8s %8s %11.1f %7s %12s %11s %11s %8s %8s %7s %10s %6s\n",
                rate(link, run->link), run->ranks, hosts->count, run->algorithm,
                number(density, "%.4g%%", 100 * run->density),
                number(share, "%.4g%%", 100 * f->union_density), f->time_us,
                number(gain, "%.2f", dense ? dense->figures.time_us / f->time_us : NAN),
                number(sent, "%.0f", ranks->sent), number(busiest, "%.0f", ranks->most_sent),
                number(host, "%.0f", hosts->sent / hosts->count),
                number(frames, "%.0f", ranks->frames), number(most, "%.0f", ranks->of_one),
                number(balance, "%.3f", level_balance(ranks)), number(memory, "%.0f", f->memory),
                wrong(bad, f));
        if (report->options->levels)
            print_levels(report->table, f);
        fflush(report->table);
    }
    return report->rows == NULL || json_add_row(report, run, dense) || out_of_memory();
}

bool report_crossover(struct report *report, const struct crossover *c)
{
    char link[32];

    if (report->table != NULL) {
        fprintf(report->table, "# %s, %d ranks, %s: ", rate(link, c->run->link), c->run->ranks,
                c->run->algorithm);
        if (!c->pays)
            fprintf(report->table, "dense is as fast at %.4g %% already\n", 100 * c->lowest);
        else if (isnan(c->density))
            fprintf(report->table, "faster than dense up to %.4g %%, no crossover below\n",
                    100 * c->highest);
        else
            fprintf(report->table, "faster than dense below a density of %.3g %%\n",
                    100 * c->density);
        fflush(report->table);
    }
    return report->rows == NULL || json_add_crossover(report, c) || out_of_memory();
}

bool report_close(struct report *report, bool complete)
{
    bool written = true;

    if (complete && report->predicted > 0 && report->table != NULL)
        fprintf(
            report->table,
            "# model: %zu of %zu rows that were simulated too are within 20 %%, the worst is off "
            "by a factor of %.2f\n",
            report->near, report->predicted, report->worst);
    if (complete && report->wrong > 0)
        fprintf(stderr, "sparring-sim: %.0f wrong result%s\n", report->wrong,
                spr_plural((uint64_t)report->wrong));
    if (complete && report->rows != NULL)
        written = json_write(report);
    json_drop(report);
    if (report->file != NULL && report->file != stdout && fclose(report->file) != 0)
        written = false;
    if (!written)
        fprintf(stderr, "sparring-sim: --json %s: %s\n", report->options->json, strerror(errno));
    report->file = NULL;
    return written;
}
