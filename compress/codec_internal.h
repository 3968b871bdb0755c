/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the codecs share. A codec string is a selection ("topk", "none") and a rounding ("fp16",
 * ...). Each is one const struct; the tables of all of them are in codec_parse.c. A new one is a
 * new file and one line there.
 */
#ifndef SPR_COMPRESS_CODEC_INTERNAL_H
#define SPR_COMPRESS_CODEC_INTERNAL_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/opt.h"
#include "compress/codec.h"

#define SPR_CODEC_OPTION_BYTES 64
#define SPR_CODEC_SPEC_BYTES 256

/* Which elements a step sends. All slots are filled. */
struct spr_codec_selection {
    const char *name;
    const char *doc;               /* one sentence, no trailing dot */
    const struct spr_opt *options; /* fields of spr_codec.options; no strings */
    size_t option_count;
    size_t option_bytes; /* at most SPR_CODEC_OPTION_BYTES */
    /* Bytes of codec->workspace; called when all other fields are set. */
    size_t (*workspace)(const spr_codec *codec);
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
};

/* What values become on the wire. */
struct spr_codec_rounding {
    const char *name;
    const char *doc;
    enum spr_vtype vtype;
    bool lossless;
    /* out[i] = in[i] rounded to vtype and widened again; a finite value stays finite: beyond the
     * largest finite one it becomes that, so that the rest stays in the residual. out may be in. */
    void (*round)(const float *in, float *out, size_t n);
};

enum spr_codec_phase {
    SPR_CODEC_IDLE,
    SPR_CODEC_RUNNING,  /* between begin and commit or abort */
    SPR_CODEC_ABSORBED, /* aborted: the gradient is in the residual, the list is kept for a retry */
};

struct spr_codec_parameter {
    uint64_t id;
    uint64_t elements;
    uint64_t offset; /* of its residual, and in the vector */
};

struct spr_codec {
    const struct spr_codec_selection *selection;
    const struct spr_codec_rounding *rounding;
    _Alignas(16) unsigned char options[SPR_CODEC_OPTION_BYTES]; /* fields of selection->options */
    char spec[SPR_CODEC_SPEC_BYTES];                            /* canonical */
    uint64_t hash;                                              /* of spec and layout */
    enum spr_codec_phase phase;
    struct spr_codec_parameter *parameters; /* ascending by id */
    size_t parameter_count;
    size_t elements;
    float *residual;    /* pages */
    bool residual_zero; /* all of it is +0 */
    void *workspace;    /* pages; layout is the selection's own */
    size_t workspace_bytes;
    int slot;      /* 0 or 1: of the step that was begun last, or is to be retried */
    int committed; /* of the step that was committed last; -1: none that could be revoked */
    bool beneath;  /* the step of `slot` was revoked when a later one was in the residual */
    struct spr_codec_keeper keeper;
};

/* Parse into selection, rounding, options and spec. INVALID: text with the position in *error. */
spr_status spr_codec_parse(const char *spec, spr_codec *codec, struct spr_error *error);

/* What stays in the residual of an accumulated value of which `sent` was sent: nothing of NaN and
 * Inf, which are sent as they are, once, so that the failure shows. */
static inline float spr_codec_rest(float accumulated, float sent)
{
    return isfinite(accumulated) ? accumulated - sent : 0.0f;
}

extern const struct spr_codec_selection spr_codec_none, spr_codec_topk;
extern const struct spr_codec_rounding spr_codec_fp32, spr_codec_fp16, spr_codec_bf16;

#endif
