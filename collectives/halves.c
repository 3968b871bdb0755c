/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Dense codecs "fp16" and "bf16": the rounded vector travels, and is summed, as halves. The values
 * fit the type without loss (the codec rounded them and kept the rest); the owner rounds each sum
 * once.
 */
#include "collectives/collective.h"
#include "compress/value.h"

spr_dtype spr_halves_dtype(enum spr_vtype vtype)
{
    return vtype == SPR_V_FP16 ? SPR_FP16 : vtype == SPR_V_BF16 ? SPR_BF16 : SPR_FP32;
}

spr_status spr_halves_pack(spr_request *rq)
{
    struct spr_plan *plan = &rq->plan;
    uint16_t *halves;

    if (plan->collective != SPR_C_ALLREDUCE || plan->vtype == SPR_V_FP32)
        return SPR_OK;
    halves = spr_arena_buffer(&rq->arena, (plan->count + 1) * sizeof *halves);
    if (!halves)
        return SPR_ERR_NOMEM;
    (plan->vtype == SPR_V_FP16 ? spr_fp16_encode : spr_bf16_encode)(plan->send, halves,
                                                                    plan->count);
    plan->unpack = plan->recv;
    plan->send = plan->recv = halves;
    plan->dtype = spr_halves_dtype(plan->vtype);
    return SPR_OK;
}

void spr_halves_unpack(spr_request *rq)
{
    const struct spr_plan *plan = &rq->plan;

    if (plan->unpack)
        (plan->vtype == SPR_V_FP16 ? spr_fp16_decode : spr_bf16_decode)(plan->recv, plan->unpack,
                                                                        plan->count);
}
