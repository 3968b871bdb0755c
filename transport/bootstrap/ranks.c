/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/bootstrap/ranks.h"

#include <stdio.h>

#include "base/series.h"

int spr_ranks_text(bool (*in)(const void *ctx, int rank), const void *ctx, int size, char *buf,
                   size_t bytes)
{
    struct spr_series ranks;
    size_t used;
    int count = 0;

    for (int rank = 0; rank < size; rank++)
        count += in(ctx, rank);
    used = (size_t)snprintf(buf, bytes, "%s", count == 0 ? "" : count == 1 ? "rank " : "ranks ");
    if (used >= bytes)
        return count;
    spr_series_begin(&ranks, buf + used, bytes - used);
    for (int rank = 0; rank < size; rank++)
        if (in(ctx, rank))
            spr_series_add_number(&ranks, rank);
    spr_series_end(&ranks);
    return count;
}
