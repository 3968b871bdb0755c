/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse allreduce: the exact sum of (index, value) lists, without any loss.
 */
#ifndef SPARRING_SPARSE_H
#define SPARRING_SPARSE_H

#include <sparring/dense.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A list of non-zeros of a vector; indices sorted, unique, below the vector's element count. */
typedef struct spr_sparse {
    uint32_t *index; /* count indices */
    float *value;    /* count values */
    size_t count;    /* entries used */
    size_t capacity; /* entries that fit (results only) */
} spr_sparse;

/*
 * Sum over ranks of sparse vectors with `elements` positions (at most 2^32).
 *
 * send: this rank's list (read only; may be empty; each rank its own count, below 2^32).
 * dense: NULL, or `elements` floats that receive the whole result (zeros included).
 * list: NULL, or a list whose arrays hold `capacity` entries and which receives the union, sorted;
 *       entries that cancel to exactly zero are kept. TOO_SMALL when the union does not fit (count
 *       is then the number needed; the collective was done, and dense, if given, is complete).
 * op: SPR_SUM or SPR_AVG.
 *
 * Values are added in rank order (canonical): the bits depend on nothing but the inputs and the
 * number of ranks, and equal the canonical dense allreduce of the same vectors (but for the sign of
 * zero where all entries are -0: the sum starts from +0). The algorithms "doubling", "ring" and
 * "hosts", which have to be asked for or are taken by a model (tune.h), add in an order of their
 * own, the same on all ranks; "dense" in that of the dense allreduce that it is, and makes no list.
 * With SPARRING_DETERMINISM=off all add what comes as it comes, with the same bits on all ranks.
 * The lists, *send included, must stay valid and untouched while the request runs. Errors: as in
 * dense.h; INVALID for unsorted, repeated or out-of-range indices.
 */
spr_status spr_isparse_allreduce(spr_comm *comm, const spr_sparse *send, size_t elements,
                                 float *dense, spr_sparse *list, spr_op op,
                                 const spr_call_options *options, spr_request **request);
spr_status spr_sparse_allreduce(spr_comm *comm, const spr_sparse *send, size_t elements,
                                float *dense, spr_sparse *list, spr_op op,
                                const spr_call_options *options);

#ifdef __cplusplus
}
#endif
#endif
