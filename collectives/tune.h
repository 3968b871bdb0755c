/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tuning: what the files of spr_comm_tune() share. Every rank calls the same ones in the same
 * order; each sets constants of the model that later ones count on.
 */
#ifndef SPR_COLLECTIVES_TUNE_H
#define SPR_COLLECTIVES_TUNE_H

#include <stddef.h>

#include <sparring/sparring.h>

#include "collectives/collective.h"
#include "compress/chunk.h"

#define SPR_TUNING_SHORT_RUNS 15
#define SPR_TUNING_LONG_RUNS 5
/* Of the longest sendrecv and allreduce. */
#define SPR_TUNING_LAST_BYTES ((size_t)4 << 20)
#define SPR_TUNING_POSITIONS ((size_t)1 << 20)
/* Of a result that is written past the caches: twice SPR_STREAM_BYTES. */
#define SPR_TUNING_MOST_POSITIONS (SPR_STREAM_BYTES >> 1)
#define SPR_TUNING_LONG_LIST (SPR_TUNING_POSITIONS >> 4)
#define SPR_TUNING_SHORT_LIST (SPR_TUNING_POSITIONS >> 10)

enum {
    SPR_TUNING_REDUCE,
    SPR_TUNING_ENCODE,
    SPR_TUNING_MERGE,
    SPR_TUNING_DECODE,
    SPR_TUNING_PHASES
};

struct spr_tuning {
    spr_comm *comm;
    int shift;   /* of a sendrecv: to another host, where there are any */
    int busiest; /* ranks of a host whose data then leave it, at most */
    const char *algorithm;
    spr_dtype dtype;  /* of a dense one */
    size_t positions; /* of a sparse one */
    float *a, *b;     /* LAST_BYTES, MOST_POSITIONS */
    spr_sparse list;  /* LONG_LIST */
    struct spr_stats before, after;
    size_t long_bytes;            /* of the longest sendrecv */
    double unions[2], seconds[2]; /* of a short list, and a long one */
    double *work;                 /* of all ranks: their phases; and room for one of these */
    struct spr_model model;
};

/* tune_calls.c */

/* What can be timed: n are elements, entries, or whatever it is a call of. */
typedef spr_status spr_tuning_call(struct spr_tuning *t, size_t n);
spr_tuning_call spr_tuning_sendrecv, spr_tuning_allreduce, spr_tuning_sparse;
spr_tuning_call spr_tuning_list; /* as sparse, of the list that is there */
/* Sorts n numbers; that part of them is below the one returned. */
double spr_tuning_lowest(double *x, int n, double part);
double spr_tuning_median(double *x, int n);
/* The largest of any rank: the same on all. */
spr_status spr_tuning_agree(spr_comm *comm, double *value, size_t n);
/* Seconds of a call on this rank, from when all are ready. */
spr_status spr_tuning_once(struct spr_tuning *t, spr_tuning_call *call, size_t n, double *seconds);
/* ... of the slowest rank, not above so many of some runs, after one that does not count. */
spr_status spr_tuning_time_of(struct spr_tuning *t, spr_tuning_call *call, size_t n, int runs,
                              double part, double *seconds);

/* tune_links.c: latency, message, byte */

void spr_tuning_choose_shift(struct spr_tuning *t);
spr_status spr_tuning_links(struct spr_tuning *t);

/* tune_work.c: load; reduce, encode, merge, take, clear, stream */

spr_status spr_tuning_load(struct spr_tuning *t);
spr_status spr_tuning_work(struct spr_tuning *t);

/* tune_fit.c: copy, exposed and grant; start of the algorithms for a plan */

spr_status spr_tuning_copies(struct spr_tuning *t);
spr_status spr_tuning_starts(struct spr_tuning *t, const struct spr_plan *plan);

#endif
