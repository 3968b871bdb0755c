/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Groups of eight columns are two vectors. Sums over columns stay in registers for four ranks at a
 * time.
 */
#include "compress/kernels/lowrank.h"

#include <string.h>

#include "compress/kernels/lanes_neon.h"

#define LANES SPR_LOWRANK_LANES
#define ROWS 4 /* of correlate() at a time */
#define INLINE static inline __attribute__((always_inline))

typedef float32x4x2_t eight;

INLINE eight load8(const float *x) { return (eight){{vld1q_f32(x), vld1q_f32(x + 4)}}; }
INLINE void store8(float *x, eight v)
{
    vst1q_f32(x, v.val[0]);
    vst1q_f32(x + 4, v.val[1]);
}
INLINE eight zero8(void) { return (eight){{vdupq_n_f32(0), vdupq_n_f32(0)}}; }
INLINE eight add8(eight a, eight b)
{
    return (eight){{vaddq_f32(a.val[0], b.val[0]), vaddq_f32(a.val[1], b.val[1])}};
}
INLINE eight sub8(eight a, eight b)
{
    return (eight){{vsubq_f32(a.val[0], b.val[0]), vsubq_f32(a.val[1], b.val[1])}};
}
INLINE eight mul8(eight a, eight b)
{
    return (eight){{vmulq_f32(a.val[0], b.val[0]), vmulq_f32(a.val[1], b.val[1])}};
}
INLINE eight scale8(eight a, float b)
{
    return (eight){{vmulq_n_f32(a.val[0], b), vmulq_n_f32(a.val[1], b)}};
}

/* The last group of columns has `left` of them, the others are zero. */
INLINE eight load(const float *x, size_t left)
{
    float part[LANES] = {0};

    if (left >= LANES)
        return load8(x);
    memcpy(part, x, left * sizeof(*x));
    return load8(part);
}
INLINE void store(float *x, size_t left, eight v)
{
    float part[LANES];

    if (left >= LANES) {
        store8(x, v);
        return;
    }
    store8(part, v);
    memcpy(x, part, left * sizeof(*x));
}

static float sum_of_lanes(eight lane)
{
    float32x4_t four = vaddq_f32(lane.val[0], lane.val[1]);
    float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));

    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

/* m = m - p q^T, then m += g, each unless NULL, for one row. */
static void update_row(float *m, size_t columns, unsigned rank, const float *p, const float *q,
                       const float *g)
{
    for (size_t j = 0; j < columns; j += LANES) {
        eight value = load(m + j, columns - j);

        for (unsigned k = 0; p && k < rank; k++)
            value = sub8(value, scale8(load8(q + j * rank + k * LANES), p[k * LANES]));
        if (g)
            value = add8(value, load(g + j, columns - j));
        store(m + j, columns - j, value);
    }
}

/* out = m q for one row, K columns of q. */
INLINE void multiply(const float *m, size_t columns, unsigned rank, unsigned K, const float *q,
                     float *out)
{
    eight sum[4];

    for (unsigned k = 0; k < K; k++)
        sum[k] = zero8();
    for (size_t j = 0; j < columns; j += LANES) {
        eight value = load(m + j, columns - j);

        for (unsigned k = 0; k < K; k++)
            sum[k] = add8(sum[k], mul8(value, load8(q + j * rank + k * LANES)));
    }
    for (unsigned k = 0; k < K; k++)
        out[k * LANES] = sum_of_lanes(sum[k]);
}

static void project(float *m, size_t rows, size_t columns, unsigned rank, const float *p,
                    const float *q, const float *g, const float *from, float *out)
{
    if (from)
        memset(out, 0, spr_skinny_floats(rows, rank) * sizeof(*out));
    for (size_t i = 0; i < rows; i++) {
        size_t at = spr_skinny_at(i, 0, rank);
        float *row = m + i * columns;
        unsigned k = 0;

        if (p || g)
            update_row(row, columns, rank, p ? p + at : NULL, q, g ? g + i * columns : NULL);
        for (; from && k + 4 <= rank; k += 4)
            multiply(row, columns, rank, 4, from + k * LANES, out + at + k * LANES);
        for (; from && k < rank; k++)
            multiply(row, columns, rank, 1, from + k * LANES, out + at + k * LANES);
    }
}

/* A group of columns of four rows, those that are not there being zero: q += m^T p. */
static void correlate_group(const float *m, size_t stride, size_t rows, size_t left, unsigned rank,
                            const float *p, float *q)
{
    eight row[ROWS];

    for (size_t r = 0; r < ROWS; r++)
        row[r] = r < rows ? load(m + r * stride, left) : zero8();
    for (unsigned k = 0; k < rank; k++, p += LANES, q += LANES) {
        eight a = add8(scale8(row[0], p[0]), scale8(row[1], p[1]));
        eight b = add8(scale8(row[2], p[2]), scale8(row[3], p[3]));

        store8(q, add8(load8(q), add8(a, b)));
    }
}

static void correlate(const float *m, size_t rows, size_t columns, unsigned rank, const float *p,
                      float *q)
{
    memset(q, 0, spr_skinny_floats(columns, rank) * sizeof(*q));
    for (size_t i = 0; i < rows; i += ROWS)
        for (size_t j = 0; j < columns; j += LANES)
            correlate_group(m + i * columns + j, columns, rows - i, columns - j, rank,
                            p + spr_skinny_at(i, 0, rank), q + j * rank);
    /* Zero times what is not finite is behind the last column. */
    for (unsigned k = 0; columns % LANES && k < rank; k++) {
        float *last = q + spr_skinny_at(columns / LANES * LANES, k, rank);
        store8(last, load(last, columns % LANES));
    }
}

static void expand(float *out, size_t rows, size_t columns, unsigned rank, const float *p,
                   const float *q, float scale)
{
    for (size_t i = 0; i < rows; i++) {
        const float *p_at = p + spr_skinny_at(i, 0, rank);

        for (size_t j = 0; j < columns; j += LANES) {
            eight sum = zero8();

            for (unsigned k = 0; k < rank; k++)
                sum = add8(sum, scale8(load8(q + j * rank + k * LANES), p_at[k * LANES]));
            store(out + i * columns + j, columns - j, scale8(sum, scale));
        }
    }
}

const struct spr_lowrank_kernels spr_lowrank_kernels_neon = {
    .name = "neon",
    .project = project,
    .correlate = correlate,
    .expand = expand,
};
