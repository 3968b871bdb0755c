/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The command line of train_digits.
 */
#ifndef EXAMPLES_DIGITS_OPTIONS_H
#define EXAMPLES_DIGITS_OPTIONS_H

#include "digits_method.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { METHODS_MAX = 16, DUMP_STEPS_MAX = 64 };

typedef struct digits_options {
    uint64_t epochs, steps_per_epoch, batch, seed;
    double rate, momentum;
    const char *mnist;         /* directory of MNIST's files; NULL: draw the digits */
    const char *method_list;   /* as given; split and completed by the codecs it becomes: */
    char *method[METHODS_MAX]; /* METHOD_DENSE or a codec string */
    size_t methods;
    const char *codec[METHODS_MAX]; /* as given by --codec */
    size_t codecs;
    const char *dump; /* directory for gradients; NULL: none */
    uint64_t dump_step[DUMP_STEPS_MAX];
    size_t dump_steps; /* 0: the last step of each epoch */
    const char *json;  /* file for the results, "-" standard output; NULL: none */
    bool quick, check, quality;
} digits_options;

/* Never returns on --help and --version (exit 0) and on wrong usage (one line, exit 2). */
void digits_options_parse(digits_options *options, int argc, char **argv);
void digits_options_free(digits_options *options);

/* True when the gradients of this step, counted from 0, are to be written. */
bool digits_options_dumps(const digits_options *options, uint64_t step);

/* The place of a method in the list; options->methods when it is not there. */
size_t digits_options_find(const digits_options *options, const char *method);

#endif
