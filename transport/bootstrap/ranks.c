/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/bootstrap/ranks.h"

#include <stdio.h>
#include <string.h>

#define ONE_RUN 32 /* bytes of ", 2147483646-2147483647" and the dots */

int spr_ranks_text(bool (*in)(const void *ctx, int rank), const void *ctx, int size, char *buf,
                   size_t bytes)
{
    char runs[512];
    size_t used = 0;
    int count = 0;

    runs[0] = '\0';
    for (int first = 0; first < size; first++) {
        const char *comma = count ? ", " : "";
        int last = first, n;

        if (!in(ctx, first))
            continue;
        while (last + 1 < size && in(ctx, last + 1))
            last++;
        count += last - first + 1;
        if (used + ONE_RUN < sizeof(runs)) {
            if (last == first)
                n = snprintf(runs + used, sizeof(runs) - used, "%s%d", comma, first);
            else
                n = snprintf(runs + used, sizeof(runs) - used, "%s%d%s%d", comma, first,
                             last == first + 1 ? ", " : "-", last);
            used += (size_t)n;
            if (used + ONE_RUN >= sizeof(runs))
                snprintf(runs + used, sizeof(runs) - used, ", ...");
        }
        first = last;
    }
    if (bytes > 0)
        snprintf(buf, bytes, "%s%s", count == 0 ? "" : count == 1 ? "rank " : "ranks ", runs);
    return count;
}
