/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A few rows at a time, so that the skinny matrix, which stays in L2, is read once for all of them;
 * and in chunks of columns that stay in L1 between the two halves of project(). Ranks go by four,
 * two and one: as many sums as there are registers for.
 */
#include "compress/kernels/lowrank.h"

#include <string.h>

#include "compress/kernels/lanes_avx2.h"

#define LANES SPR_LOWRANK_LANES
#define ROWS 4   /* of project() and correlate() at a time */
#define CHUNK 64 /* groups of columns of project() at a time: 2 KiB of a row */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The last group of columns has `left` of them, the others are zero. */
static __m256i tail_mask(size_t left)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)left),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
ALWAYS_INLINE __m256 load(const float *x, size_t left)
{
    return left >= LANES ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, tail_mask(left));
}
ALWAYS_INLINE void store(float *x, size_t left, __m256 value)
{
    if (left >= LANES)
        _mm256_storeu_ps(x, value);
    else
        _mm256_maskstore_ps(x, tail_mask(left), value);
}

static float sum_of_lanes(__m256 lane)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(lane), _mm256_extractf128_ps(lane, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Some columns of some neighbouring rows: row r at m + r * stride. */
struct tile {
    size_t stride, columns;
    unsigned rank;
};

/* m = m - p q^T for columns [k, k + K) of p and q; then m += g unless that is NULL. */
ALWAYS_INLINE void update(const struct tile *t, int R, unsigned K, float *m, const float *p[],
                          unsigned k, const float *q, const float *g)
{
    __m256 factor[2][4];

    for (int r = 0; r < R; r++)
        for (unsigned x = 0; x < K; x++)
            factor[r][x] = _mm256_broadcast_ss(p[r] + (k + x) * LANES);
    for (size_t j = 0; j < t->columns; j += LANES) {
        const float *from = q + j * t->rank + k * LANES;
        size_t left = t->columns - j;
        for (int r = 0; r < R; r++) {
            __m256 value = load(m + (size_t)r * t->stride + j, left);
            for (unsigned x = 0; x < K; x++)
                value = _mm256_sub_ps(
                    value, _mm256_mul_ps(factor[r][x], _mm256_loadu_ps(from + x * LANES)));
            if (g)
                value = _mm256_add_ps(value, load(g + (size_t)r * t->stride + j, left));
            store(m + (size_t)r * t->stride + j, left, value);
        }
    }
}

/* Columns [k, k + K) of sum += m q. */
ALWAYS_INLINE void multiply(const struct tile *t, int R, unsigned K, const float *m, unsigned k,
                            const float *q, float (*sum)[SPR_LOWRANK_RANK_MAX][LANES])
{
    __m256 total[2][4];

    for (int r = 0; r < R; r++)
        for (unsigned x = 0; x < K; x++)
            total[r][x] = _mm256_loadu_ps(sum[r][k + x]);
    for (size_t j = 0; j < t->columns; j += LANES) {
        const float *from = q + j * t->rank + k * LANES;
        for (int r = 0; r < R; r++) {
            __m256 value = load(m + (size_t)r * t->stride + j, t->columns - j);
            for (unsigned x = 0; x < K; x++)
                total[r][x] = _mm256_add_ps(
                    total[r][x], _mm256_mul_ps(value, _mm256_loadu_ps(from + x * LANES)));
        }
    }
    for (int r = 0; r < R; r++)
        for (unsigned x = 0; x < K; x++)
            _mm256_storeu_ps(sum[r][k + x], total[r][x]);
}

/* STEP(K, k) for all columns of rank `rank`, the last one being known to it. */
#define BY_RANK(rank, STEP)                                                                        \
    do {                                                                                           \
        unsigned k = 0;                                                                            \
        for (; k + 4 <= (rank); k += 4)                                                            \
            STEP(4, k);                                                                            \
        if ((rank)&2) {                                                                            \
            STEP(2, k);                                                                            \
            k += 2;                                                                                \
        }                                                                                          \
        if ((rank)&1)                                                                              \
            STEP(1, k);                                                                            \
    } while (0)

/* One or two rows. */
ALWAYS_INLINE void project_tile(const struct tile *t, int R, float *m, const float *p[],
                                const float *q, const float *g, const float *from,
                                float (*sum)[SPR_LOWRANK_RANK_MAX][LANES])
{
#define UPDATE(K, k) update(t, R, K, m, p, k, q, (k) + (K) == t->rank ? g : NULL)
#define MULTIPLY(K, k) multiply(t, R, K, m, k, from, sum)
    if (p)
        BY_RANK(t->rank, UPDATE);
    else if (g)
        update(t, R, 0, m, p, 0, g, g);
    if (from)
        BY_RANK(t->rank, MULTIPLY);
#undef UPDATE
#undef MULTIPLY
}

static void project_rows(size_t rows, size_t columns, unsigned rank, float *m, const float *p[],
                         const float *q, const float *g, const float *from, float *const out[])
{
    float sum[ROWS][SPR_LOWRANK_RANK_MAX][LANES];

    for (size_t r = 0; r < rows; r++)
        memset(sum[r], 0, rank * sizeof(sum[r][0]));
    for (size_t at = 0; at < columns; at += CHUNK * LANES) {
        size_t end = at + CHUNK * LANES < columns ? at + CHUNK * LANES : columns, r = 0;
        struct tile t = {.stride = columns, .columns = end - at, .rank = rank};

        for (; r < rows; r += 2) {
            size_t where = r * columns + at;
            const float *q_at = q ? q + at * rank : NULL, *from_at = from ? from + at * rank : NULL;
            if (r + 2 <= rows)
                project_tile(&t, 2, m + where, p ? p + r : NULL, q_at, g ? g + where : NULL,
                             from_at, sum + r);
            else
                project_tile(&t, 1, m + where, p ? p + r : NULL, q_at, g ? g + where : NULL,
                             from_at, sum + r);
        }
    }
    for (size_t r = 0; from && r < rows; r++)
        for (unsigned k = 0; k < rank; k++)
            out[r][k * LANES] = sum_of_lanes(_mm256_loadu_ps(sum[r][k]));
}

static void project(float *m, size_t rows, size_t columns, unsigned rank, const float *p,
                    const float *q, const float *g, const float *from, float *out)
{
    if (from)
        memset(out, 0, spr_skinny_floats(rows, rank) * sizeof(*out));
    for (size_t i = 0; i < rows; i += ROWS) {
        size_t n = rows - i < ROWS ? rows - i : ROWS;
        const float *p_at[ROWS];
        float *out_at[ROWS];

        for (size_t r = 0; r < n; r++) {
            p_at[r] = p ? p + spr_skinny_at(i + r, 0, rank) : NULL;
            out_at[r] = from ? out + spr_skinny_at(i + r, 0, rank) : NULL;
        }
        project_rows(n, columns, rank, m + i * columns, p ? p_at : NULL, q,
                     g ? g + i * columns : NULL, from, out_at);
    }
}

/* Some groups of columns of four rows, K columns of p and q. */
ALWAYS_INLINE void correlate_tile(const __m256 *value, int groups, unsigned K, unsigned rank,
                                  const float *p, float *q)
{
    for (unsigned k = 0; k < K; k++) {
        __m256 a = _mm256_broadcast_ss(p + k * LANES), b = _mm256_broadcast_ss(p + k * LANES + 1);
        __m256 c = _mm256_broadcast_ss(p + k * LANES + 2),
               d = _mm256_broadcast_ss(p + k * LANES + 3);
        for (int x = 0; x < groups; x++) {
            float *to = q + ((size_t)x * rank + k) * LANES;
            __m256 s = _mm256_add_ps(_mm256_mul_ps(value[x * ROWS], a),
                                     _mm256_mul_ps(value[x * ROWS + 1], b));
            __m256 t = _mm256_add_ps(_mm256_mul_ps(value[x * ROWS + 2], c),
                                     _mm256_mul_ps(value[x * ROWS + 3], d));
            _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), _mm256_add_ps(s, t)));
        }
    }
}

/* The rows that are not there, and what is behind the last column, count as zero. */
ALWAYS_INLINE void correlate_groups(const float *m, size_t stride, size_t rows, size_t left,
                                    int groups, unsigned rank, const float *p, float *q)
{
    __m256 value[2 * ROWS];

    for (int x = 0; x < groups; x++)
        for (size_t r = 0; r < ROWS; r++)
            value[(size_t)x * ROWS + r] =
                r < rows ? load(m + r * stride + (size_t)x * LANES, left) : _mm256_setzero_ps();
#define CORRELATE(K, k) correlate_tile(value, groups, K, rank, p + (k)*LANES, q + (k)*LANES)
    BY_RANK(rank, CORRELATE);
#undef CORRELATE
}

static void correlate(const float *m, size_t rows, size_t columns, unsigned rank, const float *p,
                      float *q)
{
    memset(q, 0, spr_skinny_floats(columns, rank) * sizeof(*q));
    for (size_t i = 0; i < rows; i += ROWS) {
        const float *at = m + i * columns, *p_at = p + spr_skinny_at(i, 0, rank);
        size_t j = 0;

        for (; rows - i >= ROWS && j + 2 * LANES <= columns; j += 2 * LANES)
            correlate_groups(at + j, columns, ROWS, LANES, 2, rank, p_at, q + j * rank);
        for (; j < columns; j += LANES)
            correlate_groups(at + j, columns, rows - i, columns - j, 1, rank, p_at, q + j * rank);
    }
    /* Zero times what is not finite is behind the last column. */
    for (unsigned k = 0; columns % LANES && k < rank; k++) {
        float *last = q + spr_skinny_at(columns / LANES * LANES, k, rank);
        _mm256_storeu_ps(last, load(last, columns % LANES));
    }
}

static void expand(float *out, size_t rows, size_t columns, unsigned rank, const float *p,
                   const float *q, float scale)
{
    const __m256 factor = _mm256_set1_ps(scale);

    for (size_t i = 0; i < rows; i++) {
        const float *p_at = p + spr_skinny_at(i, 0, rank);
        for (size_t j = 0; j < columns; j += LANES) {
            __m256 sum = _mm256_setzero_ps();
            for (unsigned k = 0; k < rank; k++)
                sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_broadcast_ss(p_at + k * LANES),
                                                       _mm256_loadu_ps(q + j * rank + k * LANES)));
            store(out + i * columns + j, columns - j, _mm256_mul_ps(factor, sum));
        }
    }
}

const struct spr_lowrank_kernels spr_lowrank_kernels_avx2 = {
    .name = "avx2",
    .project = project,
    .correlate = correlate,
    .expand = expand,
};
