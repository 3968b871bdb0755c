/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A simulated job: many communicators in one thread, over transport/sim.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include <sparring/sparring.h>

#include "base/rng.h"
#include "collectives/model.h"
#include "transport/sim/sim.h"

#define WORLD_MAX 64

/* A rank that says what it likes: the raw end of its links. It hears everything and answers
 * nothing. */
struct liar {
    struct world *world;
    struct spr_transport *transport;
    struct spr_link *links[WORLD_MAX];
    struct spr_counters counters;
    uint32_t sequence[WORLD_MAX]; /* of the next frame to each rank */
    struct spr_frame heard[64];   /* the headers that came in first */
    size_t heard_count;
};

struct world {
    struct spr_sim *sim;
    int ranks;
    spr_comm *comms[WORLD_MAX]; /* NULL: the liar's */
    struct liar *liar;          /* or NULL */
    spr_request *requests[WORLD_MAX];
    spr_status results[WORLD_MAX]; /* of the last world_run */
    /* Called by world_shrink when a rank is in a new epoch; NULL: nobody wants to know. */
    void (*entered)(void *ctx, int rank);
    void *entered_ctx;
    uint32_t epochs[WORLD_MAX];
    bool lazy; /* in world_run a rank does nothing any more when its request is done */
    void (*before)(struct world *w, int rank); /* before each progress of a rank; or NULL */
};

/* All links up. Aborts the test on failure. */
void world_create(struct world *w, const struct spr_sim_options *options);
void world_destroy(struct world *w);
/* Ranks with the same number share a host, as far as algorithms know: links stay as they are. */
void world_share_hosts(struct world *w, const int *host);
/* ... and which host in which rack. */
void world_share_racks(struct world *w, const int *host, const int *rack);
/* kbit/s of each rank's link, as far as algorithms know; 0: not known. */
void world_set_rates(struct world *w, const uint32_t *rate);
/* Any ranks on any hosts. */
void world_draw_hosts(struct world *w, struct spr_rng *rng);
/* SPARRING_INDICES of all ranks: SPR_INDICES_... Otherwise positions are packed in bits. */
void world_set_indices(struct world *w, int indices);
/* SPARRING_ZSTD of all ranks, above 0. False: not built in. */
bool world_set_zstd(struct world *w, int level);
/* SPARRING_DETERMINISM of all ranks: SPR_DETERMINISM_... */
void world_set_determinism(struct world *w, int level);
/* What all ranks know of their links. */
void world_set_model(struct world *w, const struct spr_model *model);
/* As world_create(), but the last rank has no communicator: it belongs to the liar. */
void world_create_liar(struct world *w, const struct spr_sim_options *options, struct liar *liar);
/* A header as a correct peer would begin it, with the next sequence number; not sealed. */
struct spr_frame liar_frame(struct liar *liar, int to, enum spr_frame_type type, uint32_t operation,
                            uint32_t step, uint64_t descriptor);
/* Send a frame as it is; f->bytes bytes of data are copied. */
void liar_send(struct liar *liar, int to, const struct spr_frame *f, const void *data);
/* Seal it first, with a right checksum of the data. */
void liar_send_sealed(struct liar *liar, int to, struct spr_frame f, const void *data);
/* Let a millisecond pass `rounds` times and progress everybody. */
void world_settle(struct world *w, int rounds);
/* Progress all ranks until every request posted in w->requests (of ranks that live) is done;
 * results go to w->results (SPR_IN_PROGRESS for killed ranks). False: nothing moves any more before
 * limit_ns of virtual time. */
bool world_run(struct world *w, uint64_t limit_ns);

/* All ranks that live call spr_comm_shrink(), each after `delays_ns[r]` (NULL: at once) of virtual
 * time; statuses[r] is what it returned (SPR_IN_PROGRESS for killed and paused ranks). False:
 * somebody does not come to an end before limit_ns. */
bool world_shrink(struct world *w, const uint64_t *delays_ns, uint64_t patience_ns,
                  uint64_t limit_ns, spr_status *statuses);

#endif
