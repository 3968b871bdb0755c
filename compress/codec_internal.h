/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the codecs share. A codec string is a selection ("topk", "none") and a value coder ("fp16",
 * "int8", ...). Each is one const struct; the table of selections is in codec_selections.c, that of
 * value coders in compress/values/values.c. A new one is a new file and one line there.
 */
#ifndef SPR_COMPRESS_CODEC_INTERNAL_H
#define SPR_COMPRESS_CODEC_INTERNAL_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/opt.h"
#include "compress/adapt.h"
#include "compress/codec.h"
#include "compress/lowrank/lowrank.h"
#include "compress/quality.h"
#include "compress/select/select.h"

/* Fields of the selector's options, then struct spr_feedback_options. */
#define SPR_CODEC_OPTION_BYTES (2 * SPR_SELECT_OPTION_BYTES)
#define SPR_CODEC_OPTIONS_MAX 16 /* rows */
#define SPR_CODEC_SPEC_BYTES 512
#define SPR_CODEC_RATE_MAX 1e15

/* What the steps of a codec do. The slots up to `revoke` are filled. */
struct spr_codec_steps {
    /* Bytes of codec->workspace; called when all other fields are set. */
    size_t (*workspace)(const spr_codec *codec);
    bool (*conserves)(const spr_codec *codec); /* residual' = residual + gradient - sent */
    /* Once, with the workspace zeroed. */
    void (*init)(spr_codec *codec);
    /* One step, see compress/codec.h; what is sent is kept in slot codec->slot. Begin a new one;
     * begin the absorbed one again; end it. */
    void (*begin)(spr_codec *codec, const float *gradient, struct spr_codec_step *step);
    void (*replay)(spr_codec *codec, struct spr_codec_step *step);
    void (*commit)(spr_codec *codec);
    void (*abort)(spr_codec *codec);
    /* Undo a commit. */
    void (*revoke)(spr_codec *codec);
    /* spr_codec_vector(), NULL: codec->elements; and, where a step has a sum, spr_codec_next(). */
    size_t (*vector)(const spr_codec *codec);
    bool (*next)(spr_codec *codec, float *gradient, struct spr_codec_step *step);
    /* spr_codec_take_back(), where lists are sent. */
    void (*take_back)(spr_codec *codec, const float *result);
    /* Bring the residual up to date, for whoever looks at it. */
    void (*settle)(spr_codec *codec);
    /* The ratio of new steps: that of the string, the most there may be; 0: there is none. NULL: 0.
     */
    double (*ratio)(const spr_codec *codec);
};

/* Which elements a step sends. */
struct spr_codec_selection {
    const char *name;
    const char *doc;                     /* one sentence, no trailing dot; NULL: the selector's */
    const char *paper;                   /* NULL: the selector's, if there is one */
    const struct spr_selector *selector; /* NULL: all of them */
    const struct spr_opt *options;       /* its own, if they are not those of the selector */
    size_t option_count;
    size_t feedback_options;             /* so many rows of spr_feedback_table follow them */
    const struct spr_value_coder *coder; /* unless the string names one; NULL: none */
    const char *ratio, *feedback, *sums; /* defaults of these options; NULL: as in their tables */
    const struct spr_codec_steps *steps;
};
/* NULL-terminated by name. */
extern const struct spr_codec_selection spr_codec_selections[];
const char *spr_codec_selection_doc(const struct spr_codec_selection *s);
const char *spr_codec_selection_paper(const struct spr_codec_selection *s); /* or NULL */
/* The options: fields of spr_codec.options; no strings. Returns their number. */
size_t spr_codec_selection_options(const struct spr_codec_selection *s,
                                   struct spr_opt options[SPR_CODEC_OPTIONS_MAX]);
/* How many of them are its own: the first ones. */
size_t spr_codec_selection_own_options(const struct spr_codec_selection *s);

enum spr_codec_phase {
    SPR_CODEC_IDLE,
    SPR_CODEC_RUNNING,  /* between begin and commit or abort */
    SPR_CODEC_ABSORBED, /* aborted: the gradient is in the residual, the list is kept for a retry */
};

struct spr_codec_parameter {
    uint64_t id;
    uint64_t elements;
    uint64_t offset; /* of its residual, and in the vector */
    size_t rows, columns;
    size_t place; /* in the layout */
};

/* What sums have lost, by slot: codec_sums.c. */
enum spr_codec_lost_state {
    SPR_LOST_LISTED, /* `value` is to be added to the residual */
    SPR_LOST_SHOWN,  /* it was; `value` is what was there before */
    SPR_LOST_ADDED,  /* it was, and the next step has begun; `value` is how much */
};
struct spr_codec_lost {
    struct spr_blocks blocks; /* of `window` */
    struct spr_codec_window {
        uint32_t owner, window;
    } * window;      /* all positions of these, one after the other; NULL: */
    uint32_t *index; /* these positions */
    float *value;
    size_t windows, window_room;
    size_t count, room;
    enum spr_codec_lost_state state;
};

struct spr_codec {
    const struct spr_codec_selection *selection;
    const struct spr_value_coder *coder;
    enum spr_vtype vtype;
    unsigned traits;                                            /* of the coder, SPR_VALUES_... */
    _Alignas(16) unsigned char options[SPR_CODEC_OPTION_BYTES]; /* of the selection */
    _Alignas(16) unsigned char coder_options[SPR_VALUE_OPTION_BYTES]; /* ... coder->options */
    enum spr_vtype sum_vtype;                                         /* SPR_V_FP32: exact */
    const struct spr_value_coder *sum_coder;
    _Alignas(16) unsigned char sum_options[SPR_VALUE_OPTION_BYTES]; /* ... sum_coder->options */
    char spec[SPR_CODEC_SPEC_BYTES];                                /* canonical */
    uint64_t hash;                                                  /* of spec and layout */
    enum spr_codec_phase phase;
    struct spr_codec_parameter *parameters; /* ascending by id */
    struct spr_lowrank_tensor *tensors;     /* in the same order */
    size_t parameter_count;
    size_t elements;
    float *residual;    /* pages */
    bool residual_zero; /* all of it is +0 */
    float *velocity;    /* pages; NULL: the codec has none */
    struct spr_select_state select;
    struct spr_adapt adapt; /* no parts: each step has the ratio that it was asked for */
    struct spr_lowrank lowrank;
    bool factors;    /* ... the basis is known: the second round */
    void *workspace; /* pages; layout is the selection's own */
    size_t workspace_bytes;
    struct spr_coding coding; /* coded values: scratch */
    uint32_t *offsets;        /* ... first entry of each block of a list */
    void *scratch;            /* pages: all of that */
    size_t scratch_bytes;
    struct spr_workers *workers; /* of the step that begins; else NULL */
    void *sliced;                /* pages: the selector's workspace for their slices */
    size_t sliced_bytes;
    uint64_t steps;       /* committed and not revoked: the number of the next one */
    double ratio;         /* that was set for new steps; 0: as in the string */
    double target;        /* density of the step that was begun last; 0: none is asked for */
    double rate;          /* the learning rate that was set; 0: none */
    double residual_rate; /* the one that the residual is for; 0: unknown */
    struct {
        struct spr_codec_place place;
        uint64_t step, seed;
        double rate; /* learning rate that it is for */
        bool exact;  /* spr_codec_sums_first() */
    } sent_as[2];    /* by slot */
    int slot;        /* 0 or 1: of the step that was begun last, or is to be retried */
    int committed;   /* of the step that was committed last; -1: none that could be revoked */
    struct spr_codec_lost lost[2]; /* by slot */
    bool beneath; /* the step of `slot` was revoked when a later one was in the residual */
    struct spr_codec_keeper keeper;
    struct spr_codec_history history;
    struct spr_quality quality;
};

/* A name that stands for a stage of a codec string; i = 0, 1, ...: NULL when there are no more. */
struct spr_codec_alias {
    const char *name, *stage, *doc;
};
const struct spr_codec_alias *spr_codec_alias_at(size_t i);

/* Parse into selection, rounding, options and spec. INVALID: text with the position in *error. */
spr_status spr_codec_parse(const char *spec, spr_codec *codec, struct spr_error *error);

static inline const struct spr_feedback_options *spr_codec_feedback(const spr_codec *codec)
{
    return (const void *)(codec->options + SPR_SELECT_OPTION_BYTES);
}

/* The rule of error feedback, for the step that was begun last. gradient NULL: nothing is added. */
static inline struct spr_feedback spr_codec_feedback_of(const spr_codec *codec,
                                                        const float *gradient)
{
    struct spr_feedback f = {
        .residual = codec->residual,
        .velocity = codec->velocity,
        .gradient = gradient,
    };

    spr_feedback_init(&f, spr_codec_feedback(codec),
                      codec->sent_as[codec->slot].place.blocks.ranks);
    return f;
}

/* The type of values that a coder makes: its own, or coded ones. */
enum spr_vtype spr_codec_vtype_of(const struct spr_value_coder *coder);

/* ---- codec_sums.c ---- */

/* How sums are sent on, when all else is known. */
void spr_codec_sums_choose(spr_codec *codec);

/* What was not sent on has lost nothing, of the step of codec->slot. */
void spr_codec_sums_take_back(spr_codec *codec, const float *result);
/* Room for the step of the slot, which is to begin there; none is listed yet. NOMEM. */
spr_status spr_codec_sums_open(spr_codec *codec, int slot, const struct spr_codec_place *place);
void spr_codec_sums_close(spr_codec *codec, int slot);
/* What the step that was committed last has lost goes into the residual: somebody looks at it, or
 * the next step begins; comes out again, as that step is revoked; or is forgotten. */
void spr_codec_sums_show(spr_codec *codec);
void spr_codec_sums_add(spr_codec *codec);
void spr_codec_sums_revoke(spr_codec *codec);
void spr_codec_sums_forget(spr_codec *codec);

/* The residual is its owner's to look at, and what brings it up to date changes no step. */
static inline void spr_codec_settle(const spr_codec *codec)
{
    if (codec->phase == SPR_CODEC_RUNNING)
        return;
    spr_codec_sums_show((spr_codec *)codec);
    if (codec->selection->steps->settle)
        codec->selection->steps->settle((spr_codec *)codec);
}

static inline bool spr_codec_has_velocity(const spr_codec *codec)
{
    return spr_feedback_has_velocity((enum spr_feedback_rule)spr_codec_feedback(codec)->rule);
}

/* Are the values of this step's list coded by whoever sums them, not by this rank? */
static inline bool spr_codec_codes_later(const spr_codec *codec, int slot)
{
    return codec->vtype == SPR_V_CODED && codec->sent_as[slot].place.sums_first;
}

static inline bool spr_codec_is_lossless(const spr_codec *codec)
{
    return codec->traits & SPR_VALUES_LOSSLESS;
}

/* Indices are sent, unless all ranks know them. */
static inline bool spr_codec_sends_lists(const spr_codec *codec)
{
    const struct spr_selector *s = codec->selection->selector;

    return s && !(s->flags & SPR_SELECT_NO_INDICES);
}

/* Options of "powersgd". */
struct spr_lowrank_options {
    int rank;
};

/* ---- codec_adapt.c ---- */

#define SPR_CODEC_ADAPT_OPTIONS 4
extern const struct spr_opt spr_codec_adapt_table[SPR_CODEC_ADAPT_OPTIONS];

/* After the layout is known; lets it be where ratios do not adapt. NOMEM. */
spr_status spr_codec_adapt_open(spr_codec *codec);
void spr_codec_adapt_close(spr_codec *codec);
/* As spr_select_workspace() and spr_select_run(), of all parts; with several slices it is the usual
 * need, and a part that needs more than codec->sliced_bytes has one. */
size_t spr_codec_adapt_workspace(const spr_codec *codec, double ratio, unsigned slices);
void spr_codec_adapt_run(spr_codec *codec, struct spr_select *all, double ratio);

/* ---- codec_schedule.c ---- */

/* What the string says, the most that may be set; 0: it does not go by a ratio. */
double spr_codec_ratio(const spr_codec *codec);
/* The residual becomes one for this learning rate, where it is known (not 0) and another one. */
void spr_codec_change_rate(spr_codec *codec, double rate);
/* Before a new step begins: the residual becomes one for the learning rate that was set. */
void spr_codec_take_rate(spr_codec *codec);
/* Before the step that was committed last is revoked, and a later one is dropped: for its rate. */
void spr_codec_return_rate(spr_codec *codec);

/* ---- codec_quantise.c ---- */

/* Scratch for coded values; lets it be where there are none. NOMEM. */
spr_status spr_codec_quantise_open(spr_codec *codec);
/* What becomes of the n values of the step in `slot` on their way: index is the list's, NULL: of a
 * dense vector of n elements. All are handed to `take`, in the order in which they are coded:
 * `sent` are those of exact[first..end). Returns the bytes that they take. */
typedef void spr_codec_taker(void *context, size_t first, size_t end, const float *sent);
size_t spr_codec_each_sent(const spr_codec *codec, int slot, const uint32_t *index,
                           const float *exact, size_t n, spr_codec_taker *take, void *context);
/* SET: out = that; ADD: out += it; TAKE: out, from which they came, is left with the rest. out may
 * be exact. */
void spr_codec_quantise(const spr_codec *codec, int slot, const uint32_t *index, const float *exact,
                        size_t n, enum spr_decode how, float *out);

/* What stays in the residual of an accumulated value of which `sent` was sent: nothing of NaN and
 * Inf, which are sent as they are, once, so that the failure shows; all of a finite one that others
 * in its group have made a NaN. */
static inline float spr_codec_rest(float accumulated, float sent)
{
    if (!isfinite(accumulated))
        return 0.0f;
    return isnan(sent) ? accumulated : accumulated - sent;
}

extern const struct spr_codec_steps spr_codec_whole, spr_codec_select, spr_codec_low_rank;

#endif
