/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse lists of the ranks of a simulated world, and their sums.
 */
#ifndef TESTS_SIM_SUMS_H
#define TESTS_SIM_SUMS_H

#include "tests/sim/vectors.h"

/* A job: each rank's list, as a vector too, and what it gets. */
struct sums {
    struct world world;
    const char *algorithm;
    size_t n;
    spr_op op;
    spr_sparse list[WORLD_MAX], sum[WORLD_MAX];
    float *vector[WORLD_MAX], *dense[WORLD_MAX], *want[WORLD_MAX];
};

static inline void allocate(struct sums *s)
{
    for (int r = 0; r < s->world.ranks; r++) {
        s->list[r] = (spr_sparse){malloc(s->n * 4 + 4), malloc(s->n * 4 + 4), 0, 0};
        s->sum[r] = (spr_sparse){malloc(s->n * 4 + 4), malloc(s->n * 4 + 4), 0, s->n};
        s->vector[r] = calloc(s->n + 1, sizeof(float));
        s->dense[r] = malloc(s->n * 4 + 4);
        s->want[r] = malloc(s->n * 4 + 4);
    }
}

static inline void free_sums(struct sums *s)
{
    for (int r = 0; r < s->world.ranks; r++) {
        free(s->list[r].index);
        free(s->list[r].value);
        free(s->sum[r].index);
        free(s->sum[r].value);
        free(s->vector[r]);
        free(s->dense[r]);
        free(s->want[r]);
    }
}

static inline void enter(struct sums *s, int rank, size_t i, float value)
{
    spr_sparse *list = &s->list[rank];

    list->index[list->count] = (uint32_t)i;
    list->value[list->count++] = s->vector[rank][i] = value;
}

static inline void run_sparse(struct sums *s)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    bool list = !s->algorithm || reference_sparse_lists(s->algorithm);

    options.algorithm = s->algorithm;
    for (int r = 0; r < s->world.ranks; r++) {
        memset(s->dense[r], 0xee, s->n * 4);
        assert_int_equal(spr_isparse_allreduce(s->world.comms[r], &s->list[r], s->n, s->dense[r],
                                               list ? &s->sum[r] : NULL, s->op, &options,
                                               &s->world.requests[r]),
                         SPR_OK);
    }
    run_ok(&s->world);
    world_check_union(&s->world, s->algorithm, s->list, s->n);
}

#endif
