/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What other operations are compared with: a read, r += g, and a copy. Their own ratios say how
 * these relate to each other on the machine.
 */
#include "tools/codec/operations.h"

#include "base/cpu.h"
#include "compress/kernels/kernels.h"

typedef float lanes __attribute__((vector_size(32), aligned(4), may_alias));
enum { LANES = 8, SUMS = 8 };

/* One stream. Eight sums, since each would wait for the last addition into it. */
static inline __attribute__((always_inline)) float sum(const float *x, size_t n)
{
    lanes sums[SUMS] = {{0}};
    float all = 0;
    size_t i = 0;

    for (; i + SUMS * LANES <= n; i += SUMS * LANES)
        for (size_t s = 0; s < SUMS; s++)
            sums[s] += *(const lanes *)(const void *)(x + i + s * LANES);
    for (; i < n; i++)
        all += x[i];
    for (size_t s = 0; s < SUMS; s++)
        for (size_t lane = 0; lane < LANES; lane++)
            all += sums[s][lane];
    return all;
}

#ifdef HAVE_X86
static __attribute__((target("avx2"), noinline)) float sum_avx2(const float *x, size_t n)
{
    return sum(x, n);
}
#endif

static __attribute__((noinline)) float sum_plain(const float *x, size_t n) { return sum(x, n); }

static float sum_of(const float *x, size_t n)
{
#ifdef HAVE_X86
    if (spr_cpu_features() & SPR_CPU_AVX2)
        return sum_avx2(x, n);
#endif
    return sum_plain(x, n);
}

/* Where a slice's sum goes, so that it is not left out by the compiler. */
static volatile float sink;

static bool read_setup(struct trial *trial, struct spr_error *error)
{
    (void)trial;
    (void)error;
    return true;
}

static void read_run(struct trial *trial, int slice, int slices)
{
    size_t begin, end;

    span_of(trial->vector->n, slice, slices, &begin, &end);
    sink = sum_of(trial->vector->x + begin, end - begin);
}

static bool read_check(struct trial *trial, struct spr_error *error)
{
    static const float ones[100] = {[0 ... 99] = 1};

    (void)trial;
    for (size_t n = 0; n <= 100; n++)
        if (sum_of(ones, n) != (float)n)
            return spr_error_set(error, SPR_ERR_INVALID, -1, "a wrong sum") == SPR_OK;
    return true;
}

/* state: r, or where the copy goes. */
static bool write_setup(struct trial *trial, struct spr_error *error)
{
    trial->state = trial_pages(trial, trial->vector->n * sizeof(float), error);
    return trial->state != NULL;
}

static void add_run(struct trial *trial, int slice, int slices)
{
    size_t begin, end;

    span_of(trial->vector->n, slice, slices, &begin, &end);
    spr_kernels()->sum((float *)trial->state + begin, (float *)trial->state + begin,
                       trial->vector->x + begin, end - begin);
}

static void copy_run(struct trial *trial, int slice, int slices)
{
    size_t begin, end;

    span_of(trial->vector->n, slice, slices, &begin, &end);
    memcpy((float *)trial->state + begin, trial->vector->x + begin, (end - begin) * sizeof(float));
}

/* After one run on zeros, both leave x. */
static bool write_check(struct trial *trial, struct spr_error *error)
{
    trial->error = relative_error(trial->vector->x, trial->state, trial->vector->n);
    if (trial->error > 0)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "a wrong result") == SPR_OK;
    return true;
}

void op_reference_add(struct operations *list)
{
    struct operation row = {.reference = REFERENCE_READ,
                            .sliced = true,
                            .next = one_phase,
                            .setup = read_setup,
                            .prepare = no_prepare,
                            .run = read_run,
                            .check = read_check,
                            .close = no_close};

    operations_add(list, &row, "read");
    row.setup = write_setup;
    row.check = write_check;
    row.run = add_run;
    operations_add(list, &row, "r+=g");
    row.run = copy_run;
    operations_add(list, &row, "memcpy");
}
