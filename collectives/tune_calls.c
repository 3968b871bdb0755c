/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tuning: the calls that are timed, and how.
 */
#include <stdlib.h>

#include "collectives/tune.h"

spr_status spr_tuning_sendrecv(struct spr_tuning *t, size_t elements)
{
    return spr_sendrecv(t->comm, t->a, t->b, elements, SPR_FP32, t->shift, NULL);
}

spr_status spr_tuning_allreduce(struct spr_tuning *t, size_t elements)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = t->algorithm;
    return spr_allreduce(t->comm, t->a, t->b, elements, t->dtype, SPR_SUM, &options);
}

spr_status spr_tuning_list(struct spr_tuning *t, size_t entries)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = t->algorithm;
    options.most_entries = entries;
    return spr_sparse_allreduce(t->comm, &t->list, t->positions, t->b, NULL, SPR_SUM, &options);
}

spr_status spr_tuning_sparse(struct spr_tuning *t, size_t entries)
{
    size_t apart = t->positions / entries, rank = (size_t)spr_comm_rank(t->comm);

    for (size_t i = 0; i < entries; i++)
        t->list.index[i] = (uint32_t)(i * apart + (i * 2654435761u + rank * 40503u) % apart);
    t->list.count = entries;
    return spr_tuning_list(t, entries);
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

double spr_tuning_lowest(double *x, int n, double part)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return x[(int)(part * n)];
}

double spr_tuning_median(double *x, int n) { return spr_tuning_lowest(x, n, 0.5); }

spr_status spr_tuning_agree(spr_comm *comm, double *value, size_t n)
{
    spr_status status = spr_allreduce(comm, value, value, n, SPR_FP64, SPR_MAX, NULL);

    return status == SPR_ERR_NOMEM ? spr_comm_failed_call(comm, status, spr_thread_error())
                                   : status;
}

spr_status spr_tuning_once(struct spr_tuning *t, spr_tuning_call *call, size_t n, double *seconds)
{
    spr_status status = spr_barrier(t->comm, NULL);
    uint64_t begin = spr_monotonic_ns();

    if (status == SPR_OK)
        status = call(t, n);
    *seconds = (double)(spr_monotonic_ns() - begin) * 1e-9;
    return status;
}

spr_status spr_tuning_time_of(struct spr_tuning *t, spr_tuning_call *call, size_t n, int runs,
                              double part, double *seconds)
{
    double all[SPR_TUNING_SHORT_RUNS];
    spr_status status = call(t, n);

    for (int i = 0; status == SPR_OK && i < runs; i++)
        status = spr_tuning_once(t, call, n, &all[i]);
    if (status == SPR_OK)
        status = spr_tuning_agree(t->comm, all, (size_t)runs);
    if (status == SPR_OK)
        *seconds = spr_tuning_lowest(all, runs, part);
    return status;
}
