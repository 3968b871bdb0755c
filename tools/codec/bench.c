/* SPDX-License-Identifier: BSD-2-Clause
 *
 * `sparring-codec bench`: every operation, on each size, distribution, number of threads and
 * density.
 */
#include "tools/codec/commands.h"

#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/opt.h"
#include "tools/codec/report.h"

/* The references of one vector and number of threads. */
struct references {
    struct trial trials[2];  /* by enum reference */
    double ratio[2], memcpy; /* over R1 */
};

struct bench {
    const struct options *options;
    struct operations operations;
    struct report report;
    struct vector vector;
    struct pool *pool;
    struct references references;
    struct effort effort;
};

static const struct operation *operation_named(const struct bench *bench, const char *name)
{
    for (size_t i = 0; i < bench->operations.count; i++)
        if (strcmp(bench->operations.rows[i].name, name) == 0)
            return &bench->operations.rows[i];
    return NULL;
}

/* Set up, run, check. */
static bool open_trial(struct bench *bench, struct trial *trial, const struct operation *operation,
                       double density, struct spr_error *error)
{
    assert(operation);
    *trial = (struct trial){
        .operation = operation,
        .vector = &bench->vector,
        .density = operation->by_density ? density : (double)NAN,
        .slices = pool_threads(bench->pool),
        .bits = (double)NAN,
        .error = (double)NAN,
    };
    if (!operation->setup(trial, error))
        return false;
    run_once(bench->pool, trial);
    return operation->check(trial, error);
}

static void fill_rates(struct result *row, const struct trial *trial, const struct references *r)
{
    double us = row->figures.us, per_memcpy = r->ratio[row->reference] / r->memcpy;

    double inputs = trial->items > 0 ? trial->items : (double)trial->vector->n;

    row->gbps = inputs * sizeof(float) / us * 1e-3;
    row->items_rate = trial->items > 0 ? trial->items / us : (double)NAN;
    row->to_memcpy = row->figures.ratio * per_memcpy;
}

static bool measure_row(struct bench *bench, const struct operation *operation, double density)
{
    struct result row = {.elements = bench->vector.n,
                         .data = bench->vector.kind,
                         .density = operation->by_density ? density : (double)NAN,
                         .threads = pool_threads(bench->pool),
                         .reference = operation->reference,
                         .gbps = (double)NAN,
                         .items_rate = (double)NAN,
                         .to_memcpy = (double)NAN,
                         .wanted = (double)NAN};
    struct spr_error error = {.rank = -1};
    struct trial trial;

    snprintf(row.operation, sizeof(row.operation), "%s", operation->name);
    bool right = open_trial(bench, &trial, operation, density, &error);
    row.bits = trial.bits;
    row.error = trial.error;
    if (right) {
        measure(bench->pool, &trial, &bench->references.trials[operation->reference],
                &bench->effort, &row.figures);
        fill_rates(&row, &trial, &bench->references);
        result_judge(&row, &trial);
    } else {
        snprintf(row.failure, sizeof(row.failure), "%s", error.text);
    }
    trial_free(&trial);
    return report_add(&bench->report, &row);
}

/* How the references relate, so that all ratios can be told over a copy. */
static bool open_references(struct bench *bench)
{
    static const char *const names[] = {[REFERENCE_READ] = "read", [REFERENCE_ADD] = "r+=g"};
    struct references *r = &bench->references;
    struct spr_error error = {.rank = -1};
    struct figures figures;
    struct trial copy;
    bool done = true;

    for (int i = 0; i < 2; i++)
        done =
            open_trial(bench, &r->trials[i], operation_named(bench, names[i]), 1, &error) && done;
    done = open_trial(bench, &copy, operation_named(bench, "memcpy"), 1, &error) && done;
    if (done) {
        measure(bench->pool, &r->trials[1], &r->trials[0], &bench->effort, &figures);
        r->ratio[REFERENCE_READ] = 1;
        r->ratio[REFERENCE_ADD] = figures.ratio;
        measure(bench->pool, &copy, &r->trials[0], &bench->effort, &figures);
        r->memcpy = figures.ratio;
    } else {
        fprintf(stderr, "sparring-codec: %s\n", error.text);
    }
    trial_free(&copy);
    return done;
}

static void close_references(struct bench *bench)
{
    for (int i = 0; i < 2; i++)
        trial_free(&bench->references.trials[i]);
}

static bool wanted(const struct bench *bench, const struct operation *operation)
{
    return (!bench->options->filter || strstr(operation->name, bench->options->filter)) &&
           (operation->sliced || pool_threads(bench->pool) == 1);
}

/* A goal is stated for large vectors, and for some densities, data and threads. */
static bool has_goal(const struct bench *bench, const struct operation *operation, double density)
{
    struct trial trial = {.operation = operation,
                          .vector = &bench->vector,
                          .density = operation->by_density ? density : (double)NAN,
                          .slices = pool_threads(bench->pool)};

    return goal_of(&trial) != NULL;
}

static bool all_operations(struct bench *bench)
{
    const struct options *options = bench->options;

    for (size_t i = 0; i < bench->operations.count; i++) {
        const struct operation *operation = &bench->operations.rows[i];
        size_t densities = operation->by_density ? options->density_count : 1;
        for (size_t d = 0; wanted(bench, operation) && d < densities; d++)
            if ((!options->goals || has_goal(bench, operation, options->densities[d])) &&
                !measure_row(bench, operation, options->densities[d]))
                return false;
    }
    return true;
}

static bool with_threads(struct bench *bench, int threads)
{
    bool done;

    bench->pool = pool_open(threads);
    if (!bench->pool) {
        fprintf(stderr, "sparring-codec: cannot start %d threads\n", threads);
        return false;
    }
    done = open_references(bench) && all_operations(bench);
    close_references(bench);
    pool_close(bench->pool);
    return done;
}

/* Generate the vector. */
static bool open_vector(struct bench *bench, size_t n, enum data kind)
{
    struct spr_rng rng = {.seed = bench->options->seed};
    float *x = spr_pages_alloc(n * sizeof(float));

    if (!x) {
        fprintf(stderr, "sparring-codec: no memory for %zu elements\n", n);
        return false;
    }
    data_fill(kind, x, n, &rng);
    bench->vector = (struct vector){.x = x, .n = n, .kind = kind, .seed = bench->options->seed};
    return true;
}

static void close_vector(struct bench *bench)
{
    spr_pages_free((void *)(uintptr_t)bench->vector.x, bench->vector.n * sizeof(float));
}

static bool sweep(struct bench *bench)
{
    const struct options *options = bench->options;
    bool done = true;

    for (size_t s = 0; done && s < options->size_count; s++)
        for (int kind = 0; done && kind < DATA_KINDS; kind++) {
            if (!options->distributions[kind])
                continue;
            if (!open_vector(bench, options->sizes[s], (enum data)kind))
                return false;
            for (size_t t = 0; done && t < options->thread_count; t++)
                done = with_threads(bench, options->threads[t]);
            close_vector(bench);
        }
    return done;
}

static bool open_bench(struct bench *bench, const struct options *options)
{
    *bench = (struct bench){.options = options,
                            .effort = {.triples = options->triples, .seconds = options->seconds}};
    if (operations_list(&bench->operations))
        return true;
    fputs("sparring-codec: out of memory\n", stderr);
    operations_free(&bench->operations);
    return false;
}

static bool any_wanted(const struct bench *bench)
{
    for (size_t i = 0; i < bench->operations.count; i++)
        if (!bench->options->filter ||
            strstr(bench->operations.rows[i].name, bench->options->filter))
            return true;
    fprintf(stderr,
            "sparring-codec: no operation has '%s' in its name; there is:", bench->options->filter);
    for (size_t i = 0; i < bench->operations.count; i++)
        fprintf(stderr, "%s %s", i ? "," : "", bench->operations.rows[i].name);
    fputc('\n', stderr);
    return false;
}

int bench_run(const struct options *options)
{
    struct bench bench;
    bool done = false;

    if (!open_bench(&bench, options))
        return 1;
    if (!any_wanted(&bench)) {
        operations_free(&bench.operations);
        return 2;
    }
    if (report_open(&bench.report, options)) {
        report_header(&bench.report);
        done = sweep(&bench);
    }
    int wrong = bench.report.wrong;
    done = report_close(&bench.report, done) && done;
    operations_free(&bench.operations);
    return done && wrong == 0 ? 0 : 1;
}

/* One line of --lines: "DENSITY OPERATION", or "save FILE". The trial of the last line is kept, so
 * that a line that comes again costs one run. */
static bool do_line(struct bench *bench, struct trial *trial, char *line, struct spr_error *error)
{
    char *name = strchr(line, ' ');
    double density;

    if (!name)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "DENSITY OPERATION is wanted") == SPR_OK;
    *name++ = '\0';
    if (strcmp(line, "save") == 0) {
        FILE *file = output_open(name);
        bool written = file && fwrite(bench->vector.x, sizeof(float), bench->vector.n, file) ==
                                   bench->vector.n;
        if (!file || !output_close(file, name, written))
            return spr_error_set(error, SPR_ERR_INVALID, -1, "not saved") == SPR_OK;
        puts("0");
        return true;
    }
    const struct operation *operation = operation_named(bench, name);
    if (!spr_parse_ratio(line, &density) || !operation)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "no such density or operation: %s %s",
                             line, name) == SPR_OK;
    if (trial->operation != operation ||
        (operation->by_density && fabs(trial->density - density) > 0)) {
        if (trial->operation)
            trial_free(trial);
        if (!open_trial(bench, trial, operation, density, error))
            return false;
    }
    printf("%.3f\n", (double)run_once(bench->pool, trial) * 1e-3);
    return true;
}

int bench_lines(const struct options *options)
{
    struct spr_error error = {.rank = -1};
    struct trial trial = {0};
    struct bench bench;
    enum data kind = 0;
    char line[256];
    int code = 1;

    if (!open_bench(&bench, options))
        return 1;
    while (!options->distributions[kind])
        kind++;
    if (open_vector(&bench, options->sizes[0], kind)) {
        bench.pool = pool_open(options->threads[options->thread_count - 1]);
        for (code = bench.pool ? 0 : 1; code == 0 && fgets(line, sizeof(line), stdin);) {
            line[strcspn(line, "\n")] = '\0';
            if (!do_line(&bench, &trial, line, &error)) {
                fprintf(stderr, "sparring-codec: %s\n", error.text);
                code = 1;
            }
            fflush(stdout);
        }
        if (trial.operation)
            trial_free(&trial);
        pool_close(bench.pool);
        close_vector(&bench);
    }
    operations_free(&bench.operations);
    return code;
}
