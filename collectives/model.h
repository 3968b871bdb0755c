/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Model: how long an algorithm will take, from what a communicator's links and CPUs need. The
 * choice among algorithms is made with it, so all ranks must have the same constants: those that
 * SPARRING_MODEL gives, or those of a spr_comm_tune() that succeeded in this epoch.
 *
 * A prediction is steps * latency + further messages * message + the longer one of wire and CPU,
 * and a part of the shorter, which is not hidden behind it (the usual alpha-beta-gamma model;
 * Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication operations in
 * MPICH"). Formulas are in cost.c.
 */
#ifndef SPR_COLLECTIVES_MODEL_H
#define SPR_COLLECTIVES_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct spr_comm;
struct spr_plan;

/* How many there are, see select.c. */
#define SPR_ALGORITHMS 29

/* In seconds, of the slowest rank while all of them work. */
struct spr_model {
    double latency; /* until a small message is there, and seen */
    double grant;   /* until the first message that needs a grant may leave */
    double message; /* per message that a rank sends beside the first one of a step */
    double byte;    /* per byte that leaves a host, or on one host a rank */
    double copy;    /* per byte from rank to rank of a host, where there are several hosts */
    double reduce;  /* per byte of a vector that is summed */
    double encode;  /* per entry that is put into a chunk */
    double merge;   /* per entry that is added to a sum */
    double take;    /* per entry of a sum that is written into a result */
    double clear;   /* per position of a dense result that is written in place */
    double stream;  /* ... past the caches: of SPR_STREAM_BYTES and more */
    double exposed; /* no time: the part of wire or CPU that the longer one of them does not hide */
    double load;    /* no time: how much longer work takes because all ranks do it; 0: as 1 */
    /* What an algorithm takes besides, or less, by its place in the table: its steps are not alike,
     * and ranks that share CPUs are in each other's way. */
    double start[SPR_ALGORITHMS];
    bool known;
};

/* "latency=1.2e-05,message=...": every constant, as spr_model_print() writes them; and those of
 * `start` that are not 0, as "allreduce.ring=2e-05". INVALID. */
spr_status spr_model_parse(const char *text, struct spr_model *model, struct spr_error *error);
/* Numbers are exact. Returns text; SPR_MODEL_BYTES suffice. */
const char *spr_model_print(const struct spr_model *model, char *text, size_t bytes);
/* Is this a value of SPARRING_MODEL? INVALID. */
spr_status spr_model_check_option(const char *value, struct spr_error *error);
/* The ranks of a communicator, or its hosts, are others from now on: only what SPARRING_MODEL says
 * holds for all of them. Also for what is remembered of a codec's steps: see comm->era. */
void spr_model_new_era(struct spr_comm *comm);

/* What a prediction is made from; equal on all ranks. */
struct spr_estimate {
    const struct spr_model *model;
    double ranks, hosts, local; /* local: ranks of the host with the most */
    double gain, most;          /* where links of hosts are not alike: collectives/shares.h */
    bool scattered;             /* ranks of a host are no neighbours */
    bool in_order;              /* sums have to be added in rank order */
    double n;                   /* positions, or elements */
    double bytes;               /* of the vector */
    double k, u;                /* entries of a rank, and of the union; 0: not known */
    double share;               /* what the owner of most owns, over the mean */
    int indices;                /* SPR_INDICES_... */
    double value, sum;          /* bytes of a value on its way to the owner, and of a sum */
    bool bound_hosts;           /* a host sends as many entries as a rank has, */
    double host_sum;            /* ... or the sums of all of them: bytes of one */
    double host_value;          /* bytes of a value inside a host that sums first */
};
struct spr_estimate spr_estimate_of(const struct spr_comm *comm, const struct spr_plan *plan);
/* Of n floats on so many ranks, `local` per host; k: entries of each at independent positions, 0:
 * dense. */
struct spr_estimate spr_estimate_even(const struct spr_model *model, double ranks, double local,
                                      double n, double k);
/* Seconds of the algorithm of that name; NaN: it has no formula. */
double spr_algorithm_seconds(const char *collective, const char *name,
                             const struct spr_estimate *e);

/* Seconds; for the slots `predict` of struct spr_algorithm. */
double spr_cost_flat(const struct spr_estimate *e);
double spr_cost_direct(const struct spr_estimate *e);
double spr_cost_ring(const struct spr_estimate *e);
double spr_cost_halving(const struct spr_estimate *e);
double spr_cost_doubling(const struct spr_estimate *e);
double spr_cost_tree(const struct spr_estimate *e);
double spr_cost_hierarchical(const struct spr_estimate *e);
double spr_cost_sparse_direct(const struct spr_estimate *e);
double spr_cost_sparse_hierarchical(const struct spr_estimate *e);
double spr_cost_sparse_relay(const struct spr_estimate *e);
double spr_cost_sparse_hosts(const struct spr_estimate *e);
double spr_cost_sparse_allgather(const struct spr_estimate *e);
double spr_cost_sparse_doubling(const struct spr_estimate *e);
double spr_cost_sparse_ring(const struct spr_estimate *e);
double spr_cost_sparse_union(const struct spr_estimate *e);
double spr_cost_sparse_server(const struct spr_estimate *e);
double spr_cost_sparse_blocks(const struct spr_estimate *e);
double spr_cost_sparse_dense(const struct spr_estimate *e);

#endif
