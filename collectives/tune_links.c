/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tuning: latency, message and byte.
 */
#include <math.h>

#include "collectives/tune.h"

#define CHAIN 8
/* Bytes of a sendrecv: from the first on by factors of four, until one takes that long. */
#define FIRST_BYTES ((size_t)64 << 10)
#define LONG_S 50e-3 /* a shaper lets the first of them pass at once */

/* The shift by which most ranks send to another host; half the job away if they all can. */
void spr_tuning_choose_shift(struct spr_tuning *t)
{
    const struct spr_topology *hosts = &t->comm->topology;
    int size = t->comm->size, most = -1;

    for (int i = 0; i < size - 1; i++) {
        int shift = 1 + (size / 2 - 1 + i) % (size - 1), away = 0, busiest = 1;
        for (int h = 0; h < hosts->hosts; h++) {
            int leave = 0;
            for (int k = hosts->first[h]; k < hosts->first[h + 1]; k++)
                leave += hosts->host[(hosts->ranks[k] + shift) % size] != h;
            away += leave;
            busiest = leave > busiest ? leave : busiest;
        }
        if (away <= most)
            continue;
        most = away;
        t->shift = shift;
        t->busiest = busiest;
    }
}

static spr_status chained_sendrecvs(struct spr_tuning *t, size_t n)
{
    spr_status status = SPR_OK;

    for (size_t i = 0; status == SPR_OK && i < n; i++)
        status = spr_tuning_sendrecv(t, 1);
    return status;
}

spr_status spr_tuning_links(struct spr_tuning *t)
{
    struct spr_model *m = &t->model;
    double last = 0, now = 0, flat = 0, alone = 0;
    size_t bytes = FIRST_BYTES;
    spr_status status =
        spr_tuning_time_of(t, chained_sendrecvs, CHAIN, SPR_TUNING_SHORT_RUNS, 0.5, &m->latency);

    if (status == SPR_OK)
        status = spr_tuning_time_of(t, spr_tuning_sendrecv, 1, SPR_TUNING_SHORT_RUNS, 0.5, &alone);
    t->algorithm = "flat";
    if (status == SPR_OK)
        status = spr_tuning_time_of(t, spr_tuning_allreduce, 1, SPR_TUNING_SHORT_RUNS, 0.5, &flat);
    if (status == SPR_OK)
        status =
            spr_tuning_time_of(t, spr_tuning_sendrecv, bytes / 4, SPR_TUNING_LONG_RUNS, 0, &now);
    if (status)
        return status;
    m->latency /= CHAIN;
    m->message = t->comm->size > 2 ? fmax(flat - alone, 0) / (t->comm->size - 2) : 0;
    do {
        last = now;
        bytes *= 4;
        status =
            spr_tuning_time_of(t, spr_tuning_sendrecv, bytes / 4, SPR_TUNING_LONG_RUNS, 0, &now);
        if (status)
            return status;
    } while (now < LONG_S && bytes < SPR_TUNING_LAST_BYTES);
    t->long_bytes = bytes;
    m->byte = fmax(now - last, 0) / (0.75 * (double)bytes * t->busiest);
    return SPR_OK;
}
