/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Value coders: a dense vector is encoded; encoded with error feedback; decoded and added.
 */
#include "tools/codec/operations.h"

#include "base/cpu.h"
#include "compress/values/values.h"
#include "tools/codec/pool.h"

struct value {
    const struct spr_value_coder *coder;
    _Alignas(16) unsigned char options[SPR_VALUE_OPTION_BYTES];
    unsigned char *bytes, *scalar;
    size_t size[POOL_THREADS_MAX]; /* of the image of each slice */
    float *out;                    /* decoded, or the residual */
    float *before;                 /* the residual before a step */
};

/* Where the image of a slice begins: no image is larger than its bound. */
static size_t place_of(const struct value *s, size_t begin)
{
    return spr_align_up(s->coder->bound(s->options, begin), 4);
}

static void code_slice(struct trial *trial, int slice, int slices, unsigned char *bytes,
                       float *residual)
{
    struct value *s = trial->state;
    size_t begin, end;

    span_of(trial->vector->n, slice, slices, &begin, &end);
    struct spr_draw draw = spr_draw(trial->vector->seed, begin);
    const float *x = trial->vector->x + begin;
    void *at = bytes + place_of(s, begin);
    s->size[slice] = residual ? spr_value_feedback(s->coder, s->options, draw, residual + begin, x,
                                                   end - begin, at)
                              : spr_value_encode(s->coder, s->options, draw, x, end - begin, at);
}

static void encode_run(struct trial *trial, int slice, int slices)
{
    struct value *s = trial->state;

    code_slice(trial, slice, slices, s->bytes, NULL);
}

static void feedback_run(struct trial *trial, int slice, int slices)
{
    struct value *s = trial->state;

    code_slice(trial, slice, slices, s->bytes, s->out);
}

static void decode_slice(struct trial *trial, int slice, int slices, enum spr_decode how,
                         float *out)
{
    struct value *s = trial->state;
    size_t begin, end;

    span_of(trial->vector->n, slice, slices, &begin, &end);
    s->coder->decode(s->options, s->bytes + place_of(s, begin), end - begin, how, out + begin);
}

static void add_run(struct trial *trial, int slice, int slices)
{
    struct value *s = trial->state;

    decode_slice(trial, slice, slices, SPR_DECODE_ADD, s->out);
}

static bool value_setup(struct trial *trial, struct spr_error *error)
{
    size_t n = trial->vector->n, bytes = n * sizeof(float), room;
    struct value *s = trial_pages(trial, sizeof(*s), error);

    if (!s)
        return false;
    trial->state = s;
    s->coder = trial->operation->what;
    if (!trial_options(trial, s->coder->options, s->coder->option_count, s->options, error))
        return false;
    room = spr_align_up(s->coder->bound(s->options, n), 4) + 64;
    if (!(s->bytes = trial_pages(trial, room, error)) ||
        !(s->scalar = trial_pages(trial, room, error)) ||
        !(s->out = trial_pages(trial, bytes, error)) ||
        !(s->before = trial_pages(trial, bytes, error)))
        return false;
    for (int slice = 0; slice < trial->slices; slice++)
        code_slice(trial, slice, trial->slices, s->bytes, NULL);
    return true;
}

/* A residual that stays as it is from run to run. */
static void feedback_prepare(struct trial *trial)
{
    struct value *s = trial->state;

    memcpy(s->out, s->before, trial->vector->n * sizeof(float));
}

/* Bytes, or 0: an image is not valid. */
static size_t valid_bytes(struct trial *trial, struct spr_error *error)
{
    const struct value *s = trial->state;
    const char *why = NULL;
    size_t all = 0;

    for (int slice = 0; slice < trial->slices; slice++) {
        size_t begin, end;
        span_of(trial->vector->n, slice, trial->slices, &begin, &end);
        if (s->coder->check(s->options, s->bytes + place_of(s, begin), s->size[slice], end - begin,
                            &why) != SPR_OK) {
            spr_error_set(error, SPR_ERR_PROTO, -1, "an image that is not valid: %s", why);
            return 0;
        }
        all += s->size[slice];
    }
    return all;
}

/* Scalar code has to write the same bytes. */
static bool scalar_agrees(struct trial *trial, bool feedback, struct spr_error *error)
{
    struct value *s = trial->state;
    float *residual = feedback ? s->before : NULL; /* zero until then, and zeroed after */
    bool same = true;

    spr_cpu_override(0);
    for (int slice = 0; slice < trial->slices; slice++) {
        size_t begin, end, size = s->size[slice];
        span_of(trial->vector->n, slice, trial->slices, &begin, &end);
        code_slice(trial, slice, trial->slices, s->scalar, residual);
        same &= size == s->size[slice] &&
                memcmp(s->bytes + place_of(s, begin), s->scalar + place_of(s, begin), size) == 0;
    }
    spr_cpu_override(UINT32_MAX);
    if (feedback)
        same &= memcmp(s->before, s->out, trial->vector->n * sizeof(float)) == 0;
    memset(s->before, 0, trial->vector->n * sizeof(float));
    if (!same)
        spr_error_set(error, SPR_ERR_INVALID, -1, "scalar code gives other bits");
    return same;
}

static bool value_check(struct trial *trial, struct spr_error *error)
{
    const struct vector *v = trial->vector;
    struct value *s = trial->state;
    bool feedback = trial->operation->run == feedback_run;
    size_t size = valid_bytes(trial, error);

    if (size == 0)
        return false;
    trial->bits = 8 * (double)size / (double)v->n;
    if (!scalar_agrees(trial, feedback, error))
        return false;
    for (int slice = 0; slice < trial->slices; slice++)
        decode_slice(trial, slice, trial->slices, SPR_DECODE_SET, s->before);
    trial->error = relative_error(v->x, s->before, v->n);
    bool right = true;
    /* Added to zero; what was sent and what was kept add up where the kept is finite. */
    for (size_t i = 0; i < v->n; i++) {
        double x = (double)v->x[i], sent = (double)s->before[i], kept = (double)s->out[i];
        if (trial->operation->run == add_run)
            right &= s->out[i] == s->before[i] || isnan(sent);
        else if (feedback && isfinite(sent) && isfinite(x))
            right &= fabs(sent + kept - x) <= 1e-6 * (fabs(sent) + fabs(x)) + 1e-44;
    }
    memset(s->before, 0, v->n * sizeof(float));
    if (!right)
        spr_error_set(error, SPR_ERR_INVALID, -1, "%s",
                      feedback ? "what was sent and the residual do not add up" : "a wrong sum");
    return right;
}

void op_value_add(struct operations *list)
{
    static const struct {
        const char *kind;
        enum reference reference;
        void (*prepare)(struct trial *trial);
        void (*run)(struct trial *trial, int slice, int slices);
    } kinds[] = {
        {"encode", REFERENCE_READ, no_prepare, encode_run},
        {"feedback", REFERENCE_ADD, feedback_prepare, feedback_run},
        {"decode-add", REFERENCE_ADD, no_prepare, add_run},
    };

    for (size_t k = 0; k < SPR_ARRAY_LEN(kinds); k++)
        for (size_t i = 0; i < spr_value_coder_count; i++) {
            const struct spr_value_coder *coder = spr_value_coders[i];
            struct operation row = {.reference = kinds[k].reference,
                                    .sliced = true,
                                    .what = coder,
                                    .setup = value_setup,
                                    .prepare = kinds[k].prepare,
                                    .next = one_phase,
                                    .run = kinds[k].run,
                                    .check = value_check,
                                    .close = no_close};
            operations_add_variants(list, &row, kinds[k].kind, coder->name, coder->options,
                                    coder->option_count);
        }
}
