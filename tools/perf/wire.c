/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/wire.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t peers(const struct trial *trial) { return (size_t)trial->job->size - 1; }

static bool make_room(struct trial *trial)
{
    struct job *job = trial->job;
    size_t bytes;

    if (trial->share <= trial->room)
        return true;
    trial->ops->close(trial);
    trial->out = trial->in = NULL;
    trial->room = trial->share + trial->share / 4; /* the next iteration may move more */
    bytes = peers(trial) * trial->room * sizeof(float);
    return job_memory(job, bytes, &trial->out) && job_memory(job, bytes, &trial->in);
}

static bool prepare(struct trial *trial)
{
    double bytes = trial->row->moved_bytes;

    if (!job_max(trial->job, &bytes, 1))
        return false;
    if (peers(trial) > 0)
        trial->share = (size_t)ceil(fmax(0, bytes) / sizeof(float) / (double)peers(trial));
    return make_room(trial);
}

static spr_status run(struct trial *trial)
{
    spr_request **requests = calloc(peers(trial) + 1, sizeof *requests);
    spr_status status = requests != NULL ? SPR_OK : SPR_ERR_NOMEM;
    size_t posted = 0;

    for (; status == SPR_OK && posted < peers(trial); posted += status == SPR_OK)
        status = spr_isendrecv(trial->job->comm, trial->out + posted * trial->share,
                               trial->in + posted * trial->share, trial->share, SPR_FP32,
                               (int)posted + 1, &trial->call, &requests[posted]);
    for (size_t i = 0; i < posted; i++) {
        spr_status result = spr_wait(&requests[i], -1.0);
        status = status != SPR_OK ? status : result;
    }
    free(requests);
    return status;
}

/* Every rank sends its number, counted from 1. */
static bool check(struct trial *trial, struct tally *tally)
{
    size_t ranks = peers(trial) + 1, rank = (size_t)trial->job->rank;

    for (size_t i = 0; i < peers(trial) * trial->share; i++)
        trial->out[i] = (float)(rank + 1);
    if (!job_ok(trial->job, run(trial)))
        return false;
    for (size_t shift = 1; shift < ranks; shift++)
        for (size_t i = 0; i < trial->share; i++)
            tally->wrong += trial->in[(shift - 1) * trial->share + i] !=
                            (float)((rank + ranks - shift) % ranks + 1);
    return true;
}

static void close_vectors(struct trial *trial)
{
    spr_mem_free(trial->job->comm, trial->out);
    spr_mem_free(trial->job->comm, trial->in);
}

static const struct trial_ops wire_ops = {prepare, run, check, close_vectors};

void wire_open(struct trial *trial, const struct trial *row)
{
    *trial = (struct trial){.ops = &wire_ops,
                            .job = row->job,
                            .kind = KIND_SENDRECV,
                            .algorithm = "auto",
                            .call = SPR_CALL_OPTIONS_INIT,
                            .dtype = SPR_FP32,
                            .op = SPR_SUM,
                            .elements = row->elements,
                            .count = row->elements,
                            .density = NAN,
                            .beside = true,
                            .row = row};
}
