/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What train_digits prints: a line per epoch, the table of methods, and the table as JSON.
 */
#ifndef EXAMPLES_DIGITS_REPORT_H
#define EXAMPLES_DIGITS_REPORT_H

#include <stdbool.h>
#include <stddef.h>

/* One epoch or one whole training; means over ranks and steps. */
typedef struct digits_result {
    double loss;                                    /* mean over the steps of the (last) epoch */
    double accuracy;                                /* on the test images at its end, 0..1 */
    double compute_ms, compress_ms, communicate_ms; /* of one step */
    double choose_ms;                               /* of the latter two: trials of codecs */
    double sent_bytes;                              /* by one rank in one step, headers included */
} digits_result;

/* What stands above the numbers. */
typedef struct digits_run {
    int argc;
    char **argv;
    int ranks;
    size_t elements, batch, steps, train_images, test_images;
    const char *images; /* where they come from */
    bool quick;         /* too few steps to judge accuracy by */
} digits_run;

double digits_result_step_ms(const digits_result *result);

void digits_report_start(const digits_run *run);
void digits_report_epoch(const char *method, unsigned long long epoch, const digits_result *result);

/* What a codec made of each parameter, on this rank, in the last step that it measured. */
void digits_report_quality(const spr_codec *codec, size_t parameters);
/* Speed-up is against the method numbered `dense`, if it is below `methods`. */
void digits_report_table(const digits_run *run, char *const *method, const digits_result *result,
                         size_t methods, size_t dense);

/* 0, or -1 with one line in `error`. */
int digits_report_json(const char *path, const digits_run *run, char *const *method,
                       const digits_result *result, size_t methods, char *error, size_t capacity);

#endif
