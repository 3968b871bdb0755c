/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selectors: which elements of a vector a step sends. Pure: no allocation, no threads but the
 * caller's, no randomness but counter-based.
 *
 * A call is cut into slices that threads can work on at the same time; the result has the same bits
 * for every number of slices and on every instruction set:
 *
 *     spr_select_begin(&s);
 *     do
 *         spr_select_scan(&s, slice);         for all slices, in any order or at the same time
 *     while (!spr_select_decide(&s));         once, after all of them
 *     spr_select_emit(&s, slice);             for all slices
 *
 * With feedback (compress/select/feedback.h) the same pass adds the gradient to the residual, and
 * what is selected is zero there afterwards, or what leave() says.
 */
#ifndef SPR_COMPRESS_SELECT_SELECT_H
#define SPR_COMPRESS_SELECT_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/opt.h"
#include "base/workers.h"
#include "compress/select/feedback.h"

#define SPR_SELECT_SLACK 16 /* entries that outputs have beyond spr_select_most() */
#define SPR_SELECT_SLICES_MAX 256
#define SPR_SELECT_OPTION_BYTES 64
#define SPR_SELECT_SLICE_UNIT 2048u              /* slices begin at multiples of it */
#define SPR_SELECT_SLICE_WORTH ((size_t)1 << 17) /* elements for which a thread may be woken */

/* What a call leaves for the next one; zero: nothing is known. It is part of a codec's state where
 * the flags of the selector say so, otherwise it affects speed only. */
struct spr_select_state {
    uint32_t threshold_bits; /* magnitude bits of the smallest element that was selected */
    uint32_t age;            /* calls since the threshold was found exactly */
};

enum spr_select_flag {
    SPR_SELECT_NO_INDICES = 1,  /* they are the same on all ranks, and need not be sent */
    SPR_SELECT_EXACT_COUNT = 2, /* always spr_select_most() elements */
    SPR_SELECT_UNBIASED = 4,    /* the mean over seeds is the input, when its option asks for it */
    SPR_SELECT_BLOCKS = 8,      /* whole blocks of neighbours */
    SPR_SELECT_STATEFUL = 16,   /* the result depends on the spr_select_state */
    SPR_SELECT_SEED = 32,       /* the result depends on seed and step */
};

/* One call. The caller fills in what is above the line, and keeps all of it until the end. */
struct spr_select {
    const struct spr_selector *selector;
    const void *options; /* fields of selector->options */
    const float *x;      /* without feedback: where to select */
    /* NULL: none. Selects from the residual after the gradient has been added. */
    struct spr_feedback *feedback;
    size_t n;        /* elements, at most 2^32 - 1 */
    unsigned slices; /* 1..SPR_SELECT_SLICES_MAX */
    uint64_t seed;   /* the same on all ranks */
    uint64_t step;
    struct spr_select_state *state;
    /* Results in ascending index order; room for spr_select_most() + SPR_SELECT_SLACK. */
    uint32_t *index;
    float *value;
    float *velocity; /* with a momentum rule: what momentum factor masking cleared; or NULL */
    void *workspace; /* spr_select_workspace() bytes */
    /* What stays in the residual of n elements that are taken, at most SPR_SELECT_SLICE_UNIT; NULL:
     * nothing, zeros. It is put there while the elements are in the cache, or not at all: see
     * `left`. A function of the values alone, called by several slices at once. */
    void (*leave)(const float *value, size_t n, float *rest);
    /* ---- */
    bool left;    /* leave() was done, for all that is selected */
    size_t count; /* after the last spr_select_decide() */
    int stage;
    bool absorbed;   /* the gradient is in the residual */
    double rms;      /* of what is selected from, for a selector that needs it */
    double *squares; /* of every SPR_SELECT_SLICE_UNIT elements */
    void *scratch;   /* the selector's own part of the workspace */
};

struct spr_selector {
    const char *name;
    const char *doc;   /* one sentence, no trailing dot */
    const char *paper; /* author, year, title */
    unsigned flags;
    const struct spr_opt *options; /* no strings */
    size_t option_count;
    size_t option_bytes; /* at most SPR_SELECT_OPTION_BYTES */
    /* Elements that a call selects at most, of n. */
    size_t (*most)(const void *options, size_t n);
    size_t (*workspace)(const void *options, size_t n, unsigned slices);
    bool (*needs_rms)(const void *options); /* one more pass; or NULL */
    bool (*by_ratio)(const void *options);  /* option "ratio" decides how many; NULL: always */
    void (*begin)(struct spr_select *s);
    void (*scan)(struct spr_select *s, unsigned slice);
    bool (*decide)(struct spr_select *s);
    void (*emit)(struct spr_select *s, unsigned slice);
};

/* NULL-terminated. */
extern const struct spr_selector *const spr_selectors[];
const struct spr_selector *spr_selector_find(const char *name);

size_t spr_select_most(const struct spr_selector *selector, const void *options, size_t n);
size_t spr_select_workspace(const struct spr_selector *selector, const void *options, size_t n,
                            unsigned slices);
void spr_select_begin(struct spr_select *s);
void spr_select_scan(struct spr_select *s, unsigned slice);
/* True: emit comes next, and s->count is known. False: scan again. */
bool spr_select_decide(struct spr_select *s);
void spr_select_emit(struct spr_select *s, unsigned slice);
/* All of it, slices by the caller's workers; NULL: in this thread. */
void spr_select_run(struct spr_select *s, struct spr_workers *workers);

/* k = ceil(ratio * n), at least 1, at most n. */
size_t spr_select_count(double ratio, size_t n);
/* Slices for so many threads: several for each, since the machine has other work, too; one where a
 * thread is not worth waking. */
unsigned spr_select_slices(size_t n, unsigned threads);
/* The elements of a slice: [*begin, *end), which may be none. */
void spr_select_slice(size_t n, unsigned slices, unsigned slice, size_t *begin, size_t *end);
/* Where selection looks. */
static inline const float *spr_select_from(const struct spr_select *s)
{
    return s->feedback ? s->feedback->residual : s->x;
}

#endif
