/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/indices.h"

#include <math.h>

#include "collectives/comm.h"

/* What packing takes is reckoned as spr_index_costs times merge / MERGE_S, since ranks that share
 * CPUs wait for both; once, at least, where nobody has measured. The value fits what was faster at
 * 1 Gbit/s on 2 CPUs: packed with 2 ranks, where merge is 6 ns, plain with 8, where it is 30. */
#define MERGE_S 2e-9
/* Of the mean gap, as the coder has it. */
#define GOLOMB_PART 0.4812

static const enum spr_index_id coders[SPR_INDICES_COUNT] = {
    [SPR_INDICES_BITPACK] = SPR_INDEX_BITPACK,
    [SPR_INDICES_ELIASFANO] = SPR_INDEX_ELIASFANO,
    [SPR_INDICES_GOLOMB] = SPR_INDEX_GOLOMB,
};

double spr_indices_bytes(int indices, double every)
{
    double gap = fmax(every - 1, 0), low, beyond;

    switch (indices) {
    case SPR_INDICES_BITPACK:
        return spr_index_bitpack_bits(every) / 8;
    case SPR_INDICES_ELIASFANO:
        low = fmax(ceil(log2(gap / 2)), 0);
        return (low + 1 + gap / exp2(low) + 16.0 / SPR_INDEX_BLOCK) / 8;
    case SPR_INDICES_GOLOMB:
        /* The part of gaps of 2^low and more; of these, that of twice as much, and so on. */
        low = fmax(ceil(log2(GOLOMB_PART * gap)), 0);
        beyond = pow(1 - 1 / fmax(every, 1), exp2(low));
        return (low + 1 + beyond / (1 - beyond) + 8.0 / SPR_INDEX_BLOCK) / 8;
    default:
        return sizeof(uint16_t);
    }
}

static double seconds(int indices, const struct spr_model *model)
{
    double wire = model->byte * spr_indices_bytes(indices, 100), ns;

    if (indices == SPR_INDICES_PLAIN)
        return wire;
    ns = (double)spr_index_costs[coders[indices]].encode_ns +
         2 * (double)spr_index_costs[coders[indices]].decode_ns;
    return wire + 1e-9 * ns * fmax(model->merge / MERGE_S, 1);
}

int spr_indices_of_model(const struct spr_model *model)
{
    int best = SPR_INDICES_PLAIN;

    for (int i = best + 1; i < SPR_INDICES_COUNT; i++)
        if (seconds(i, model) < seconds(best, model))
            best = i;
    return best;
}

/* Is there a link of this rank that is? Others may say otherwise: nothing that ranks have to agree
 * on depends on it. */
static bool narrow(const struct spr_comm *comm)
{
    for (int r = 0; r < comm->size; r++) {
        const struct spr_link *link = comm->channel.peers[comm->ids[r]].link;
        if (link && link->transport->ops->narrow)
            return true;
    }
    return false;
}

int spr_indices_of(const struct spr_comm *comm)
{
    if (comm->options.indices != SPR_INDICES_AUTO)
        return comm->options.indices;
    if (comm->model.known)
        return spr_indices_of_model(&comm->model);
    return narrow(comm) ? SPR_INDICES_BITPACK : SPR_INDICES_PLAIN;
}

const struct spr_index_coder *spr_indices_coder(int indices)
{
    return indices == SPR_INDICES_PLAIN ? NULL : spr_index_coder_at(coders[indices]);
}
