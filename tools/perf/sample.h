/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which elements of a result are compared with the reference: all of them up to 4 Mi, above that
 * 4096 evenly spaced runs of 256, the first and the last element included.
 */
#ifndef SPR_TOOLS_PERF_SAMPLE_H
#define SPR_TOOLS_PERF_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>

#define SAMPLE_ALL ((size_t)4 << 20)
enum { SAMPLE_RUN = 256, SAMPLE_RUNS = 4096 };

struct sample {
    size_t elements, runs, next;
};

static inline struct sample sample_of(size_t elements)
{
    size_t all = (elements + SAMPLE_RUN - 1) / SAMPLE_RUN;
    return (struct sample){elements, elements > SAMPLE_ALL ? SAMPLE_RUNS : all, 0};
}

/* The next run of at most SAMPLE_RUN elements; false at the end. */
static inline bool sample_next(struct sample *sample, size_t *first, size_t *count)
{
    size_t k = sample->next++;
    if (k >= sample->runs)
        return false;
    *first = k * SAMPLE_RUN;
    if (sample->elements > SAMPLE_ALL)
        *first =
            (size_t)((unsigned __int128)k * (sample->elements - SAMPLE_RUN) / (SAMPLE_RUNS - 1));
    *count = sample->elements - *first < SAMPLE_RUN ? sample->elements - *first : SAMPLE_RUN;
    return true;
}

#endif
