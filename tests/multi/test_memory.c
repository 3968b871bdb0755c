/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a rank takes: nothing more after many small collectives, and for a large one no more than
 * its residual, the union and a constant. As the kernel counts it: the rank's own pages, and its
 * part of those that it shares (Pss).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"
#include "tests/reference.h"

/* Of this process, in bytes. */
static size_t proportional_set(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    size_t kib = 0;

    RANK_CHECK(file != NULL);
    while (kib == 0 && fgets(line, sizeof line, file))
        (void)sscanf(line, "Pss: %zu kB", &kib);
    fclose(file);
    RANK_CHECK(kib > 0);
    return kib << 10;
}

/* ---- Many small ones ------------------------------------------------------------------------- */

enum { SMALL = 1000, KEPT = 5, UNDER_WAY = 8, GROWTH = 512 << 10 };

static _Alignas(64) float buffer[UNDER_WAY][SMALL];

/* So many at the same time: dense, a list, a codec's, a barrier, and again. */
static void run_several(spr_comm *comm, spr_codec *const codec[UNDER_WAY])
{
    static const uint32_t index[KEPT] = {0, 9, 99, 500, 999};
    static const float value[KEPT] = {1, 2, 3, 4, 5};
    const spr_sparse list = {(uint32_t *)index, (float *)value, KEPT, 0};
    spr_request *requests[UNDER_WAY];
    float ranks = (float)spr_comm_size(comm);

    for (int i = 0; i < UNDER_WAY; i++) {
        float *b = buffer[i];
        for (int k = 0; k < SMALL; k++)
            b[k] = 1;
        spr_status status =
            i % 4 == 0 ? spr_iallreduce(comm, b, b, SMALL, SPR_FP32, SPR_SUM, NULL, &requests[i])
            : i % 4 == 1
                ? spr_isparse_allreduce(comm, &list, SMALL, b, NULL, SPR_SUM, NULL, &requests[i])
            : i % 4 == 2 ? spr_icompressed_allreduce(comm, codec[i], b, SPR_SUM, NULL, &requests[i])
                         : spr_ibarrier(comm, NULL, &requests[i]);
        RANK_CHECK(status == SPR_OK);
    }
    for (int i = 0; i < UNDER_WAY; i++)
        RANK_CHECK(spr_wait(&requests[i], -1) == SPR_OK);
    RANK_CHECK(buffer[0][7] >= ranks && buffer[0][7] <= ranks);
    RANK_CHECK(buffer[1][9] >= 2 * ranks && buffer[1][9] <= 2 * ranks && buffer[5][999] > 0);
}

static void run_many(struct job *job, int rank, spr_comm *comm)
{
    spr_layout layout = {1, "w", 0, SMALL, 1};
    spr_codec *codec[UNDER_WAY] = {NULL};
    int rounds = fault_repeats(20000, 1000000) / UNDER_WAY + 1;
    size_t pss = 0, now;
    int64_t live = 0;

    for (int i = 2; i < UNDER_WAY; i += 4)
        RANK_CHECK(!spr_codec_create("topk:ratio=1%", &layout, 1, &codec[i]));
    for (int i = 0; i < rounds; i++) {
        run_several(comm, codec);
        if (i == rounds / 4) {
            pss = proportional_set();
            live = spr_mem_live();
        }
    }
    now = proportional_set();
    fprintf(stderr,
            "rank %d over %s: %d collectives; Pss %zu KiB, after a quarter %zu; %lld and %lld "
            "pieces of memory\n",
            rank, job->transports, rounds * UNDER_WAY, now >> 10, pss >> 10,
            (long long)spr_mem_live(), (long long)live);
    /* A message that comes as early as none before may take another buffer. */
    RANK_CHECK(spr_mem_live() <= live + 8);
    RANK_CHECK(reference_small_scale() || now <= pss + GROWTH);
    for (int i = 2; i < UNDER_WAY; i += 4)
        spr_codec_destroy(codec[i]);
}

static void many_small_collectives_leave_nothing_behind(void **state)
{
    (void)state;
    job_on_all_transports(2, run_many, NULL, fault_repeats(120, 3600));
}

/* ---- A large one ----------------------------------------------------------------------------- */

enum { SIZE = 4, LARGE = 4 << 20, STEPS = 4 };
#define CONSTANT ((size_t)12 << 20) /* less than one more vector */

static void run_large(struct job *job, int rank, spr_comm *comm)
{
    spr_layout layout = {1, "w", 0, LARGE, 1};
    size_t vector = LARGE * sizeof(float), before, after, limit, entries = 0;
    float *gradient;
    spr_codec *codec;

    RANK_CHECK(!spr_mem_alloc(comm, vector, (void **)&gradient));
    memset(gradient, 1, vector);
    before = proportional_set(); /* the bucket is the caller's */
    RANK_CHECK(!spr_codec_create("topk:ratio=1%", &layout, 1, &codec));
    for (uint64_t s = 0; s < STEPS; s++) {
        uint64_t key = s << 32 | (uint64_t)(unsigned)rank;
        for (size_t i = 0; i < LARGE; i++)
            gradient[i] = (float)(spr_hash_u32(key << 24 ^ i) >> 8) * 0x1p-24f;
        RANK_CHECK(!spr_compressed_allreduce(comm, codec, gradient, SPR_SUM, NULL));
    }
    after = proportional_set();
    for (size_t i = 0; i < LARGE; i++)
        entries += gradient[i] > 0;
    RANK_CHECK(entries > LARGE / 100);
    limit = before + vector + entries * 8 * 3 / 2 + CONSTANT;
    fprintf(stderr,
            "rank %d over %s: %.1f MiB more than before the codec: residual %.1f, 1.5 unions %.1f, "
            "%.1f beside them\n",
            rank, job->transports, (double)(after - before) / (1 << 20), (double)vector / (1 << 20),
            (double)entries * 12 / (1 << 20),
            ((double)after - (double)before - (double)vector - (double)entries * 12) / (1 << 20));
    RANK_CHECK(after <= limit);
    spr_codec_destroy(codec);
    spr_mem_free(comm, gradient);
}

static void a_rank_takes_residual_union_and_a_constant(void **state)
{
    (void)state;
    if (reference_small_scale())
        skip(); /* a sanitizer has memory of its own */
    job_on_all_transports(SIZE, run_large, NULL, 120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_small_collectives_leave_nothing_behind),
        cmocka_unit_test(a_rank_takes_residual_union_and_a_constant),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
