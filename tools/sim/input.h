/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What all ranks put in, and what they get back.
 */
#ifndef SPR_TOOLS_SIM_INPUT_H
#define SPR_TOOLS_SIM_INPUT_H

#include <sparring/sparring.h>

#include "tools/sim/options.h"

struct input {
    enum kind kind;
    int ranks;
    struct support support;
    spr_sparse *lists;  /* [ranks]; sparse: what goes in */
    float **vectors;    /* [ranks] of all elements: what comes out; in place unless sparse */
    spr_codec **codecs; /* [ranks]; compressed */
};

/* False: no memory; there is nothing to close. */
bool input_open(struct input *input, const struct options *options, enum kind kind, int ranks,
                double density);
/* The codecs of all ranks. */
spr_status input_codecs(struct input *input, const char *spec);
void input_close(struct input *input);

/* Elements first .. first + count - 1 of what a rank puts in, zeros included. */
void input_values(const struct input *input, int rank, size_t first, size_t count, float *value);

struct verdict {
    double wrong; /* elements of rank 0 outside the bound; NAN: cannot be told */
    bool same;    /* bits on all ranks */
};
/* What has come out against a sum in fp64. `codec`: of a compressed allreduce. */
struct verdict input_check(const struct input *input, const char *codec);

#endif
