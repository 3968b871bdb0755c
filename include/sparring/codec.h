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
 * a value coder 10 % and 68 %; dense codecs: two more floats per element; powersgd: of a matrix
 * (2 rows + 5 columns) times rank floats, of a vector two per element). The codec belongs to one
 * thread at a time and to at most one running request. Errors: INVALID (spr_last_error(NULL) names
 * the position in the string), NOMEM.
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
 * it does not fit (buffer may be NULL to ask). load: parameters that the bytes do not name start at
 * zero; parameters unknown to the layout are ignored; a size that differs is MISMATCH, damaged
 * bytes are CORRUPT, those of another version UNSUPPORTED, and none of these changes the state.
 * Both: INVALID while a request with the codec is running.
 */
spr_status spr_codec_save(const spr_codec *codec, void *buffer, size_t *bytes);
spr_status spr_codec_load(spr_codec *codec, const void *buffer, size_t bytes);

/*
 * gradient: `elements` floats, in: this rank's gradient, out: the sum or average over ranks of what
 * each rank's codec selected. residual' = residual + gradient - sent; with feedback=decay, momentum
 * or nesterov (dgc) by their rule, which may need the optimizer to have no momentum of its own.
 * When the request fails, what was to be sent goes back into the residual, exact to the bit, and
 * the gradient is absorbed there (the buffer's contents are then undefined): a retry of the same
 * call sends the same bits and does not read the gradient again; after spr_codec_drop the step is
 * dropped and its gradient stays in the residual. op: SPR_SUM or SPR_AVG.
 *
 * Success is provisional until the next step of this codec succeeds: spr_comm_shrink() takes a step
 * back that not all ranks have completed, as if it had failed here, too. When the next step had
 * begun, its gradient stays in the residual, and the next call retries the one before.
 */
spr_status spr_icompressed_allreduce(spr_comm *comm, spr_codec *codec, float *gradient, spr_op op,
                                     const spr_call_options *options, spr_request **request);
spr_status spr_compressed_allreduce(spr_comm *comm, spr_codec *codec, float *gradient, spr_op op,
                                    const spr_call_options *options);
/* After a failure: do not retry the failed step; the next call is a new step. */
void spr_codec_drop(spr_codec *codec);

#ifdef __cplusplus
}
#endif
#endif
