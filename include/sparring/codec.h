/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compressed allreduce: a dense gradient in, the average of what the codec kept out, the rest
 * carried over to the next step (error feedback: Seide et al. 2014; Stich et al. 2018, "Sparsified
 * SGD with memory").
 */
#ifndef SPARRING_CODEC_H
#define SPARRING_CODEC_H

#include <sparring/dense.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct spr_codec spr_codec; /* codec and its state (residuals) */

/* One parameter of the gradient vector; state is kept per parameter, keyed by `id`. */
typedef struct spr_layout {
    uint64_t id;          /* stable over runs, unique in the layout */
    const char *name;     /* for messages; may be NULL; copied */
    size_t offset;        /* first element in the vector */
    size_t rows, columns; /* rows * columns elements (a vector has columns == 1) */
} spr_layout;

/*
 * Create a codec from a string such as "topk:ratio=1%+fp16" (`sparring-perf --codec help` lists
 * all) for vectors with the given layout: parameters in ascending order of offset that cover all
 * elements without gaps. Memory: one float of residual per element, with momentum correction (dgc)
 * one of velocity, plus workspace (top-k: 8 % of the residual at a ratio of 1 %, 48 % at 10 %; with
 * a value coder 10 % and 68 %; random: 5 % and 50 %; dense codecs: two more floats per element;
 * powersgd: of a matrix (2 rows + 5 columns) times rank floats, of a vector two per element; eight
 * rows of the widest matrix; adaptive: 1.6 KB per parameter), and from its first step on as much
 * again, at most, where threads help to select (SPARRING_WORKERS; top-k: 8 % at 1 %, 33 % at 10 %),
 * and what is lost of sums that this rank rounds: two floats for each element of these (of lists
 * four), its share of the vector among all ranks, or, of coded vectors, among those of its host.
 * The codec belongs to one thread at a time and to at most one running request. Errors: INVALID
 * (spr_last_error(NULL) names the position in the string), NOMEM.
 */
spr_status spr_codec_create(const char *spec, const spr_layout *layout, size_t parameters,
                            spr_codec **codec);
/* Before or after the communicator that it was used with, but not at the same time. */
void spr_codec_destroy(spr_codec *codec);

/* Number of elements of the layout. */
size_t spr_codec_elements(const spr_codec *codec);
/* The residual, `elements` floats, owned by the codec; valid until the next call on it. */
const float *spr_codec_residual(const spr_codec *codec);

/*
 * State as bytes, keyed by parameter: may be loaded into a codec whose layout orders or groups the
 * parameters differently. save: *bytes is the capacity of `buffer` in, the size out; TOO_SMALL when
 * it does not fit, or `buffer` is NULL, to ask. A failed step is saved as if dropped: its gradient
 * is in the residual, and the first call of a codec that loads it is a new step; so do not repeat
 * the failed one there. load: parameters that the bytes do not name start at zero; parameters
 * unknown to the layout are ignored; a size that differs is MISMATCH, damaged bytes are CORRUPT,
 * those of another version UNSUPPORTED, and none of these changes the state.
 * merge: as load, but parameters that the bytes do not name stay as they are; for a bucket that was
 * several before, whose states are merged one after the other. The number of steps, which is to be
 * the same in all of them, and a threshold are those of the last one; what stays is made worth the
 * same at its learning rate. All: INVALID while a request with the codec is running.
 */
spr_status spr_codec_save(const spr_codec *codec, void *buffer, size_t *bytes);
spr_status spr_codec_load(spr_codec *codec, const void *buffer, size_t bytes);
spr_status spr_codec_merge(spr_codec *codec, const void *buffer, size_t bytes);

/*
 * Forget what was not sent: residual and velocity are zero, and a failed step is dropped. What is
 * the same on all ranks stays: the number of steps, where a low rank goes on, a threshold. For a
 * change of what is learned, and for a newcomer that has loaded another rank's state, whose
 * residual would count twice. INVALID while a request with the codec is running.
 */
spr_status spr_codec_clear(spr_codec *codec);

/*
 * Schedules of the trainer, from the next new step on; a retry sends what it sent before. INVALID
 * while a request with the codec is running.
 *
 * set_ratio: send this part of the elements, at most what the string says (INVALID beyond that, and
 * for codecs that do not go by a ratio), in either direction; a warm-up of the codec goes on from
 * there, and "random" needs the same on all ranks. Saved with the state; where the string of the
 * codec that loads it allows less, its own ratio holds.
 *
 * set_learning_rate: what was not sent yet was computed for the rate of its step, and is applied at
 * a later one; so the residual is multiplied by (old rate / new rate) when a step begins at a new
 * one, and moves the parameters as far as it would have (Zheng, Huang and Kwok 2019,
 * "Communication-efficient distributed blockwise momentum SGD with error-feedback", algorithm 1).
 * Without this call it counts at the rate at which it is sent: too little when rates fall. Velocity
 * stays as it is, as an optimizer's does. A change costs one pass over the residual; it begins a
 * critical phase of "adaptive". Any unit, but always the same; saved with the state. At a rate of 0
 * nothing counts: leave the call out. Errors: INVALID (not in [1e-15, 1e15]).
 */
spr_status spr_codec_set_ratio(spr_codec *codec, double ratio);
spr_status spr_codec_set_learning_rate(spr_codec *codec, double rate);

/*
 * gradient: `elements` floats, in: this rank's gradient, out: the sum or average over ranks of what
 * each rank's codec selected. residual' = residual + gradient - sent; with feedback=decay, momentum
 * or nesterov (dgc) by their rule, which may need the optimizer to have no momentum of its own.
 *
 * Each element is summed by one rank, its owner, which sends the sum on as the value coder makes
 * it, or the one that sums= names, and keeps the rest in its residual: over all ranks, residuals
 * and results are what went in (after Tang et al. 2019, "DoubleSqueeze"). Lists so short that each
 * rank gets and sums all of them are rounded once. Sums stay fp32 with sums=exact, without
 * feedback, with "random", and where values are rounded at random and sums= names nothing else.
 * union=bounded: an owner sends on only the largest sums, as many as a rank has sent on average,
 * and what was put into the others comes back (Li and Hoefler 2022, Ok-Topk). union=hosts: a host
 * of several ranks sends on only the largest of their sums, as many as one of them has on average,
 * and the rest stays in the residual of the rank that has summed it.
 *
 * When the request fails, what was to be sent goes back into the residual, exact to the bit,
 * and the gradient is absorbed there (the buffer's contents are then undefined): a retry of the
 * same call sends the same bits and does not read the gradient again; after spr_codec_drop the step
 * is dropped and its gradient stays in the residual. op: SPR_SUM or SPR_AVG.
 *
 * Success is provisional until the next step of this codec succeeds: spr_comm_shrink() takes a step
 * back that not all ranks have completed, as if it had failed here, too. When the next step had
 * begun, its gradient stays in the residual, and the next call retries the one before.
 *
 * "random" and "powersgd" need as many successful steps on all ranks; otherwise the call fails with
 * MISMATCH on all of them. spr_codec_load() of another rank's state and then spr_codec_clear() make
 * a newcomer's equal.
 */
spr_status spr_icompressed_allreduce(spr_comm *comm, spr_codec *codec, float *gradient, spr_op op,
                                     const spr_call_options *options, spr_request **request);
spr_status spr_compressed_allreduce(spr_comm *comm, spr_codec *codec, float *gradient, spr_op op,
                                    const spr_call_options *options);
/* After a failure: do not retry the failed step; the next call is a new step. */
void spr_codec_drop(spr_codec *codec);

/*
 * Quality: what compression makes of a gradient, on this rank. Every hundredth step is measured,
 * the first one too, unless spr_codec_watch() says otherwise: against the gradient g as it was
 * passed, the accumulated vector a (residual + gradient, or by the rule of the feedback), and s,
 * what this rank sends of it. Norms are L2 norms, over finite elements. Where the ranks of a host
 * sum vectors before they are coded (the algorithm "hosts"), s is what this rank would have sent.
 */
typedef struct spr_codec_quality {
    size_t struct_size; /* set by the caller to sizeof(spr_codec_quality) */
    /* The parameter as in the layout; of all of them NULL, 0, elements and 1. name: the codec's. */
    const char *name;
    uint64_t id;
    size_t rows, columns;
    /* All steps; a retry is none. */
    uint64_t steps;
    /* Time to begin them, of all parameters: feedback, selection and its rounding. Dense vectors
     * are coded later, chunk by chunk, as they are sent; so are second factors. */
    uint64_t encode_ns;
    /* The last step that was measured; all 0 before there is one. */
    uint64_t samples;          /* steps measured so far */
    uint64_t step;             /* its number, from 0 */
    uint64_t time_ns;          /* since 1970 */
    uint64_t not_finite;       /* elements of the gradient that are NaN or infinite */
    double density;            /* part of the elements that was sent (powersgd: entries of both
                                * factors); sparsity is 1 - density */
    double target_density;     /* the ratio of that step, by string, spr_codec_set_ratio() and
                                * warm-up, or what "adaptive" chose for the parameter; 0: none */
    double bits;               /* sent per element: values, and positions as they go over TCP by
                                * default, packed, 16 bits each or as a bitmap, what is the least;
                                * without headers */
    double ratio;              /* bits / 32, bytes_out / bytes_in */
    uint64_t bytes_in;         /* of the gradient as fp32 */
    uint64_t bytes_out;        /* of what was sent of it, as `bits` counts */
    double relative_error;     /* |a - s| / |a|; 0: a is zero */
    double cosine;             /* of the angle between g and s; 0: one of them is zero */
    double gradient_norm;      /* |g| */
    double residual_norm;      /* |a - s|, which stays, unless there is no feedback */
    double variance_inflation; /* |s|^2 / |a|^2: unbiased codecs have 1 + omega in the mean */
    unsigned alerts;           /* SPR_ALERT_...: that hold now */
} spr_codec_quality;

enum {
    SPR_ALERT_RESIDUAL = 1, /* the residual has grown beyond the limit */
    SPR_ALERT_COSINE = 2,   /* the smoothed cosine has fallen below the floor */
};

/* parameter: its place in the layout, or SPR_ALL_PARAMETERS. Errors: INVALID (struct_size, no such
 * parameter). */
#define SPR_ALL_PARAMETERS SIZE_MAX
spr_status spr_codec_measured(const spr_codec *codec, size_t parameter, spr_codec_quality *quality);
/*
 * Measure every so many steps; 0: none. A measurement reads two vectors of the length of the
 * gradient. When it finds that of a parameter
 *   - the residual's norm exceeds residual_limit times the largest norm of its gradients so far, or
 *   - the mean cosine of about the last 16 samples is below cosine_floor, by more than chance (1 /
 *     the root of the elements),
 * a warning names it, once until all is well again (below half the limit, above the floor). A limit
 * of 0 and a floor of -1: no warning. A new codec has (100, 1e4, -0.05). Errors: INVALID (a limit
 * that is negative, a floor outside of [-1, 1]).
 */
spr_status spr_codec_watch(spr_codec *codec, unsigned every, double residual_limit,
                           double cosine_floor);

#ifdef __cplusplus
}
#endif
#endif
