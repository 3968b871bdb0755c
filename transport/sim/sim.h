/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Simulated transport: the same link operations over a virtual clock, many ranks in one thread. For
 * tests and predictions; not part of libsparring.so.
 *
 * Model: each rank is a host with one port of `bandwidth` in each direction; a frame leaves when
 * the port is free, takes bytes / bandwidth, arrives `latency` (plus up to `jitter`, drawn per
 * frame) later, then waits for the receiver's port. Frames of one link stay in order; links are
 * reordered against each other by jitter. Everything follows from the seed.
 *
 * Usage: create the world, open one transport per rank with spr_sim_open, then alternate between
 * progressing every rank and spr_sim_advance() until nothing is left.
 */
#ifndef SPR_TRANSPORT_SIM_SIM_H
#define SPR_TRANSPORT_SIM_SIM_H

#include "transport/transport.h"

struct spr_sim_options {
    int ranks;
    uint64_t seed;
    double latency_s; /* one way */
    double jitter_s;  /* uniform in [0, jitter) on top */
    double bandwidth; /* bit/s of each port; 0 = infinite */
};

struct spr_sim;

struct spr_sim *spr_sim_create(const struct spr_sim_options *options); /* NULL: no memory */
/* After all transports were closed. */
void spr_sim_destroy(struct spr_sim *sim);
const struct spr_clock *spr_sim_clock(const struct spr_sim *sim);

/* The transport of rank params->rank. params->clock must be spr_sim_clock(). */
spr_status spr_sim_open(struct spr_sim *sim, const struct spr_transport_params *params,
                        struct spr_transport **transport);

/* Move the clock to the next event of a rank that can act. False: nothing is left to happen. */
bool spr_sim_advance(struct spr_sim *sim);
/* Move the clock forward by hand, at most to the next event; for deadlines. */
void spr_sim_sleep(struct spr_sim *sim, uint64_t until_ns);
/* May this rank run now (not killed, not paused)? */
bool spr_sim_runs(const struct spr_sim *sim, int rank);

/* Faults. Times are absolute, on the virtual clock. */
void spr_sim_kill(struct spr_sim *sim, int rank, uint64_t at_ns); /* its links end */
void spr_sim_pause(struct spr_sim *sim, int rank, uint64_t from_ns, uint64_t until_ns);
void spr_sim_slow(struct spr_sim *sim, int rank, double bandwidth); /* of its port from now on */
/* From now on frames between a and b vanish (both directions) and nobody is told. */
void spr_sim_cut(struct spr_sim *sim, int a, int b);
/* The n-th frame (from 0) from `from` to `to` gets one bit flipped, at a place drawn from the seed.
 */
void spr_sim_corrupt(struct spr_sim *sim, int from, int to, uint64_t nth);

/* Bytes sent by a rank so far, headers included. */
uint64_t spr_sim_sent_bytes(const struct spr_sim *sim, int rank);

#endif
