/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Every value coder with options that make a difference to it.
 */
#ifndef TESTS_UNIT_VALUE_CASES_H
#define TESTS_UNIT_VALUE_CASES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "compress/values/values.h"

/* "name:option=value,option=value" */
static const char *const value_specs[] = {
    "fp32",
    "fp16",
    "bf16",
    "int8",
    "int8:rounding=stochastic",
    "int8:group=8,rounding=stochastic",
    "int8:group=4096",
    "int4",
    "int4:rounding=stochastic,group=77",
    "sign",
    "sign:group=100",
    "sign:means=two",
    "sign:means=two,group=33",
    "qsgd",
    "qsgd:levels=1,bucket=64",
    "qsgd:levels=4,norm=max",
    "qsgd:levels=127,bucket=4096",
    "qsgd:coding=elias",
    "qsgd:coding=elias,levels=127,norm=max",
    "qsgd:coding=sparse,levels=1",
    "qsgd:coding=sparse,levels=100,norm=max,bucket=50",
    "terngrad",
    "terngrad:clip=0",
    "terngrad:group=9",
    "natural",
    "bounded",
    "bounded:error=0.0001",
    "bounded:error=0.3,group=41",
    "bounded:error=0.01,mode=absolute",
    "bounded:error=1e-6,mode=absolute",
    "bounded:error=0,bits=4",
    "bounded:bits=5,group=64",
    "bounded:error=0.0001,mode=absolute,bits=9.5,group=33",
};
#define VALUE_CASES SPR_ARRAY_LEN(value_specs)

struct value_case {
    const char *spec;
    const struct spr_value_coder *coder;
    _Alignas(16) unsigned char options[SPR_VALUE_OPTION_BYTES];
    unsigned traits;
    size_t group;
};

static inline struct value_case value_case(const char *spec)
{
    struct value_case c = {.spec = spec};
    char text[128], *rest = text, *name, *option;
    struct spr_error error = {0};

    snprintf(text, sizeof(text), "%s", spec);
    name = strsep(&rest, ":");
    c.coder = spr_value_coder_find(name);
    if (!c.coder)
        abort();
    spr_opt_defaults(c.coder->options, c.coder->option_count, c.options, &error);
    while ((option = strsep(&rest, ",")) != NULL) {
        char *value = option, *key = strsep(&value, "=");
        const struct spr_opt *o = spr_opt_find(c.coder->options, c.coder->option_count, key);

        if (!o || spr_opt_set(o, c.options, value, &error) != SPR_OK)
            abort();
    }
    c.traits = c.coder->traits(c.options);
    c.group = c.coder->group(c.options);
    return c;
}

static inline size_t value_encode(const struct value_case *c, uint64_t seed, uint64_t first,
                                  const float *in, size_t n, void *out)
{
    struct spr_draw draw = spr_draw(seed, first);

    return c->coder->encode(c->options, draw, in, n, out);
}

/* There and back; returns the bytes of the image. */
static inline size_t value_round_trip(const struct value_case *c, uint64_t seed, const float *in,
                                      size_t n, void *image, float *back)
{
    size_t bytes = value_encode(c, seed, 0, in, n, image);

    if (c->coder->decode(c->options, image, n, SPR_DECODE_SET, back) != bytes)
        abort();
    return bytes;
}

#endif
