/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One run: a collective on so many ranks over links of one rate, with one algorithm.
 */
#ifndef SPR_TOOLS_SIM_RUN_H
#define SPR_TOOLS_SIM_RUN_H

#include "tools/sim/options.h"

struct figures {
    int hosts;
    double time_us;                   /* until the last rank is done */
    double sent_bytes, busiest_bytes; /* of all ranks; of the one that sends most */
    double host_bytes, busiest_host;  /* to other hosts: mean of hosts; of the one with most */
    double frames, busiest_frames;    /* headers, payloads, and those that grant them */
    double memory;                    /* bytes that the library holds at most, per rank */
    double balance;                   /* busiest_bytes / mean over ranks */
    double union_density;             /* of sparse ones; NAN */
    double wrong;                     /* elements; NAN: cannot be told */
    bool same;                        /* bits on all ranks */
    double predicted_us;              /* by the model; NAN: it cannot say */
    bool by_model;                    /* time_us is predicted, and nothing else is known */
    double wall_s;                    /* that the run has taken */
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
