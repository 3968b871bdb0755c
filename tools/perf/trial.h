/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A trial: one collective at one size with one algorithm, which becomes a row. The trials of a
 * group are measured in turn, iteration by iteration, so that they see the same machine.
 */
#ifndef SPR_TOOLS_PERF_TRIAL_H
#define SPR_TOOLS_PERF_TRIAL_H

#include "tools/perf/input.h"
#include "tools/perf/job.h"

enum phase {
    PHASE_SELECT,
    PHASE_ENCODE,
    PHASE_REDUCE_SCATTER,
    PHASE_MERGE,
    PHASE_ALLGATHER,
    PHASE_DECODE,
    PHASE_COUNT
};
extern const char *const phase_names[PHASE_COUNT];

/* What came out; the same on all ranks. NAN = does not apply. */
struct figures {
    int iterations;
    double mean_us, min_us, p50_us, p99_us, max_us;
    double sent_bytes, received_bytes;           /* busiest rank, one iteration */
    double link_sent_bytes, link_received_bytes; /* interfaces of the busiest host; NAN = unknown */
    double cpu_us;                               /* of the rank that needs most, one iteration */
    double cpu_sum_us;                           /* ... of all ranks together */
    double compute_us; /* median: selection, encoding, sums, decoding, of the busiest rank */
    double phase_us[PHASE_COUNT];
    double overlap; /* of the ranks' supports, measured: 0 = disjoint, 1 = equal; with --buckets
                     * of computing and communication, see buckets.h */
    double union_entries; /* of the last result; NAN: it was summed as a dense vector */
    double predicted_us;  /* by the model */
    double tuned_us;      /* measured by --tune */
    const char *taken;    /* the algorithm, where "auto" was asked for one */
    double wrong;         /* elements, over all ranks; NAN = not checked */
    double relerr;
};

/* What a check finds on this rank. */
struct tally {
    int64_t wrong;
    double error2, reference2; /* sums of squares */
    bool same;                 /* ... bits on all ranks */
};

struct trial;

struct trial_ops {
    /* Make the input of the next iteration; not timed. Collective. */
    bool (*prepare)(struct trial *trial);
    spr_status (*run)(struct trial *trial);
    /* Put rubbish where the result will be, run once more, compare. */
    bool (*check)(struct trial *trial, struct tally *tally);
    void (*close)(struct trial *trial);
};

/* Dense vectors, shared by the trials of a group. */
struct vectors {
    void *send, *recv;
};

struct trial {
    const struct trial_ops *ops;
    struct job *job;
    enum kind kind;
    const char *algorithm;
    spr_call_options call;
    spr_dtype dtype;
    spr_op op;
    size_t elements; /* of the dense vector */
    size_t count;    /* the argument of the call: elements, or those of one rank */
    double density;  /* NAN = dense, or not known before it is measured */
    struct figures figures;
    /* Dense: */
    struct vectors *vectors;
    size_t send_count, recv_count;
    /* Sparse: */
    struct input *input;
    spr_sparse list, result;
    float *dense;
    size_t entries; /* over all ranks; compressed: of the last iteration, 0: no lists */
    /* Compressed: */
    char codec_spec[512];
    struct bucket *buckets; /* [bucket_count], see buckets.h */
    size_t bucket_count;
    float *gradient;     /* reduced in place; each run overwrites what another trial has left */
    const float *master; /* what it starts from; NULL: the step of a trace */
    /* With --buckets, measured in turn with this one, and no rows of their own: the same buckets
     * one at a time, and their bytes alone. */
    struct trial *in_turn, *wire;
    bool beside;             /* it is one of those */
    double moved_bytes;      /* by the last iteration on this rank: sent or received, the larger */
    double last_us;          /* ... and its time here; 0: there was none */
    const struct trial *row; /* of `wire`: whose bytes */
    float *out, *in;         /* ... and vectors of so many elements for each other rank */
    size_t room, share;      /* that there is memory for; that are exchanged */
};

/* Bytes of the dense vector. */
size_t trial_bytes(const struct trial *trial);
/* Bytes that a rank sends in a dense ring: 2(P-1)/P n v for an allreduce. NAN where there is none.
 */
double trial_ring_bytes(const struct trial *trial);

/* Vectors for dense trials of so many elements; freed by spr_mem_free. */
bool dense_vectors(struct job *job, enum kind kind, size_t elements, struct vectors *vectors);
/* Elements of the dense vector that fit the bytes: a multiple of the ranks where each owns a part.
 */
size_t dense_elements(const struct job *job, enum kind kind, size_t bytes);
void dense_open(struct trial *trial, struct job *job, enum kind kind, const char *algorithm,
                size_t elements, struct vectors *vectors);
bool sparse_open(struct trial *trial, struct job *job, const char *algorithm, struct input *input,
                 double density);
/* `vectors`: master and gradient, which the first trial makes. */
bool compressed_open(struct trial *trial, struct job *job, const char *algorithm,
                     struct input *input, double density, struct vectors *vectors);
/* The buckets of a compressed trial, which they stay with, one at a time. */
void compressed_in_turn(struct trial *trial, const struct trial *row);

/* Measure a group of trials and fill in their figures. */
bool measure(struct job *job, struct trial *trials, size_t count);

#endif
