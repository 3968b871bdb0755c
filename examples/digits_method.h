/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What averages the gradients of train_digits: "dense", a codec, or the fastest of several codecs
 * and dense, "A;B;C", which is found out anew in each epoch.
 */
#ifndef EXAMPLES_DIGITS_METHOD_H
#define EXAMPLES_DIGITS_METHOD_H

#include <stdbool.h>
#include <stddef.h>

#include <sparring/sparring.h>

#define METHOD_DENSE "dense"

enum { METHOD_CODECS_MAX = 16 };

typedef struct digits_method {
    const spr_layout *layout;
    size_t parameters;
    bool quality; /* watch every tenth step, as --quick has few */
    char *names;
    const char *name[METHOD_CODECS_MAX];
    int codecs;
    int current;      /* of these; `codecs`: dense; -1: not chosen yet */
    spr_codec *codec; /* NULL: dense */
} digits_method;

/* The layout is not copied. Errors as of spr_codec_create(), of any of the codecs, and TOO_SMALL:
 * they are too many; nothing is left to close then. */
spr_status digits_method_open(digits_method *method, const char *text, const spr_layout *layout,
                              size_t parameters, bool quality);
void digits_method_close(digits_method *method);

/* Where there are several: which is the fastest for such a gradient, now? Called by all ranks. What
 * another codec has kept until now is added to the gradient. */
spr_status digits_method_choose(digits_method *method, spr_comm *comm, float *gradient);

/* As it was given, "dense" or a codec; of several, the one in use. */
const char *digits_method_name(const digits_method *method);
/* What remains for the optimizer: momentum correction is momentum already. */
double digits_method_momentum(const digits_method *method, double momentum);

#endif
