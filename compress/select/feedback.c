/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/select/feedback.h"

#include <math.h>
#include <string.h>

#include "base/util.h"
#include "compress/kernels/kernels.h"
#include "compress/kernels/select.h"

static const char *const rules[] = {"on", "decay", "momentum", "nesterov", "off", NULL};
static const char *const sums[] = {"rounded", "exact", "fp16", "bf16", "int8", "int4", NULL};
static const char *const unions[] = {"all", "bounded", "hosts", NULL};

const struct spr_opt spr_feedback_table[SPR_FEEDBACK_OPTIONS] = {
    {
        .name = "feedback",
        .default_value = "on",
        .doc = "how what is not sent is kept for the next steps; off = it is lost",
        .type = SPR_OPT_ENUM,
        .offset = offsetof(struct spr_feedback_options, rule),
        .choices = rules,
    },
    {
        .name = "decay",
        .default_value = "1",
        .doc = "feedback=decay: what the residual is multiplied by in every step",
        .type = SPR_OPT_RATIO,
        .offset = offsetof(struct spr_feedback_options, decay),
        .min = 0,
        .max = 1,
    },
    {
        .name = "momentum",
        .default_value = "0.9",
        .doc = "feedback=momentum, nesterov: what the velocity is multiplied by in every step",
        .type = SPR_OPT_RATIO,
        .offset = offsetof(struct spr_feedback_options, momentum),
        .min = 0,
        .max = 1,
    },
    {
        .name = "sums",
        .default_value = "rounded",
        .doc = "sums are sent on as values are, or as fp16, bf16, int8, int4, and what that loses "
               "stays where they were summed; exact = as fp32",
        .type = SPR_OPT_ENUM,
        .offset = offsetof(struct spr_feedback_options, sums),
        .choices = sums,
    },
    {
        .name = "bytes",
        .default_value = "0",
        .doc = "the ratio is the one at which values and packed positions take this part of the "
               "gradient's bytes, instead of ratio=; 0 = it is given",
        .type = SPR_OPT_RATIO,
        .offset = offsetof(struct spr_feedback_options, bytes),
        .min = 0,
        .max = 1,
    },
    {
        .name = "masking",
        .default_value = "on",
        .doc = "feedback=momentum, nesterov: what is sent loses its velocity",
        .type = SPR_OPT_BOOL,
        .offset = offsetof(struct spr_feedback_options, masking),
    },
    {
        .name = "warmup",
        .default_value = "0",
        .doc = "take a ratio of 25 %, 6.25 %, 1.5625 %, 0.4 % and 0.1 %, each for so many steps, "
               "before "
               "that of the codec; 0 = do not",
        .type = SPR_OPT_INT,
        .offset = offsetof(struct spr_feedback_options, warmup),
        .min = 0,
        .max = 1e9,
    },
    {
        .name = "union",
        .default_value = "all",
        .doc = "sums that are sent on: all; bounded = the largest, as many as a rank has sent on "
               "average, and the others stay where they came from; hosts = of the sums of a host, "
               "which are sent to others, the largest, as many as one of its ranks has on average, "
               "and the others stay where they were summed",
        .type = SPR_OPT_ENUM,
        .offset = offsetof(struct spr_feedback_options, joined),
        .choices = unions,
    },
    {
        .name = "clip",
        .default_value = "0",
        .doc = "largest norm of the sum of all gradients, each rank clips to its share; 0 = none",
        .type = SPR_OPT_DOUBLE,
        .offset = offsetof(struct spr_feedback_options, clip),
        .min = 0,
        .max = 1e30,
    },
};

bool spr_feedback_has_velocity(enum spr_feedback_rule rule)
{
    return rule == SPR_FEEDBACK_MOMENTUM || rule == SPR_FEEDBACK_NESTEROV;
}

void spr_feedback_init(struct spr_feedback *f, const struct spr_feedback_options *options,
                       unsigned ranks)
{
    bool velocity = spr_feedback_has_velocity((enum spr_feedback_rule)options->rule);

    f->rule = (enum spr_feedback_rule)options->rule;
    f->factor = 1;
    if (velocity)
        f->factor = (float)options->momentum;
    else if (f->rule == SPR_FEEDBACK_DECAY)
        f->factor = (float)options->decay;
    f->masking = velocity && options->masking;
    f->norm = (float)(options->clip / sqrt((double)ranks));
    f->scale = 1;
}

/* u NULL without velocity. */
static void apply(const struct spr_feedback *f, float *v, float *u, const float *g, size_t n)
{
    const struct spr_select_kernels *k = spr_select_kernels();

    switch (f->rule) {
    case SPR_FEEDBACK_OFF:
    case SPR_FEEDBACK_PLAIN:
    case SPR_FEEDBACK_DECAY:
        k->decay(v, g, f->factor, f->scale, n);
        break;
    case SPR_FEEDBACK_MOMENTUM:
    case SPR_FEEDBACK_NESTEROV:
        k->momentum(v, u, g, f->factor, f->scale, f->rule == SPR_FEEDBACK_NESTEROV, n);
        break;
    }
}

void spr_feedback_absorb(const struct spr_feedback *f, size_t at, size_t n)
{
    float *u = f->velocity ? f->velocity + at : NULL;

    if (spr_feedback_is_sum(f))
        spr_kernels()->sum(f->residual + at, f->residual + at, f->gradient + at, n);
    else
        apply(f, f->residual + at, u, f->gradient + at, n);
}

void spr_feedback_peek(const struct spr_feedback *f, size_t at, size_t n, float *out)
{
    enum { BATCH = 64 };
    float velocity[BATCH];

    memcpy(out, f->residual + at, n * sizeof(*out));
    for (size_t i = 0; i < n; i += BATCH) {
        size_t len = spr_min_size(BATCH, n - i);

        if (f->velocity)
            memcpy(velocity, f->velocity + at + i, len * sizeof(*velocity));
        apply(f, out + i, velocity, f->gradient + at + i, len);
    }
}

void spr_feedback_prefetch(const struct spr_feedback *f, size_t at)
{
    __builtin_prefetch(f->residual + at);
    __builtin_prefetch(f->gradient + at);
    if (f->velocity)
        __builtin_prefetch(f->velocity + at);
}

void spr_feedback_take(const struct spr_feedback *f, const uint32_t *index, size_t count,
                       float *velocity)
{
    for (size_t i = 0; i < count; i++)
        f->residual[index[i]] = 0;
    if (!f->velocity)
        return;
    for (size_t i = 0; i < count && velocity; i++)
        velocity[i] = f->velocity[index[i]];
    for (size_t i = 0; i < count && f->masking; i++)
        f->velocity[index[i]] = 0;
}

void spr_feedback_put_back(const struct spr_feedback *f, const uint32_t *index, const float *value,
                           const float *velocity, size_t count)
{
    for (size_t i = 0; i < count; i++)
        f->residual[index[i]] = value[i];
    for (size_t i = 0; i < count && velocity; i++)
        f->velocity[index[i]] = velocity[i];
}

void spr_feedback_clear(const struct spr_feedback *f, size_t n)
{
    memset(f->residual, 0, n * sizeof(*f->residual));
    if (f->velocity)
        memset(f->velocity, 0, n * sizeof(*f->velocity));
}

double spr_feedback_warmup(uint64_t epoch, double ratio)
{
    static const double steps[] = {0.25, 0.0625, 0.015625, 0.004, 0.001};
    double now = epoch < SPR_ARRAY_LEN(steps) ? steps[epoch] : 0;

    return now > ratio ? now : ratio;
}
