/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Simulated transport: the same link operations over a virtual clock, many ranks in one thread. For
 * tests and predictions; not part of libsparring.so.
 *
 * Model: each rank is a host with one port of `bandwidth` in each direction; a frame leaves when
 * the port is free, takes bytes / bandwidth, waits `latency` later for the receiver's port, and
 * arrives up to `jitter` (drawn per frame) after that. Frames of one link stay in order; jitter
 * reorders links against each other. What is PLACED is written when its header arrives. Everything
 * follows from the seed.
 *
 * With `ranks_per_host` the ranks of a host share its port, and frames between them take the host's
 * memory instead, of which each rank has `local_bandwidth` in each direction. With `hosts_per_rack`
 * the hosts of a rack share an uplink to all other racks, hosts * bandwidth / oversubscription in
 * each direction, and a frame between racks takes `rack_latency` longer. A frame passes on as it
 * comes in, from port to uplink to uplink to port, and waits where one is taken.
 *
 * A receiver may have room for few frames of a link (`slots`): then one takes a slot from when it
 * leaves until its payload was taken or, borrowed, released, and word of that has come back; what
 * finds none free waits, and all behind it. So with verbs and, where small payloads take none, with
 * shared memory.
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
    double latency_s;   /* one way */
    double jitter_s;    /* uniform in [0, jitter) on top */
    double bandwidth;   /* bit/s of each port; 0 = infinite */
    double detect_s;    /* a death is seen up to this later than the latency, by each rank apart */
    bool place;         /* ranks write each other's registered memory, as with RDMA */
    bool memory;        /* links are said to be memory of one host: more messages go ahead, and what
                           comes may be lent */
    bool choose;        /* nothing happens but what spr_sim_choose() picks; time stands still */
    int ranks_per_host; /* of neighbours; 0 = 1 */
    double local_latency_s, local_bandwidth; /* inside a host; bandwidth as above */
    int hosts_per_rack;                      /* of neighbours; 0 = there is one rack */
    double oversubscription;                 /* of uplinks; 0 = 1 */
    double rack_latency_s;                   /* one way, on top */
    /* Of each link: of payloads of up to small_bytes, or PLACED ones; of others. 0 = any number. */
    int slots[2];
    size_t small_bytes;
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
/* Nothing is left to happen. */
bool spr_sim_is_quiet(const struct spr_sim *sim);
/* Move the clock forward by hand, at most to the next event; for deadlines. */
void spr_sim_sleep(struct spr_sim *sim, uint64_t until_ns);
bool spr_sim_is_dead(const struct spr_sim *sim, int rank);
/* May this rank run now (not killed, not paused)? */
bool spr_sim_runs(const struct spr_sim *sim, int rank);
/* Has this rank something to do now? It saves the progress of those that have not. */
bool spr_sim_has_work(const struct spr_sim *sim, int rank);
/* The first such rank from `rank` on; -1: none. */
int spr_sim_next_with_work(const struct spr_sim *sim, int rank);

/* Faults. Times are absolute, on the virtual clock. A rank has one of each kind, a way between two
 * ranks too: the last call counts. ------------------------------------------------------------- */

/* Its links end: others see an end of file, some before and some behind what is under way. */
void spr_sim_kill(struct spr_sim *sim, int rank, uint64_t at_ns);
/* The rank runs again, to be taken down in order; what others were told stays. */
void spr_sim_revive(struct spr_sim *sim, int rank);
void spr_sim_pause(struct spr_sim *sim, int rank, uint64_t from_ns, uint64_t until_ns);
/* Its port has another bandwidth from then on; for sending only; for receiving only. */
void spr_sim_slow(struct spr_sim *sim, int rank, double bandwidth, uint64_t from_ns);
void spr_sim_slow_out(struct spr_sim *sim, int rank, double bandwidth, uint64_t from_ns);
void spr_sim_slow_in(struct spr_sim *sim, int rank, double bandwidth, uint64_t from_ns);
/* "Sent" comes up to late_s after the frame has left, not in order. */
void spr_sim_late_sent(struct spr_sim *sim, int rank, double late_s);
/* Frames that leave between the two times take longer. */
void spr_sim_delay(struct spr_sim *sim, int from, int to, double extra_s, uint64_t from_ns,
                   uint64_t until_ns);
/* Frames that leave from then on vanish, and nobody is told. */
void spr_sim_silence(struct spr_sim *sim, int from, int to, uint64_t at_ns);
/* Silence both ways, from now on. */
void spr_sim_cut(struct spr_sim *sim, int a, int b);
/* The link is lost: silence both ways, and the ends that notice see it reset. */
void spr_sim_break(struct spr_sim *sim, int a, int b, uint64_t at_ns, bool a_sees, bool b_sees);

/* The n-th frame (from 0) from one rank to another is damaged. Places are drawn from the seed. */
enum spr_sim_frame_fault {
    SPR_SIM_CORRUPT,  /* one bit is flipped, in header or payload */
    SPR_SIM_TRUNCATE, /* the link ends within it, for both */
    SPR_SIM_REPLAY,   /* it comes a second time, up to four frames later */
    SPR_SIM_FRAME_FAULTS
};
void spr_sim_frame_fault(struct spr_sim *sim, int from, int to, enum spr_sim_frame_fault fault,
                         uint64_t nth);
/* The first of these. */
void spr_sim_corrupt(struct spr_sim *sim, int from, int to, uint64_t nth);

/* Frames sent from one rank to another so far. */
uint64_t spr_sim_sent_frames(const struct spr_sim *sim, int from, int to);
/* What a rank has exchanged with others so far, a host with other hosts, a rack with other racks;
 * headers included. */
enum spr_sim_level { SPR_SIM_RANKS, SPR_SIM_HOSTS, SPR_SIM_RACKS, SPR_SIM_LEVELS };
struct spr_sim_traffic {
    uint64_t sent_frames, sent_bytes;
    uint64_t received_bytes; /* what was lost on the way is not among them */
};
/* How many of these there are; where all hosts are in one rack, no racks. */
int spr_sim_count(const struct spr_sim *sim, enum spr_sim_level level);
struct spr_sim_traffic spr_sim_traffic(const struct spr_sim *sim, enum spr_sim_level level, int i);

/* Choosing by hand what happens next, for exhaustive search -------------------------------------
 */

enum spr_sim_what {
    SPR_SIM_CHOICE_FRAME, /* a frame arrives, or the end of the link behind the last one */
    SPR_SIM_CHOICE_SENT,  /* a frame has left */
    SPR_SIM_CHOICE_LOSS   /* news of a loss, which may overtake frames */
};
/* The next event of its kind on one way. */
struct spr_sim_choice {
    int rank, peer; /* it happens to `rank`, on its link to `peer` */
    enum spr_sim_what what;
};
/* Fills in at most `most`; returns how many there are. Always in the same order. */
size_t spr_sim_choices(const struct spr_sim *sim, struct spr_sim_choice *choices, size_t most);
/* It happens in the rank's next progress. */
void spr_sim_choose(struct spr_sim *sim, const struct spr_sim_choice *choice);

#endif
