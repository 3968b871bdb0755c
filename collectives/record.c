/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the flight recorder hears of communicators and operations.
 */
#include "base/log.h"
#include "collectives/collective.h"

void spr_record_open(spr_comm *comm)
{
    const char *dir = comm->options.trace_dir;
    char why[128];

    if (!dir || !*dir)
        return;
    if (!spr_trace_share(comm->trace, dir, comm->key.job, comm->key.epoch, why, sizeof why))
        spr_warn(SPR_SUB_INIT,
                 "cannot keep the flight recorder in SPARRING_TRACE_DIR %s: %s; it stays in "
                 "memory and is lost with this process",
                 dir, why);
}

void spr_record_post(const spr_request *rq)
{
    struct spr_trace *t = rq->comm->trace;
    const struct spr_plan *plan = &rq->plan;

    spr_trace_add(t, rq->posted_ns, SPR_EV_POST, -1,
                  spr_trace_post(rq->operation,
                                 spr_trace_word(t, spr_collective_names[plan->collective]),
                                 plan->dtype, plan->op, spr_trace_word(t, rq->algorithm->name)),
                  plan->count, (uint32_t)rq->descriptor);
    if (*rq->name)
        spr_trace_add_name(t, rq->posted_ns, rq->name);
}
