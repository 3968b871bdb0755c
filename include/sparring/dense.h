/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dense collectives. `count` is in elements of `dtype`. Buffers belong to the caller and must not
 * be touched while the request runs. All ranks pass the same count, dtype, op, root and shift
 * and post in the same order. What all ranks get is bit-identical on all of them.
 *
 * Errors of all: INVALID (argument), NOMEM, and while running MISMATCH (ranks disagree: only this
 * operation fails, on all of them; ranks that agree with the root of a broadcast may have its data
 * already), or RANK_LOST, DEADLINE, REVOKED, PROTO, CORRUPT, LINK,
 * CANCELED, after which the communicator is revoked.
 */
#ifndef SPARRING_DENSE_H
#define SPARRING_DENSE_H

#include <sparring/request.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Common arguments of a collective; NULL means all defaults. */
typedef struct spr_call_options {
    size_t struct_size;    /* sizeof(spr_call_options) */
    const char *algorithm; /* NULL or "auto", or a name from `sparring-perf --algo help` */
    const char *name;      /* e.g. "layer3.weight", equal on all ranks (else MISMATCH); copied */
    double timeout_s;      /* 0: the communicator's */
    /* Of a sparse allreduce: no rank's list has more entries; equal on all ranks, which ask alike
     * for a list as a result. With a model (tune.h) "auto" then takes the fastest algorithm.
     * 0: not known. */
    size_t most_entries;
    /* What is more urgent goes first, where several operations are under way: its data pass those
     * of the others that no link has taken yet, and it is computed first. May differ between ranks;
     * changes no result, unless SPARRING_DETERMINISM is "off". 0: as all others. */
    int priority;
} spr_call_options;

#define SPR_CALL_OPTIONS_INIT                                                                      \
    {                                                                                              \
        sizeof(spr_call_options), NULL, NULL, 0.0, 0, 0                                            \
    }

/* recv[i] = op over ranks of send[i]; count elements each. send == recv is allowed (in place). */
spr_status spr_iallreduce(spr_comm *comm, const void *send, void *recv, size_t count,
                          spr_dtype dtype, spr_op op, const spr_call_options *options,
                          spr_request **request);
spr_status spr_allreduce(spr_comm *comm, const void *send, void *recv, size_t count,
                         spr_dtype dtype, spr_op op, const spr_call_options *options);

/* send has size * count elements; rank r gets the reduction of elements [r * count, (r+1) * count).
 * In place: recv == (char *)send + rank * count * element size. */
spr_status spr_ireduce_scatter(spr_comm *comm, const void *send, void *recv, size_t count,
                               spr_dtype dtype, spr_op op, const spr_call_options *options,
                               spr_request **request);
spr_status spr_reduce_scatter(spr_comm *comm, const void *send, void *recv, size_t count,
                              spr_dtype dtype, spr_op op, const spr_call_options *options);

/* send has count elements; recv gets size * count, in rank order.
 * In place: send == (char *)recv + rank * count * element size. */
spr_status spr_iallgather(spr_comm *comm, const void *send, void *recv, size_t count,
                          spr_dtype dtype, const spr_call_options *options, spr_request **request);
spr_status spr_allgather(spr_comm *comm, const void *send, void *recv, size_t count,
                         spr_dtype dtype, const spr_call_options *options);

/* buffer of rank `root` is copied to buffer on all ranks. */
spr_status spr_ibroadcast(spr_comm *comm, void *buffer, size_t count, spr_dtype dtype, int root,
                          const spr_call_options *options, spr_request **request);
spr_status spr_broadcast(spr_comm *comm, void *buffer, size_t count, spr_dtype dtype, int root,
                         const spr_call_options *options);

/* Rank r sends its count elements of send to rank (r + shift) mod size and receives those of rank
 * (r - shift) mod size. `shift` is any int, the same on all ranks; a multiple of size copies a
 * rank's own. send and recv must not overlap: INVALID. */
spr_status spr_isendrecv(spr_comm *comm, const void *send, void *recv, size_t count,
                         spr_dtype dtype, int shift, const spr_call_options *options,
                         spr_request **request);
spr_status spr_sendrecv(spr_comm *comm, const void *send, void *recv, size_t count, spr_dtype dtype,
                        int shift, const spr_call_options *options);

/* Completes on no rank before all ranks called it. */
spr_status spr_ibarrier(spr_comm *comm, const spr_call_options *options, spr_request **request);
spr_status spr_barrier(spr_comm *comm, const spr_call_options *options);

#ifdef __cplusplus
}
#endif
#endif
