/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Error feedback around any selector: how a gradient enters the residual, and what leaves it.
 *
 *   on         v = v + c g                      Stich et al. 2018, "Sparsified SGD with memory"
 *   decay      v = d v + c g                    Chen et al. 2020, "ScaleCom"; d < 1 forgets old
 *                                               errors
 *   momentum   u = m u + c g;  v = v + u        Lin et al. 2018, "Deep Gradient Compression" (DGC),
 *                                               algorithm 4: momentum correction
 *   nesterov   u = m (u + c g);                 the same, after Nesterov
 *              v = (v + u) + c g
 *
 * v is the residual, u the velocity. Products are rounded before they are added. What is selected
 * is zero in v afterwards (or what the caller leaves there) and, with a velocity, in u as well
 * (momentum factor masking, section 3.2, equation 8). A rank takes away what it sent itself, never
 * the mean: sent + residual = input, for every element of every rank, to the bit.
 *
 * c clips the gradient of this rank to a norm of clip / sqrt(ranks) (local gradient clipping,
 * section 3.2): c = min(1, clip / sqrt(ranks) / |g|), at the price of one more pass over g.
 */
#ifndef SPR_COMPRESS_SELECT_FEEDBACK_H
#define SPR_COMPRESS_SELECT_FEEDBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/opt.h"

enum spr_feedback_rule {
    SPR_FEEDBACK_PLAIN,
    SPR_FEEDBACK_DECAY,
    SPR_FEEDBACK_MOMENTUM,
    SPR_FEEDBACK_NESTEROV,
    SPR_FEEDBACK_OFF, /* there is no residual: for users of the options, not for spr_feedback */
};

/* The arrays and the rule of one step. */
struct spr_feedback {
    enum spr_feedback_rule rule;
    bool masking;          /* clear the velocity, too, where something is taken */
    float *residual;       /* v */
    float *velocity;       /* u; NULL unless the rule has one */
    const float *gradient; /* g; NULL: nothing is added, v and u do not decay */
    float factor;          /* d, or m; 1 when plain */
    float norm;            /* largest norm of the gradient; 0: not clipped */
    float scale;           /* c, set by spr_select_begin() and spr_select_decide() */
};

/* What becomes of sums that are sent on (compress/codec_sums.c). */
enum spr_feedback_sums {
    SPR_SUMS_ROUNDED, /* as the values were */
    SPR_SUMS_EXACT,
    SPR_SUMS_FP16,
    SPR_SUMS_BF16,
    SPR_SUMS_INT8,
    SPR_SUMS_INT4,
};
enum spr_feedback_union { SPR_UNION_ALL, SPR_UNION_BOUNDED, SPR_UNION_HOSTS };

/* What a user can choose. */
struct spr_feedback_options {
    int rule; /* enum spr_feedback_rule */
    double decay;
    double momentum;
    int sums;     /* enum spr_feedback_sums */
    double bytes; /* part of the gradient's that the ratio follows from; 0: it is given */
    double clip;
    bool masking;
    int warmup; /* steps of an epoch; 0: none */
    int joined; /* enum spr_feedback_union */
};
#define SPR_FEEDBACK_OPTIONS 9
#define SPR_FEEDBACK_WHOLE_OPTIONS 4 /* the first ones: where everything is sent */
#define SPR_FEEDBACK_PART_OPTIONS 8  /* ... where a selector sees a part of the gradient */
extern const struct spr_opt spr_feedback_table[SPR_FEEDBACK_OPTIONS];

/* Fill in everything but the arrays. */
void spr_feedback_init(struct spr_feedback *f, const struct spr_feedback_options *options,
                       unsigned ranks);
bool spr_feedback_has_velocity(enum spr_feedback_rule rule);

/* Is it just v = v + g? */
static inline bool spr_feedback_is_sum(const struct spr_feedback *f)
{
    return f->rule == SPR_FEEDBACK_PLAIN && !(f->scale < 1);
}
/* v (and u) take in the gradient of the elements [at, at + n). */
void spr_feedback_absorb(const struct spr_feedback *f, size_t at, size_t n);
/* What v would be after that, to the bit; nothing changes. */
void spr_feedback_peek(const struct spr_feedback *f, size_t at, size_t n, float *out);
/* Have the cache line of element `at` on its way for that. */
void spr_feedback_prefetch(const struct spr_feedback *f, size_t at);
/* Clear v, and u with masking, at these elements. *velocity (or NULL) takes what u was. */
void spr_feedback_take(const struct spr_feedback *f, const uint32_t *index, size_t count,
                       float *velocity);
/* Undo it, to the bit: for a step that is aborted. velocity NULL: only v. */
void spr_feedback_put_back(const struct spr_feedback *f, const uint32_t *index, const float *value,
                           const float *velocity, size_t count);
/* Forget everything: v and u are zero. */
void spr_feedback_clear(const struct spr_feedback *f, size_t n);

/* The ratio of an epoch (from 0) of training: 25 %, 6.25 %, 1.5625 %, 0.4 %, 0.1 %, never below
 * `ratio`, which comes after them (DGC, section 3.3: warm-up). */
double spr_feedback_warmup(uint64_t epoch, double ratio);

#endif
