/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the files of exact top-k share: topk.c (phases), sample.c (where to begin), collect.c (the
 * one pass), refine.c (the exact threshold among the candidates), locate.c (counting, where the
 * sample misled).
 *
 * The workspace holds a struct spr_topk, one struct spr_topk_slice per slice, and the arrays that
 * they point to. A slice only writes what is its own, and takes room from the common stores (runs,
 * blocks) by atomic counters.
 */
#ifndef SPR_COMPRESS_SELECT_TOPK_INTERNAL_H
#define SPR_COMPRESS_SELECT_TOPK_INTERNAL_H

#include <stdatomic.h>

#include "compress/kernels/kernels.h"
#include "compress/kernels/select.h"
#include "compress/select/topk.h"

#define SPR_TOPK_NO_LIMIT (SPR_NAN_KEY + 1)  /* above every key */
#define SPR_TOPK_CHUNK SPR_SELECT_SLICE_UNIT /* elements per kernel call: all arrays stay in L1 */
#define SPR_TOPK_SMALL 8192u                 /* up to here every element is a candidate */
#define SPR_TOPK_DENSE 48u                   /* more than one in so many: emit densely */
#define SPR_TOPK_LINE 16u                    /* floats per cache line, the unit of sampling */
#define SPR_TOPK_BLOCK 2048u                 /* magnitudes */
#define SPR_TOPK_SAMPLE_SHIFT 17 /* a bin of the sample: 1/64 of an octave, 1.1 to 1.6 % */
#define SPR_TOPK_SAMPLE_BINS ((SPR_NAN_KEY >> SPR_TOPK_SAMPLE_SHIFT) + 1)

/* Candidates in index order. */
struct spr_topk_run {
    uint32_t *index;
    float *value;
    size_t count, room;
    struct spr_topk_run *next;
};

/* Magnitudes inside the bracket; all blocks of a slice but its last are full. */
struct spr_topk_block {
    uint32_t *magnitude;
    uint32_t count;
    uint32_t slice;
};

struct spr_topk_slice {
    size_t begin, end; /* elements */
    struct spr_topk_run *first, *last;
    size_t taken; /* candidates */
    size_t above; /* those with a magnitude >= hi */
    struct spr_topk_block *block;
    uint64_t counts[SPR_COUNT_THRESHOLDS];
    uint64_t at_least_low, at_least_high; /* elements with a magnitude >= low, >= high */
    size_t out, kept, quota;              /* of the result: where, how many; equal to T */
    uint32_t *some_index;                 /* SPR_TOPK_CHUNK and slack */
    float *some_value;
};

enum spr_topk_phase {
    SPR_TOPK_COLLECT,    /* scan: all magnitudes >= lo become candidates */
    SPR_TOPK_UNDO,       /* scan: what was taken goes back */
    SPR_TOPK_COUNT,      /* scan: against thresholds */
    SPR_TOPK_CANDIDATES, /* emit: of the candidates */
    SPR_TOPK_ALL,        /* emit: of all elements */
};

struct spr_topk {
    const struct spr_kernels *kernels;
    struct spr_topk_aim aim;
    const float *x;
    const struct spr_feedback *feedback;                      /* NULL: none */
    void (*leave)(const float *value, size_t n, float *rest); /* of struct spr_select */
    size_t n;
    unsigned slices;
    uint32_t *index; /* the result */
    float *value, *velocity;

    enum spr_topk_phase phase;
    bool absorb; /* the gradient is still to be added */
    bool take;   /* collecting clears what it takes, or leaves its rest; else emitting clears it */
    bool guessing; /* lo is a guess that is good if the count is */
    bool dense;    /* expected density, for the kernels */

    struct spr_topk_slice *slice;
    struct spr_topk_run *run;
    size_t runs;
    struct spr_topk_block *block;
    size_t blocks;
    atomic_size_t runs_used, blocks_used;
    atomic_bool no_room;     /* for candidates */
    size_t room, block_room; /* candidates, and those in the bracket, that surely fit */

    uint32_t *magnitudes; /* of all blocks; free while there are no candidates */
    uint32_t *histogram;  /* of the sample */
    uint32_t *radix;      /* 1 << SPR_TOPK_RADIX_LOG2 */
    uint32_t *sample;     /* magnitudes, line by line; refinement works here when it has T */
    size_t samples, work_room;
    uint32_t sample_max;
    size_t rank, margin; /* of T in the sample, and its uncertainty */
    bool sampled;

    uint32_t lo, hi;    /* bracket: where the sample says T is */
    uint32_t low, high; /* bracket: where T is, for certain */
    uint64_t at_least_low, at_least_high;
    uint32_t thresholds[SPR_COUNT_THRESHOLDS];
    size_t threshold_count;
    bool counted;     /* the sample has nothing more to tell */
    bool under_floor; /* not more than k elements are >= low, which is the floor */

    uint32_t threshold; /* T, when done */
    bool exact;
};

/* k-th largest of m[0..n), all in [lo, hi); *greater = how many are larger. Destroys m. */
uint32_t spr_topk_kth(uint32_t *m, size_t n, size_t k, uint32_t lo, uint32_t hi,
                      uint32_t *histogram, size_t *greater);
/* histogram[] has room for so many bins. */
#define SPR_TOPK_RADIX_LOG2 11

size_t spr_topk_samples(size_t n);

void spr_topk_sample(struct spr_topk *t);
/* Choose lo and hi. False: it would catch more candidates than there is room for. */
bool spr_topk_bracket(struct spr_topk *t);
/* T of the sample. */
uint32_t spr_topk_sample_threshold(struct spr_topk *t);
/* What to count first. */
void spr_topk_sample_thresholds(struct spr_topk *t);

void spr_topk_collect(struct spr_topk *t, struct spr_topk_slice *s);
void spr_topk_undo(struct spr_topk *t, struct spr_topk_slice *s);
void spr_topk_reset(struct spr_topk *t);

/* T from the candidates, and the place of every slice in the result. False: T is not inside the
 * bracket, or too much else is. */
bool spr_topk_refine(struct spr_topk *t, size_t taken, size_t above);
void spr_topk_emit_candidates(struct spr_topk *t, struct spr_topk_slice *s);
/* m entries, of all that the slice has, go to the result. */
size_t spr_topk_put(struct spr_topk *t, const struct spr_topk_slice *s, size_t done,
                    const uint32_t *index, const float *value, size_t m, size_t *quota,
                    uint32_t threshold, float *back);

/* What has been learned: `count` elements of each slice are >= threshold. */
void spr_topk_learn(struct spr_topk *t, uint32_t threshold, unsigned which);
void spr_topk_count_slice(struct spr_topk *t, struct spr_topk_slice *s);
bool spr_topk_locate(struct spr_topk *t);
void spr_topk_emit_all(struct spr_topk *t, struct spr_topk_slice *s);

#endif
