/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse and gradient input of all ranks, as a pure function of (seed, rank, position).
 *
 * Position i belongs to a rank's support with a probability that depends on the pattern:
 *
 *   uniform   the density everywhere
 *   layers    log-normal (sigma 1.5) per layer; sizes log-uniform from 1 Ki to 2.5 Mi elements
 *   cluster   the density for cells of 64 positions, which are in or out as a whole
 *   zipf      proportional to 1 / (i + 1)
 *
 * scaled so that the mean is the density. With an overlap o a part o of each rank's support is
 * drawn once for all ranks. Values are those of data_float().
 */
#ifndef SPR_TOOLS_PERF_SUPPORT_H
#define SPR_TOOLS_PERF_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the non-zeros of a rank are. TRACE: in a file, see input.h. */
enum pattern { PATTERN_UNIFORM, PATTERN_LAYERS, PATTERN_CLUSTER, PATTERN_ZIPF, PATTERN_TRACE };
extern const char *const pattern_names[PATTERN_TRACE]; /* of those that are made here */
/* False: none of them has this name. */
bool pattern_parse(const char *name, enum pattern *pattern);

struct support {
    enum pattern pattern;
    size_t elements;
    double density, overlap;
    uint64_t seed;
    /* Of layers: where each ends, and its weight. */
    size_t *layer_end;
    double *layer_weight;
    size_t layer_count;
    double scale; /* probability = scale * weight of the position */
};

/* After pattern to seed are set. False: no memory. */
bool support_open(struct support *support);
void support_close(struct support *support);

/* mask[k] = 1 when first + k is in the rank's support; value[k] is then its value, else 0. Either
 * may be NULL. */
void support_sparse(const struct support *support, int rank, size_t first, size_t count,
                    uint8_t *mask, float *value);
/* A dense gradient whose large elements are the support. */
void support_gradient(const struct support *support, int rank, size_t first, size_t count,
                      float *value);

#endif
