/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the files of the simulated transport share: sim.c (the world, its clock and its events),
 * link.c (the link operations), wire.c (how long a frame takes), faults.c and choice.c.
 *
 * Memory here is the simulator's own, not counted by base/mem.h: what is counted is what the
 * library under test holds.
 */
#ifndef SPR_TRANSPORT_SIM_PRIVATE_H
#define SPR_TRANSPORT_SIM_PRIVATE_H

#include "base/list.h"
#include "base/rng.h"
#include "transport/sim/sim.h"

#define SPR_SIM_NEVER UINT64_MAX

enum spr_sim_kind {
    SPR_SIM_HEADER,
    SPR_SIM_PAYLOAD,
    SPR_SIM_SENT,
    SPR_SIM_ROOM,   /* the peer has given back a slot */
    SPR_SIM_CLOSED, /* the peer has cut the link, behind its last frame */
    SPR_SIM_DIED,   /* the peer is dead */
    SPR_SIM_BROKEN  /* the link is lost */
};

/* Something that happens to a rank at a time. */
struct spr_sim_event {
    uint64_t ns, order; /* order breaks ties */
    enum spr_sim_kind kind;
    int peer;
    struct spr_tx *tx; /* SENT */
    struct spr_frame header;
    char *data;     /* PAYLOAD: own copy, or NULL; HEADER: what is PLACED, or NULL */
    uint64_t place; /* ... where */
    bool truncated; /* HEADER, PAYLOAD: the link ends within it, after `whole` bytes */
    uint32_t whole; /* bytes of the payload that come, if it is truncated or PLACED */
    bool slotted;   /* PAYLOAD: it takes a slot; then, and for ROOM: of kind `slot` */
    int slot;
    struct spr_list node; /* on spr_sim_rank.borrowed while the layer above keeps the data, or on
                             spr_sim_link.choices */
};

/* From this rank to `link.peer`, and what the peer has sent to this rank. */
struct spr_sim_link {
    struct spr_link link;
    uint64_t last_arrival_ns; /* at the peer: keeps the link in order */
    uint64_t frames;          /* sent so far */
    uint64_t silent_ns;       /* frames that leave from then on vanish */
    uint64_t delay_from_ns, delay_until_ns, delay_ns;
    uint64_t nth[SPR_SIM_FRAME_FAULTS]; /* this frame is damaged; NEVER: none */
    uint64_t replay_lag;
    struct spr_sim_event *replay; /* to be sent again before frame nth[REPLAY] + lag + 1 */
    struct spr_rx rx;             /* where the payload goes whose header has arrived */
    struct spr_tx *first, **last; /* handed over, and without a slot */
    int taken[2];                 /* slots of the peer */
    size_t unsent;                /* those, and SENT events pending here */
    struct spr_list choices[3];   /* events to choose from, see choice.c */
    struct spr_list node;         /* on spr_sim_rank.connecting */
    bool killed, reported;
    bool vanished; /* frames have */
};

/* An event with its key, so that a heap is ordered without a look at the events. */
struct spr_sim_due {
    uint64_t ns, order;
    struct spr_sim_event *event;
};

/* Registered memory. */
struct spr_sim_range {
    char *memory;
    size_t bytes;
};

/* A port takes frames in, one right behind the other. */
struct spr_sim_busy {
    uint64_t begin_ns, end_ns;
};

/* Takes frames in, whatever the order in which they are told of. */
struct spr_sim_inlet {
    struct spr_sim_busy *busy; /* not over yet: sorted, apart */
    size_t count, capacity;
};

struct spr_sim_port {
    uint64_t out_free_ns; /* sends until then */
    struct spr_sim_inlet in;
};

/* To and from all other racks. */
struct spr_sim_rack {
    double bandwidth;
    struct spr_sim_inlet up, down;
    struct spr_sim_traffic traffic;
};

/* When a frame has left its rank; when its first bytes and its last are there. */
struct spr_sim_flight {
    uint64_t left_ns, first_ns, arrival_ns;
};

struct spr_sim_rank {
    struct spr_transport transport;
    struct spr_sim *sim;
    int rank;
    bool opened, closed;
    uint64_t kill_ns, pause_from_ns, pause_until_ns;
    uint64_t slow_from_ns;
    double bandwidth, slow_out, slow_in;
    double late_s; /* "sent" comes up to this late */
    int host;
    struct spr_sim_port local; /* to and from the other ranks of the host */
    struct spr_sim_traffic traffic;
    struct spr_sim_link **links;          /* [ranks]; NULL: see spr_sim_link_to() */
    struct spr_list connecting, borrowed; /* links, events */
    struct spr_sim_range *ranges;
    size_t range_count;
    struct spr_sim_due *heap; /* by (ns, order) */
    size_t count, capacity;
};

struct spr_sim {
    struct spr_sim_options options;
    struct spr_transport_ops ops; /* spr_sim_ops, as the options say */
    struct spr_virtual_clock virtual_clock;
    struct spr_clock clock;
    struct spr_rng rng;
    uint64_t order;
    struct spr_sim_rank *ranks;
    uint64_t
        *first_ns; /* of each rank's events, side by side to look through; NEVER: it has none */
    int hosts, rack_count;                 /* no racks: there is one */
    struct spr_sim_port *ports;            /* [hosts] */
    struct spr_sim_traffic *hosts_traffic; /* [hosts] */
    struct spr_sim_rack *racks;            /* [rack_count] */
};

extern const struct spr_transport_ops spr_sim_ops;

static inline uint64_t spr_sim_now_ns(const struct spr_sim *sim) { return sim->virtual_clock.ns; }

static inline bool spr_sim_killed(const struct spr_sim_rank *r)
{
    return spr_sim_now_ns(r->sim) >= r->kill_ns;
}

/* Tests and predictions only, so without memory the program ends. */
void *spr_sim_alloc(size_t bytes); /* zeroed */
/* The link to a peer, made when it is first asked for. */
struct spr_sim_link *spr_sim_link_to(struct spr_sim_rank *r, int peer);
struct spr_sim_event *spr_sim_event_new(struct spr_sim_rank *r, enum spr_sim_kind kind, uint64_t ns,
                                        int peer);
void spr_sim_event_free(struct spr_sim_event *e);
/* Put an event that is in no list and no heap (back) into the rank's heap; take the first. */
void spr_sim_event_push(struct spr_sim_rank *r, struct spr_sim_event *e);
struct spr_sim_event *spr_sim_event_pop(struct spr_sim_rank *r);
/* What was handed over and has not left comes back now, as failed. */
void spr_sim_return_unsent(struct spr_sim_rank *r, struct spr_sim_link *l);

/* Has silence begun on the way from one rank to another? */
bool spr_sim_is_silent(const struct spr_sim *sim, int from, int to, uint64_t at_ns);
/* Bandwidth of the rank's port now, in one direction. */
double spr_sim_bandwidth_out(const struct spr_sim_rank *r);
double spr_sim_bandwidth_in(const struct spr_sim_rank *r);
/* A frame leaves now: when it arrives. Takes its part of the ports and uplinks on the way. */
struct spr_sim_flight spr_sim_fly(struct spr_sim_rank *from, struct spr_sim_rank *to,
                                  struct spr_sim_link *l, uint64_t bytes);
/* Ports and racks, as the options say. */
void spr_sim_wire(struct spr_sim *sim);
void spr_sim_unwire(struct spr_sim *sim);
/* A frame on its way, as its two events; `head` has only the header. */
void spr_sim_damage(struct spr_sim *sim, struct spr_sim_link *l, struct spr_sim_rank *to,
                    struct spr_sim_event *head, struct spr_sim_event *e);

/* Under options.choose, instead of the heap. */
void spr_sim_choice_add(struct spr_sim_rank *r, struct spr_sim_event *e);
void spr_sim_choice_drop(struct spr_sim_rank *r);

#endif
