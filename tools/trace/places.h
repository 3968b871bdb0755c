/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Where each rank was at a moment, and what failed first: what the verdict is made from.
 */
#ifndef TOOLS_TRACE_PLACES_H
#define TOOLS_TRACE_PLACES_H

#include "tools/trace/trace.h"

/* Where a rank was. */
struct place {
    bool known;         /* there is a file of it */
    bool inside;        /* it had posted `operation` and not completed it; else not posted it yet */
    uint32_t operation; /* the oldest one, or the next one */
    uint64_t since_ns;  /* it posted it, or completed the one before */
    uint64_t last_ns;   /* its last event */
};

struct scene {
    const struct trace_set *set;
    const struct trace *witness;     /* whose failure came first; NULL: nobody's */
    const struct spr_event *failure; /* its FAIL event */
    uint64_t at_ns;                  /* when; without a failure the last event of all, or now */
    struct place *places;            /* per rank */
    uint32_t front;                  /* the oldest operation that any rank was at */
};

/* False: no memory. */
bool scene_make(struct scene *scene, const struct trace_set *set);
void scene_free(struct scene *scene);
/* "rank 2 (host a)" */
void scene_rank(const struct scene *scene, int rank, char *text, size_t bytes);

#endif
