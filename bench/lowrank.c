/* SPDX-License-Identifier: BSD-2-Clause
 *
 * PowerSGD of one matrix, on one core: the step and its parts over the time to read the matrix
 * once, and the same step made of OpenBLAS's routines over ours (docs/codecs.md).
 *
 *     bench/lowrank [ROWS [COLUMNS [RANK [TRIPLES]]]]        4096 4096 4 31
 *
 * Each figure is the median of triples reference, operation, reference, at once.
 */
#include <cblas.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "compress/kernels/kernels.h"
#include "compress/lowrank/lowrank.h"

enum { MOST_TRIPLES = 1000 };

struct bench {
    size_t rows, columns;
    unsigned rank;
    int triples;
    struct spr_lowrank_tensor tensor;
    struct spr_lowrank l;
    float *gradient, *out, *p, *q;
    void *workspace;
    /* OpenBLAS's: plain row-major. */
    float *m, *blas_p, *blas_q;
};

typedef void operation(struct bench *b);

/* Where the sum goes, so that it is not left out by the compiler. */
static volatile float sink;

/* One stream into eight sums, as `sparring-codec bench` has it. */
static void read_matrix(struct bench *b)
{
    typedef float lanes __attribute__((vector_size(32), aligned(4), may_alias));
    lanes sum[8] = {{0}};
    size_t n = b->rows * b->columns;

    for (size_t i = 0; i + 64 <= n; i += 64)
        for (size_t s = 0; s < 8; s++)
            sum[s] += *(const lanes *)(const void *)(b->gradient + i + s * 8);
    for (size_t s = 1; s < 8; s++)
        sum[0] += sum[s];
    sink = sum[0][0];
}

static void ours_project(struct bench *b) { spr_lowrank_project(&b->l, b->gradient, b->p); }
static void ours_correlate(struct bench *b)
{
    spr_lowrank_correlate(&b->l, b->p, b->q, b->workspace);
}
/* The sums over ranks are those of one rank. What is decoded is not part of it, here and below. */
static void ours(struct bench *b)
{
    ours_project(b);
    ours_correlate(b);
    b->l.pending = true; /* what commit() makes of it */
}
/* Without the gradient, and nothing to take away. */
static void ours_multiply(struct bench *b)
{
    b->l.pending = false;
    spr_lowrank_project(&b->l, NULL, b->p);
}
static void ours_commit(struct bench *b)
{
    spr_lowrank_commit(&b->l, b->p, b->q, 1, b->out);
    b->l.pending = false;
}

static void blas(struct bench *b)
{
    int m = (int)b->rows, n = (int)b->columns, r = (int)b->rank;

    cblas_saxpy(m * n, 1, b->gradient, 1, b->m, 1);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, r, n, 1, b->m, n, b->blas_q, r, 0,
                b->blas_p, r);
    for (size_t i = 0; i < b->rows; i++) /* ours: it is a hundredth of the time */
        for (unsigned k = 0; k < b->rank; k++)
            b->p[spr_skinny_at(i, k, b->rank)] = b->blas_p[i * b->rank + k];
    spr_lowrank_orthogonalise(b->p, b->rows, b->rank, b->workspace);
    for (size_t i = 0; i < b->rows; i++)
        for (unsigned k = 0; k < b->rank; k++)
            b->blas_p[i * b->rank + k] = b->p[spr_skinny_at(i, k, b->rank)];
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, r, m, 1, b->m, n, b->blas_p, r, 0,
                b->blas_q, r);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, r, -1, b->blas_p, r, b->blas_q, r, 1,
                b->m, n);
}

static double seconds(operation *f, struct bench *b)
{
    uint64_t begin = spr_monotonic_ns();

    f(b);
    return (double)(spr_monotonic_ns() - begin) * 1e-9;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static void tell(struct bench *b, const char *name, operation *f, const char *reference_name,
                 operation *reference)
{
    static double ratio[MOST_TRIPLES], time[MOST_TRIPLES];

    for (int i = 0; i < b->triples; i++) {
        double before = seconds(reference, b);
        time[i] = seconds(f, b);
        ratio[i] = time[i] / ((before + seconds(reference, b)) / 2);
    }
    qsort(ratio, (size_t)b->triples, sizeof(*ratio), ascending);
    qsort(time, (size_t)b->triples, sizeof(*time), ascending);
    printf("| %-34s | %7.2f | %5.2f x %-4s | %5.2f .. %5.2f |\n", name, time[b->triples / 2] * 1e3,
           ratio[b->triples / 2], reference_name, ratio[b->triples / 4], ratio[b->triples * 3 / 4]);
}

static bool open_bench(struct bench *b)
{
    size_t n = b->rows * b->columns;

    b->tensor = (struct spr_lowrank_tensor){.rows = b->rows, .columns = b->columns};
    b->l = (struct spr_lowrank){.tensors = &b->tensor, .count = 1, .rank = b->rank};
    if (spr_lowrank_is_dense(&b->tensor, b->rank))
        return false;
    b->l.residual = spr_pages_alloc(n * sizeof(float));
    b->l.state = spr_pages_alloc(spr_lowrank_state_floats(&b->l) * sizeof(float));
    b->gradient = spr_pages_alloc(n * sizeof(float));
    b->out = spr_pages_alloc(n * sizeof(float));
    b->m = spr_pages_alloc(n * sizeof(float));
    b->p = spr_pages_alloc(spr_lowrank_p_floats(&b->l) * sizeof(float));
    b->q = spr_pages_alloc(spr_lowrank_q_floats(&b->l) * sizeof(float));
    b->blas_p = spr_pages_alloc(b->rows * b->rank * sizeof(float));
    b->blas_q = spr_pages_alloc(b->columns * b->rank * sizeof(float));
    b->workspace = spr_pages_alloc(spr_lowrank_workspace(&b->l));
    if (!b->l.residual || !b->l.state || !b->gradient || !b->out || !b->m || !b->p || !b->q ||
        !b->blas_p || !b->blas_q || !b->workspace)
        return false;
    for (size_t i = 0; i < n; i++)
        b->gradient[i] = (float)(int32_t)spr_hash_u32(i) * 0x1p-31f;
    spr_lowrank_reset(&b->l);
    for (size_t j = 0; j < b->columns; j++)
        for (unsigned k = 0; k < b->rank; k++)
            b->blas_q[j * b->rank + k] = b->l.state[spr_skinny_at(j, k, b->rank)];
    return true;
}

/* After two steps that start alike, both have the same residual. */
static bool same_result(struct bench *b)
{
    double difference = 0, all = 0;

    for (int step = 0; step < 2; step++) {
        ours(b);
        spr_lowrank_commit(&b->l, b->p, b->q, 1, b->out);
    }
    spr_lowrank_settle(&b->l);
    blas(b);
    blas(b);
    for (size_t i = 0; i < b->rows * b->columns; i++) {
        double d = (double)b->m[i] - (double)b->l.residual[i];
        difference += d * d;
        all += (double)b->m[i] * (double)b->m[i];
    }
    return sqrt(difference) < 1e-3 * sqrt(all);
}

int main(int argc, char **argv)
{
    struct bench b = {.rows = argc > 1 ? strtoul(argv[1], NULL, 10) : 4096,
                      .columns = argc > 2 ? strtoul(argv[2], NULL, 10) : 4096,
                      .rank = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 4,
                      .triples = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 31};
    int cpu = sched_getcpu();
    cpu_set_t here;

    CPU_ZERO(&here);
    CPU_SET((size_t)(cpu < 0 ? 0 : cpu), &here);
    if (sched_setaffinity(0, sizeof(here), &here) != 0)
        fputs("lowrank: cannot stay on one core: figures will move\n", stderr);
    if (b.rank < 1 || b.rank > SPR_LOWRANK_RANK_MAX || b.triples < 1 || b.triples > MOST_TRIPLES ||
        !open_bench(&b)) {
        fputs("lowrank: no memory, or a matrix that is too small for this rank (1 to 32)\n",
              stderr);
        return 2;
    }
    openblas_set_num_threads(1);
    if (!same_result(&b)) {
        fputs("lowrank: a wrong result\n", stderr);
        return 1;
    }
    printf("%zu x %zu, rank %u, %s, %d triples\n\n", b.rows, b.columns, b.rank,
           spr_lowrank_kernels()->name, b.triples);
    puts("| operation                          |      ms | ratio         | quartiles      |");
    puts("|---|---|---|---|");
    tell(&b, "step", ours, "read", read_matrix);
    tell(&b, "P = M Q", ours_multiply, "read", read_matrix);
    tell(&b, "first pass, all of it", ours_project, "read", read_matrix);
    tell(&b, "orthogonalise, Q = M^T P", ours_correlate, "read", read_matrix);
    tell(&b, "decode the result", ours_commit, "read", read_matrix);
    tell(&b, "step, made of OpenBLAS's routines", blas, "ours", ours);
    return 0;
}
