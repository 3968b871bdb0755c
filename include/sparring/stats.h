/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Statistics: a snapshot of this rank's counters.
 */
#ifndef SPARRING_STATS_H
#define SPARRING_STATS_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All counters since spr_comm_create; bytes include frame headers. */
typedef struct spr_stats {
    size_t struct_size;      /* set by the caller to sizeof(spr_stats) */
    uint64_t sent_bytes;     /* handed to links, headers included */
    uint64_t received_bytes; /* taken from links, headers included */
    uint64_t sent_frames, received_frames;
    uint64_t collectives; /* completed with success */
    uint64_t failures;    /* completed with an error */
    uint64_t fallbacks;   /* times that something slower was taken instead */
    uint64_t sleeps;      /* times that progress slept */
    uint64_t zerocopy_sends, copied_sends;
    /* Phases of sparse and compressed collectives: wall-clock nanoseconds of work on this rank. */
    uint64_t select_ns, encode_ns, merge_ns, decode_ns;
    uint64_t reduce_ns; /* dense reductions */
    /* The two steps of the last sparse collective, which follow each other, and all of it:
     * wall-clock nanoseconds from its post; the first is 0 on a rank that sums nothing for others,
     * and all of this after one that was summed as a dense vector. */
    uint64_t last_reduce_scatter_ns, last_allgather_ns, last_total_ns;
    uint64_t last_union; /* entries in the last sparse result */
    /* RDMA: messages written straight into the receiver's bucket; chains of work requests handed to
     * the device; regions of memory registered with it. */
    uint64_t placed_sends, posted_chains, registrations;
    /* Windows of sparse sums that were dealt out to this rank's threads (SPARRING_WORKERS). */
    uint64_t shared_windows;
} spr_stats;

/* Fill *stats. Errors: INVALID (struct_size), FORKED. Any thread. */
spr_status spr_comm_stats(spr_comm *comm, spr_stats *stats);

/* The transport used to a rank ("shm", "verbs", ...); "self" for this rank. Never NULL. */
const char *spr_comm_transport(const spr_comm *comm, int rank);

/* Name of the i-th algorithm for a collective ("allreduce", "sparse_allreduce", ...); NULL past the
 * end. */
const char *spr_algorithm_name(const char *collective, int i);
/* Not 0: this algorithm of the collective adds in rank order, so that bits depend on nothing but
 * the inputs and the number of ranks, unless SPARRING_DETERMINISM is off. 0: it does not, or not
 * always, or there is none of that name. */
int spr_algorithm_is_canonical(const char *collective, const char *name);

#ifdef __cplusplus
}
#endif
#endif
