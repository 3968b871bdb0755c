/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One run: a collective on so many ranks over links of one rate, with one algorithm.
 */
#ifndef SPR_TOOLS_SIM_RUN_H
#define SPR_TOOLS_SIM_RUN_H

#include "tools/sim/options.h"
#include "transport/sim/sim.h"

/* What ranks exchange, hosts with other hosts, or racks with other racks: headers, payloads, and
 * what grants them. */
struct level {
    int count;              /* 0: there are none; else the rest is known, or NAN */
    double sent, most_sent; /* bytes: of all; of the one that sends most */
    double most_received;   /* ... of the one that receives most */
    int sender, receiver;   /* these two */
    double frames, of_one;  /* sent by all; by the one that sends most of them */
};

/* Most over mean; NAN: nothing is sent. */
static inline double level_balance(const struct level *l)
{
    return l->most_sent / (l->sent / l->count);
}

struct figures {
    struct level levels[SPR_SIM_LEVELS];
    double time_us;       /* until the last rank is done */
    double memory;        /* bytes that the library holds at most, per rank */
    double union_density; /* of sparse ones; NAN */
    double wrong;         /* elements; NAN: cannot be told */
    bool same;            /* bits on all ranks */
    double predicted_us;  /* by the model; NAN: it cannot say */
    bool by_model;        /* time_us is predicted, and nothing else is known */
    double wall_s;        /* that the run has taken */
};

struct run {
    const struct options *options;
    int ranks;
    double link; /* bit/s */
    enum kind kind;
    const char *algorithm; /* as asked for; of a run that is done, as taken */
    bool refused;          /* the collective has no such algorithm here */
    double density;        /* NAN: dense */
    char codec[512];       /* "" = none */
    struct figures figures;
};

/* On failure one line on standard error. `optional`: being refused is none. */
bool run_once(struct run *run, bool optional);

#endif
