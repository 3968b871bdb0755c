/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a communicator's model says of the algorithms for an operation, for those who ask.
 */
#include <string.h>

#include <sparring/sparring.h>

#include "base/fork.h"
#include "collectives/collective.h"
#include "compress/codec.h"

static int predict(spr_comm *comm, const struct spr_plan *plan, spr_prediction *out, int capacity)
{
    struct spr_candidate candidates[SPR_CANDIDATES];
    size_t n;

    spr_comm_lock(comm);
    n = spr_algorithm_candidates(comm, plan, candidates);
    spr_comm_unlock(comm);
    for (size_t i = 0; i < n && i < (size_t)(capacity < 0 ? 0 : capacity); i++)
        out[i] = (spr_prediction){candidates[i].algorithm->name, candidates[i].seconds,
                                  candidates[i].chosen, candidates[i].measured};
    return (int)n;
}

int spr_comm_predict(spr_comm *comm, const char *collective, size_t count, spr_dtype dtype,
                     size_t most_entries, size_t last_union, spr_prediction *predictions,
                     int capacity)
{
    bool sparse = collective && !strcmp(collective, "sparse_allreduce");
    struct spr_plan plan = {.collective = sparse ? SPR_C_SPARSE_ALLREDUCE : SPR_C_ALLREDUCE,
                            .dtype = dtype,
                            .count = count,
                            .most_entries = most_entries,
                            .last_union = last_union};

    if (!comm || !collective || (!sparse && strcmp(collective, "allreduce")) ||
        spr_dtype_size(dtype) == 0)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "there are predictions for allreduce and sparse_allreduce, not '%s'",
                             collective ? collective : "");
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    return predict(comm, &plan, predictions, capacity);
}

int spr_codec_predict(spr_comm *comm, spr_codec *codec, spr_prediction *predictions, int capacity)
{
    struct spr_plan plan = {0};

    if (!comm || !codec)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "NULL communicator or codec");
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    spr_plan_of_codec(&plan, comm, codec);
    return predict(comm, &plan, predictions, capacity);
}
