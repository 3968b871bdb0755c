/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How much of each parameter to send: selection "adaptive". All parameters get the same relative
 * error, |a - s| / |a| of what had accumulated and what is sent, the least that a budget of entries
 * allows; so one whose magnitudes are spread out gets more than one with few large elements, and
 * none starves, as it may when one threshold is set for all (L-GreCo, Markov et al. 2023, has the
 * same aim with measured tables and dynamic programming). With an error that is asked for, no more
 * is sent than it takes.
 *
 * Every `every` steps a sample of each parameter is read: lines of elements at pseudo-random
 * places. It is kept as counts and energies (sums of squares) by
 * magnitude, four bins per power of two below the largest. The energy of what is not sent follows
 * for any number of entries, inside a bin by interpolation; the common error is found by bisection.
 *
 * Training phases (Accordion, Agarwal et al. 2021): where the norm of a parameter's gradient has
 * changed by more than half against its recent mean, or has to be learned anew, the parameter is
 * in a critical phase and adds `ratio` of its elements to the budget, otherwise only `calm`.
 *
 * Pure: no allocation, no knowledge of codecs. Cost: 1.6 KB per parameter; about 10 ns per element
 * of a sample.
 */
#ifndef SPR_COMPRESS_ADAPT_H
#define SPR_COMPRESS_ADAPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compress/select/feedback.h"
#include "compress/select/select.h"

#define SPR_ADAPT_LINE 16u /* elements */
/* Lines of a parameter that are read: one in so many, but from the least on up to the most. */
#define SPR_ADAPT_ONE_IN 16u
#define SPR_ADAPT_LEAST 512u
#define SPR_ADAPT_MOST 2048u
#define SPR_ADAPT_BINS 128u

/* What a user can choose. */
struct spr_adapt_options {
    double ratio; /* of all elements: the most entries, in critical phases */
    double calm;  /* ... in others; not below: as ratio */
    double error; /* 0: the least possible */
    int every;    /* steps */
};

/* What is known of a parameter, the same after a restart. */
struct spr_adapt_memory {
    float ratio;  /* part of its elements that is sent; 0: nothing is known */
    float norm;   /* of its gradients, smoothed */
    float budget; /* ratio of all elements for which that was decided; 0: it was not */
};

struct spr_adapt_part {
    size_t offset, elements;
    struct spr_adapt_memory memory;
    bool critical;
    struct spr_select_state select;
    float count[SPR_ADAPT_BINS]; /* of the sample, the largest first */
    double energy[SPR_ADAPT_BINS];
    double sampled, total; /* elements, energy */
};

struct spr_adapt {
    struct spr_adapt_part *parts; /* ascending, without gaps */
    size_t count;
    double error; /* that was found last */
    bool again;   /* look in the next step, whatever its number */
};

/* Forget all of a part but its size. */
void spr_adapt_reset(struct spr_adapt *a, size_t part);
/* The norms that were learned say nothing any more. */
void spr_adapt_forget_norms(struct spr_adapt *a);
/* Were the ratios of all parts decided for this budget? */
bool spr_adapt_is_for(const struct spr_adapt *a, double ratio);
/* Entries of all parts at most, where each has at least one. */
size_t spr_adapt_most(const struct spr_adapt *a, double ratio);
/* Read samples of the residual as it will be when it has absorbed the gradient, which is not done
 * here; f NULL: of the gradient alone. */
void spr_adapt_look(struct spr_adapt *a, const struct spr_feedback *f, const float *gradient,
                    uint64_t seed, uint64_t step);
/* From that, each memory.ratio. */
void spr_adapt_decide(struct spr_adapt *a, const struct spr_adapt_options *o);
/* Entries of a part; `left` may still be sent of this part and the others behind it, of which
 * `behind` have elements. `otherwise`: the ratio where none is known. */
size_t spr_adapt_entries(const struct spr_adapt_part *p, double otherwise, size_t left,
                         size_t behind);

#endif
