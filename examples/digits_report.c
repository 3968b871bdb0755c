/* SPDX-License-Identifier: BSD-2-Clause */
#include "digits_report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <sparring/version.h>

double digits_result_step_ms(const digits_result *result)
{
    return result->compute_ms + result->compress_ms + result->communicate_ms;
}

void digits_report_start(const digits_run *run)
{
    printf("# %d rank%s, %zu steps of %d x %zu images; %zu parameters, a gradient of %.1f MB\n",
           run->ranks, run->ranks == 1 ? "" : "s", run->steps, run->ranks, run->batch,
           run->elements, (double)run->elements * sizeof(float) / 1e6);
    printf("# images %s: %zu for training, %zu for the test\n", run->images, run->train_images,
           run->test_images);
    printf("# %-20s %5s %8s %9s %9s\n", "method", "epoch", "loss", "accuracy", "step ms");
    fflush(stdout);
}

void digits_report_epoch(const char *method, unsigned long long epoch, const digits_result *result)
{
    printf("  %-20s %5llu %8.4f %8.2f%% %9.1f\n", method, epoch, result->loss,
           100 * result->accuracy, digits_result_step_ms(result));
    fflush(stdout);
}

void digits_report_quality(const spr_codec *codec, size_t parameters)
{
    spr_codec_quality q = {.struct_size = sizeof(q)};

    printf("# %-10s %12s %9s %9s %9s %9s %11s %11s\n", "parameter", "shape", "density", "bits",
           "error", "cosine", "|gradient|", "|residual|");
    for (size_t p = 0; p <= parameters; p++) {
        char shape[32];

        if (spr_codec_measured(codec, p < parameters ? p : SPR_ALL_PARAMETERS, &q) != SPR_OK)
            return;
        snprintf(shape, sizeof(shape), "%zux%zu", q.rows, q.columns);
        printf("  %-10s %12s %8.3f%% %9.4f %9.4f %9.4f %11.4g %11.4g\n",
               p < parameters ? q.name : "all", shape, 100 * q.density, q.bits, q.relative_error,
               q.cosine, q.gradient_norm, q.residual_norm);
    }
    printf("# %s, step %llu of %llu, rank 0\n", q.name, (unsigned long long)q.step + 1,
           (unsigned long long)q.steps);
    fflush(stdout);
}

void digits_report_table(const digits_run *run, char *const *method, const digits_result *result,
                         size_t methods, size_t dense)
{
    printf("#\n# %-20s %8s %9s %9s %9s %9s %11s %9s %9s\n", "method", "loss", "accuracy", "step ms",
           "compute", "compress", "communicate", "MB/step", "speed-up");
    for (size_t i = 0; i < methods; i++) {
        const digits_result *r = &result[i];
        double step_ms = digits_result_step_ms(r);
        printf("  %-20s %8.4f %8.2f%% %9.1f %9.1f %9.1f %11.1f %9.3f ", method[i], r->loss,
               100 * r->accuracy, step_ms, r->compute_ms, r->compress_ms, r->communicate_ms,
               r->sent_bytes / 1e6);
        if (dense < methods)
            printf("%8.2fx\n", digits_result_step_ms(&result[dense]) / step_ms);
        else
            printf("%9s\n", "-");
    }
    printf("# Means over %d rank%s and %zu steps; communicate includes waiting for slower ranks.\n"
           "# loss: last epoch; MB/step: sent by one rank, headers included; "
           "speed-up: dense step / step.\n",
           run->ranks, run->ranks == 1 ? "" : "s", run->steps);
    for (size_t i = 0; i < methods; i++)
        if (strchr(method[i], ';'))
            printf("# %s: %.1f ms of a step, and their bytes, are trials that choose, once per "
                   "epoch.\n",
                   method[i], result[i].choose_ms);
    if (run->quick)
        puts("# --quick: times and bytes count; compressed training needs more steps to catch up.");
    fflush(stdout);
}

static void print_string(FILE *file, const char *text)
{
    putc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else
            fprintf(file, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    putc('"', file);
}

static void print_row(FILE *file, const char *method, const digits_result *r)
{
    fputs("\n  {\"method\":", file);
    print_string(file, method);
    if (isfinite(r->loss))
        fprintf(file, ",\"loss\":%.9g", r->loss);
    else
        fputs(",\"loss\":null", file); /* it has diverged */
    fprintf(file,
            ",\"accuracy\":%.9g,\"step_ms\":%.9g,\"compute_ms\":%.9g,"
            "\"compress_ms\":%.9g,\"communicate_ms\":%.9g,\"choose_ms\":%.9g,\"sent_bytes\":%.0f}",
            r->accuracy, digits_result_step_ms(r), r->compute_ms, r->compress_ms, r->communicate_ms,
            r->choose_ms, r->sent_bytes);
}

int digits_report_json(const char *path, const digits_run *run, char *const *method,
                       const digits_result *result, size_t methods, char *error, size_t capacity)
{
    int to_stdout = strcmp(path, "-") == 0;
    FILE *file = to_stdout ? stdout : fopen(path, "w");

    if (!file) {
        snprintf(error, capacity, "%s: %s", path, strerror(errno));
        return -1;
    }
    fputs("{\"schema\":1,\"command\":[", file);
    for (int i = 0; i < run->argc; i++) {
        fputs(i ? "," : "", file);
        print_string(file, run->argv[i]);
    }
    fprintf(
        file,
        "],\"version\":\"%s\",\"ranks\":%d,\"steps\":%zu,\"batch\":%zu,\"elements\":%zu,\"rows\":[",
        SPR_VERSION_STRING, run->ranks, run->steps, run->batch, run->elements);
    for (size_t i = 0; i < methods; i++) {
        fputs(i ? "," : "", file);
        print_row(file, method[i], &result[i]);
    }
    fputs("]}\n", file);
    int failed = ferror(file);
    failed |= (to_stdout ? fflush(file) : fclose(file)) != 0;
    if (failed)
        snprintf(error, capacity, "%s: %s", path, strerror(errno));
    return failed ? -1 : 0;
}
