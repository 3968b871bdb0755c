/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What operations are wanted to reach, on vectors of 25 million elements, which no cache holds.
 */
#ifndef SPR_TOOLS_CODEC_GOALS_H
#define SPR_TOOLS_CODEC_GOALS_H

#include "tools/codec/operations.h"

/* Smaller vectors are in a cache, where the references are faster and the goals mean nothing. */
#define GOAL_ELEMENTS 20000000

struct goal {
    const char *operation;
    double density; /* 0: any */
    enum { GOAL_USUAL, GOAL_WORST } data;
    double most[2];   /* time over the reference's, with 1 and with 2 threads; 0: none */
    double items;     /* at least so many per second, with one thread; 0: no such goal */
    double entropies; /* and at most so many times the entropy of the indices; 0: no such goal */
};

/* Bits per index of n positions of which each is in the list with a probability of `density`. */
double index_entropy(double density);
/* NULL: none is stated for this operation, density, data and number of threads. */
const struct goal *goal_of(const struct trial *trial);

#endif
