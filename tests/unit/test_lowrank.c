/* SPDX-License-Identifier: BSD-2-Clause
 *
 * PowerSGD: against a naive one in double, over simulated ranks, and what it reaches.
 */
#include "tests/unit/lowrank_world.h"

/* ---- the naive one: algorithms 1 and 2 of the paper, with the mean taken away, as its code ----
 */

struct naive {
    size_t m, n;
    unsigned r, ranks;
    double *error, *q, *p, *sum, *update;
};

static void naive_orthogonalise(double *p, size_t m, unsigned r)
{
    for (unsigned k = 0; k < r; k++)
        for (int normalise = 0; normalise < 2; normalise++)
            for (unsigned o = 0; o < (normalise ? 1 : k); o++) {
                double dot = 0;
                for (size_t i = 0; i < m; i++)
                    dot += p[i * r + k] * p[i * r + (normalise ? k : o)];
                for (size_t i = 0; i < m; i++)
                    p[i * r + k] =
                        normalise ? p[i * r + k] / sqrt(dot) : p[i * r + k] - dot * p[i * r + o];
            }
}

static void naive_step(struct naive *v, const float *gradient)
{
    size_t size = v->m * v->n;

    for (size_t i = 0; i < v->ranks * size; i++)
        v->error[i] += (double)gradient[i];
    memset(v->sum, 0, size * sizeof(double));
    for (size_t i = 0; i < v->ranks * size; i++)
        v->sum[i % size] += v->error[i] / v->ranks;
    for (size_t i = 0; i < v->m * v->r; i++) {
        v->p[i] = 0;
        for (size_t j = 0; j < v->n; j++)
            v->p[i] += v->sum[i / v->r * v->n + j] * v->q[j * v->r + i % v->r];
    }
    naive_orthogonalise(v->p, v->m, v->r);
    for (size_t j = 0; j < v->n * v->r; j++) {
        v->q[j] = 0;
        for (size_t i = 0; i < v->m; i++)
            v->q[j] += v->sum[i * v->n + j / v->r] * v->p[i * v->r + j % v->r];
    }
    for (size_t i = 0; i < size; i++) {
        v->update[i] = 0;
        for (unsigned k = 0; k < v->r; k++)
            v->update[i] += v->p[i / v->n * v->r + k] * v->q[i % v->n * v->r + k];
        for (unsigned rank = 0; rank < v->ranks; rank++)
            v->error[rank * size + i] -= v->update[i];
    }
}

static void every_step_is_that_of_the_paper(void **state)
{
    enum { RANKS = 3, STEPS = 12 };
    static const struct spr_lowrank_tensor shapes[] = {
        {0, 40, 60}, {0, 61, 33}, {0, 130, 17}, {0, 17, 100}, {0, 64, 64}};

    int off = 0; /* cases */

    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(shapes); s++)
        for (unsigned r = 1; r <= 5; r++) {
            struct naive v = {.m = shapes[s].rows, .n = shapes[s].columns, .r = r, .ranks = RANKS};
            size_t size = v.m * v.n;
            double most = 0;
            struct world w;

            world_open(&w, RANKS, &shapes[s], 1, r);
            v.error = zeros(RANKS * size, sizeof(double));
            v.sum = zeros(size, sizeof(double));
            v.update = zeros(size, sizeof(double));
            v.p = zeros(v.m * r, sizeof(double));
            v.q = zeros(v.n * r, sizeof(double));
            for (size_t j = 0; j < v.n * r; j++)
                v.q[j] = (double)w.rank[0].state[spr_skinny_at(j / r, (unsigned)(j % r), r)];
            float *g = zeros(RANKS * size, sizeof(float));
            for (int step = 0; step < STEPS; step++) {
                double error = 0, all = 0;
                fill(g, RANKS * size);
                naive_step(&v, g);
                world_step(&w, g, 1.0f / RANKS, 3);
                for (size_t i = 0; i < size; i++) {
                    error += pow(v.update[i] - (double)w.out[i], 2);
                    all += pow(v.update[i], 2);
                }
                if (!(sqrt(error / all) < 2e-2))
                    fail_msg("%zux%zu rank %u step %d: off by %g", v.m, v.n, r, step,
                             sqrt(error / all));
                most = fmax(most, sqrt(error / all));
            }
            off += most > 2e-4;
            free(g);
            free(v.error);
            free(v.sum);
            free(v.update);
            free(v.p);
            free(v.q);
            world_close(&w);
        }
    assert_true(off <= 1);
}

/* ---- what it reaches ---- */

/* The first factor is drawn at random. How near it comes to losing a dimension of the matrix
 * multiplies the rounding errors, and feedback passes them on: a few 1e-7 as a rule, but above 1e-5
 * with 7 of 400 seeds. So a median of several matrices is what is bounded. (Above, one case of 25
 * may be off: one is with 2 of 900 seeds.) */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* What is left of a matrix in three steps, over the matrix: at most. */
static double left_of(const float *x, const struct spr_lowrank_tensor *shape)
{
    size_t size = shape->rows * shape->columns;
    float *rest = zeros(size, sizeof(float));
    double most = 0;
    struct world w;

    world_open(&w, 1, shape, 1, 4);
    for (int step = 0; step < 3; step++) {
        world_step(&w, x, 1, 3);
        residual_of(&w, 0, rest);
        most = data_larger(most, norm(w.out, x, size) / norm(x, NULL, size));
        most = data_larger(most, norm(rest, NULL, size) / norm(x, NULL, size));
    }
    world_close(&w);
    free(rest);
    return most;
}

static void a_matrix_of_the_rank_is_sent_in_one_step(void **state)
{
    enum { MATRICES = 7 };
    static const struct spr_lowrank_tensor shape = {0, 50, 70};
    static const unsigned real_rank[] = {4, 2, 1}; /* of those two, columns depend on others */
    float x[50 * 70];

    (void)state;
    for (size_t c = 0; c < SPR_ARRAY_LEN(real_rank); c++) {
        double left[MATRICES];
        for (int i = 0; i < MATRICES; i++) {
            low_rank(x, 50, 70, real_rank[c], 1);
            left[i] = left_of(x, &shape);
        }
        qsort(left, MATRICES, sizeof *left, by_size);
        if (!(left[MATRICES / 2] < 1e-5 && left[MATRICES - 1] < 2e-2))
            fail_msg("rank %u: off by %g, at most %g", real_rank[c], left[MATRICES / 2],
                     left[MATRICES - 1]);
    }
}

/* Without feedback, the same matrix again: subspace iteration. Singular values 1/(1+k)^2 on random
 * orthonormal vectors, so the best approximation is known. */
static void warm_start_approaches_the_best_approximation(void **state)
{
    enum { M = 96, N = 64, R = 4, ALL = 16 };
    static const struct spr_lowrank_tensor shape = {0, M, N};
    static float u[M * ALL], v[N * ALL], x[M * N];
    static double workspace[M * ALL];
    double best = 0, first = 0, last = 0;
    struct world w;

    (void)state;
    fill(u, M * ALL);
    fill(v, N * ALL);
    spr_lowrank_orthogonalise(u, M, ALL, workspace);
    spr_lowrank_orthogonalise(v, N, ALL, workspace);
    for (unsigned k = 0; k < ALL; k++) {
        double s = 1 / pow(1 + k, 2);
        for (size_t i = 0; i < M; i++)
            for (size_t j = 0; j < N; j++)
                x[i * N + j] += (float)(s * (double)u[spr_skinny_at(i, k, ALL)] *
                                        (double)v[spr_skinny_at(j, k, ALL)]);
        best += k >= R ? s * s : 0;
    }
    best = sqrt(best);
    world_open(&w, 1, &shape, 1, R);
    for (int step = 0; step < 30; step++) {
        spr_lowrank_settle(w.rank);
        memset(w.rank[0].residual, 0, M * N * sizeof(float)); /* no feedback */
        world_step(&w, x, 1, 3);
        last = norm(w.out, x, M * N);
        assert_true(last > best * (1 - 1e-5));
        first = step == 0 ? last : first;
    }
    assert_true(last < best * (1 + 1e-4));
    assert_true(first > best * 1.05); /* it was not there at once */
    world_close(&w);
}

/* Feedback: the same gradient again and again; the mean of what is sent goes to it. */
static void feedback_sends_everything_in_the_end(void **state)
{
    enum { M = 24, N = 36, STEPS = 200 };
    static const struct spr_lowrank_tensor shape = {0, M, N};
    float x[M * N], rest[M * N];
    struct world w;

    (void)state;
    world_open(&w, 1, &shape, 1, 2);
    fill(x, M * N);
    for (int step = 0; step < STEPS; step++)
        world_step(&w, x, 1, 3);
    residual_of(&w, 0, rest); /* a part of STEPS x that goes to zero */
    assert_true(norm(rest, NULL, M * N) < 0.1 * STEPS * norm(x, NULL, M * N));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_is_that_of_the_paper),
        cmocka_unit_test(a_matrix_of_the_rank_is_sent_in_one_step),
        cmocka_unit_test(warm_start_approaches_the_best_approximation),
        cmocka_unit_test(feedback_sends_everything_in_the_end),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
