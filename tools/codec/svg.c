/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Plots: for each size and distribution a bar per row, as long as the ratio, and a mark at its
 * goal.
 */
#include "tools/codec/report.h"

#include <errno.h>
#include <sys/stat.h>

enum { LABEL = 300, WIDTH = 560, LINE = 18, TOP = 54, RIGHT = 190, PATH = 512 };

struct plot {
    const struct report *report;
    size_t elements;
    enum data data;
};

static bool belongs(const struct plot *plot, const struct result *r)
{
    return r->elements == plot->elements && r->data == plot->data && !r->failure[0];
}

/* Where the mark of a goal is; NAN: it is none of the ratio. */
static double mark_of(const struct result *r)
{
    return isnan(r->items_rate) ? r->wanted : (double)NAN;
}

/* Pixels per 1. What is beyond 8 ends at the border. */
static double scale_of(const struct plot *plot, int *rows)
{
    double most = 1;

    *rows = 0;
    for (size_t i = 0; i < plot->report->count; i++)
        if (belongs(plot, &plot->report->rows[i])) {
            const struct result *r = &plot->report->rows[i];
            most = fmax(most, fmin(fmax(r->figures.ratio, mark_of(r)), 8));
            ++*rows;
        }
    return WIDTH / (1.05 * most);
}

static void draw_row(FILE *out, const struct result *r, int y, double scale)
{
    double length = fmin(r->figures.ratio * scale, WIDTH);
    const char *colour = isnan(r->wanted) ? "#7a94b8" : r->met ? "#4c9a5f" : "#c7603f";

    fprintf(out, "<text x='%d' y='%d' text-anchor='end'>%s", LABEL - 8, y + 13, r->operation);
    if (!isnan(r->density))
        fprintf(out, " %g%%", r->density * 100);
    fprintf(out, ", %d thr</text>\n", r->threads);
    fprintf(out, "<rect x='%d' y='%d' width='%.1f' height='%d' fill='%s'/>\n", LABEL, y + 2, length,
            LINE - 4, colour);
    if (!isnan(mark_of(r)))
        fprintf(out, "<path d='M%.1f %dv%d' stroke='#222' stroke-width='2'/>\n",
                LABEL + fmin(mark_of(r) * scale, WIDTH), y, LINE);
    fprintf(out, "<text x='%.1f' y='%d'>%.2f %s, %.1f GB/s</text>\n", LABEL + length + 6, y + 13,
            r->figures.ratio, reference_name(r->reference), r->gbps);
}

static bool draw(FILE *out, const struct plot *plot)
{
    int rows, y = TOP;
    double scale = scale_of(plot, &rows);

    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "font-family='sans-serif' font-size='12'>\n"
            "<rect width='100%%' height='100%%' fill='white'/>\n"
            "<text x='12' y='22' font-size='16'>Time over the reference, %zu elements, %s</text>\n"
            "<text x='12' y='40'>R1: read and sum; E: r += g; line: goal; green: reached, red: "
            "missed, blue: no goal</text>\n",
            LABEL + WIDTH + RIGHT, TOP + rows * LINE + 12, plot->elements, data_names[plot->data]);
    for (size_t i = 0; i < plot->report->count; i++)
        if (belongs(plot, &plot->report->rows[i])) {
            draw_row(out, &plot->report->rows[i], y, scale);
            y += LINE;
        }
    fputs("</svg>\n", out);
    return !ferror(out);
}

bool svg_write(const struct report *report)
{
    const char *directory = report->options->svg;
    bool done = true;

    if (mkdir(directory, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "sparring-codec: cannot make the directory %s: %s\n", directory,
                strerror(errno));
        return false;
    }
    for (size_t i = 0; done && i < report->count; i++) {
        const struct result *r = &report->rows[i];
        struct plot plot = {report, r->elements, r->data};
        char path[PATH];

        if (i > 0 && r[-1].elements == r->elements && r[-1].data == r->data)
            continue;
        if (snprintf(path, sizeof(path), "%s/ratio-%zu-%s.svg", directory, r->elements,
                     data_names[r->data]) >= (int)sizeof(path)) {
            fprintf(stderr, "sparring-codec: the path %s is too long\n", directory);
            return false;
        }
        FILE *file = output_open(path);
        done = file && output_close(file, path, draw(file, &plot));
    }
    return done;
}
