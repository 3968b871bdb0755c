/* SPDX-License-Identifier: BSD-2-Clause
 *
 *   sum, check, sum, check ... a rank dies -> shrink -> agree on the iteration -> grow -> sum ...
 *
 * The newcomer learns the iteration, the number of ranks that there shall be and what has been
 * found so far, as the state that spr_comm_grow hands over.
 */
#include "tools/perf/elastic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"

enum { ITERATIONS = 100, PERIOD = 13 };

struct state {
    int64_t iteration, ranks, deaths, wrong;
};

struct elastic {
    const struct options *options;
    spr_comm *comm;
    struct state state;
    int64_t iterations;
    size_t count;
    float *in, *out;
};

static bool complain(const char *what)
{
    const char *rank = getenv("SPARRING_RANK");

    fprintf(stderr, "sparring-perf: rank %s: %s: %s\n", rank != NULL ? rank : "?", what,
            spr_last_error(NULL));
    return false;
}

static bool joins(void)
{
    const char *join = getenv("SPARRING_JOIN");

    return join != NULL && *join != '\0' && strcmp(join, "0") != 0;
}

static void *take(void *ctx, size_t bytes) { return bytes == sizeof(struct state) ? ctx : NULL; }

static bool enter(struct elastic *e)
{
    spr_comm_options create = SPR_COMM_OPTIONS_INIT;
    spr_grow_options grow = SPR_GROW_OPTIONS_INIT;

    create.transports = e->options->transports;
    grow.create = &create;
    grow.take = take;
    grow.ctx = &e->state;
    if (joins()) {
        if (spr_comm_grow(NULL, &grow, &e->comm) != SPR_OK)
            return complain("cannot join");
        e->state.wrong = 0; /* that was found by another */
        return true;
    }
    if (spr_comm_create(&create, &e->comm) != SPR_OK)
        return complain("cannot start");
    e->state.ranks = spr_comm_size(e->comm);
    return true;
}

/* Ranks that were lost may have taken a result with them that others have not seen. */
static spr_status agree(struct elastic *e)
{
    int64_t iteration = e->state.iteration;
    spr_status status = spr_allreduce(e->comm, &iteration, &iteration, 1, SPR_INT64, SPR_MIN, NULL);

    if (status == SPR_OK)
        e->state.iteration = iteration;
    return status;
}

/* SPR_OK: as many as there shall be, or nobody came. */
static spr_status fill_up(struct elastic *e)
{
    spr_grow_options grow = SPR_GROW_OPTIONS_INIT;
    spr_comm *grown;
    spr_status status;

    if (spr_comm_size(e->comm) >= e->state.ranks)
        return SPR_OK;
    grow.newcomers = (int)e->state.ranks - spr_comm_size(e->comm);
    grow.at_least = 1;
    if (spr_comm_rank(e->comm) == 0)
        fprintf(stderr,
                "sparring-perf: %d of %d ranks are left; waits for newcomers "
                "(sparring-run --restart), at most SPARRING_INIT_TIMEOUT\n",
                spr_comm_size(e->comm), (int)e->state.ranks);
    grow.state = &e->state;
    grow.state_bytes = sizeof e->state;
    status = spr_comm_grow(e->comm, &grow, &grown);
    if (status == SPR_OK) {
        spr_comm_destroy(e->comm);
        e->comm = grown;
    } else if (status == SPR_ERR_BOOTSTRAP) {
        complain("goes on with fewer");
        e->state.ranks = spr_comm_size(e->comm);
        return SPR_OK;
    }
    return status;
}

static bool recover(struct elastic *e)
{
    spr_shrink_info info = SPR_SHRINK_INFO_INIT;
    spr_status status;

    do {
        if (spr_comm_shrink(e->comm, 0, &info) != SPR_OK)
            return complain("cannot go on");
        e->state.deaths += info.lost;
        status = agree(e);
        if (status == SPR_OK)
            status = fill_up(e);
    } while (status == SPR_ERR_RANK_LOST || status == SPR_ERR_REVOKED);
    return status == SPR_OK || complain("cannot take in others");
}

/* Whole numbers whose sum is exact in any order. */
static float pattern(int64_t iteration, size_t i)
{
    return (float)(((uint64_t)iteration + i) % PERIOD);
}

static spr_status iterate(struct elastic *e)
{
    float ranks = (float)spr_comm_size(e->comm), mine = (float)spr_comm_rank(e->comm) + 1;
    spr_status status;

    for (size_t i = 0; i < e->count; i++)
        e->in[i] = mine * pattern(e->state.iteration, i);
    status = spr_allreduce(e->comm, e->in, e->out, e->count, SPR_FP32, SPR_SUM, NULL);
    for (size_t i = 0; status == SPR_OK && i < e->count; i++)
        e->state.wrong += !(e->out[i] == ranks * (ranks + 1) / 2 * pattern(e->state.iteration, i));
    e->state.iteration += status == SPR_OK;
    return status;
}

/* What all ranks have found. */
static spr_status conclude(struct elastic *e, int64_t *wrong)
{
    return spr_allreduce(e->comm, &e->state.wrong, wrong, 1, SPR_INT64, SPR_SUM, NULL);
}

static bool run(struct elastic *e, int64_t *wrong)
{
    for (;;) {
        bool last = e->state.iteration >= e->iterations;
        spr_status status = last ? conclude(e, wrong) : iterate(e);

        if (status == SPR_ERR_RANK_LOST || status == SPR_ERR_REVOKED) {
            if (!recover(e))
                return false;
        } else if (status != SPR_OK) {
            fprintf(stderr, "sparring-perf: rank %d: %s\n", spr_comm_rank(e->comm),
                    spr_last_error(e->comm));
            return false;
        } else if (last) {
            return true;
        }
    }
}

int elastic_run(const struct options *options)
{
    struct elastic e = {.options = options,
                        .iterations = options->iterations > 0 ? options->iterations : ITERATIONS,
                        .count = options->begin_bytes / sizeof(float)};
    uint64_t begin = spr_monotonic_ns();
    int64_t wrong = 0;
    bool done;

    e.in = malloc(e.count * sizeof(float));
    e.out = malloc(e.count * sizeof(float));
    if (e.in == NULL || e.out == NULL) {
        fprintf(stderr, "sparring-perf: out of memory\n");
        free(e.in);
        free(e.out);
        return 1;
    }
    done = enter(&e) && run(&e, &wrong);
    if (done && spr_comm_rank(e.comm) == 0)
        printf("%" PRId64 " iteration%s of %zu bytes, %d rank%s, %" PRId64
               " death%s survived, %" PRId64 " wrong, %.3g s\n",
               e.iterations, spr_plural((uint64_t)e.iterations), e.count * sizeof(float),
               spr_comm_size(e.comm), spr_plural((uint64_t)spr_comm_size(e.comm)), e.state.deaths,
               spr_plural((uint64_t)e.state.deaths), wrong,
               (double)(spr_monotonic_ns() - begin) * 1e-9);
    spr_comm_destroy(e.comm);
    free(e.in);
    free(e.out);
    return !done || wrong > 0;
}
