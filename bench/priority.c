/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the priority of an operation is worth: long sums are posted, then a short one, which is as
 * urgent as they are or more, in turn; until it is done, and until all are, on the slowest rank
 * (docs/tuning.md).
 *
 *     sparring-run -n 2 --emulate 1gbit -- bench/priority [BUCKETS [LONG [SHORT [PAIRS]]]]
 *
 * LONG and SHORT in floats; by default 8 1048576 65536 11. Figures are medians.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <sparring/sparring.h>

enum { MOST_BUCKETS = 1000, MOST_PAIRS = 1000 };

struct bench {
    spr_comm *comm;
    size_t buckets, length, urgent; /* elements */
    float *x;                       /* the long ones, and the short one */
};

static void require(spr_comm *comm, spr_status status)
{
    if (status == SPR_OK)
        return;
    fprintf(stderr, "priority: %s: %s\n", spr_status_name(status), spr_last_error(comm));
    spr_comm_destroy(comm); /* tells the others why */
    exit(1);
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

/* Milliseconds until the short one is done, and all are. */
static void measure(const struct bench *b, int priority, double *urgent_ms, double *all_ms)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_request *requests[MOST_BUCKETS], *urgent;
    double begin;

    require(b->comm, spr_barrier(b->comm, NULL));
    begin = now_ms();
    for (size_t i = 0; i < b->buckets; i++) {
        float *x = b->x + i * b->length;
        require(b->comm, spr_iallreduce(b->comm, x, x, b->length, SPR_FP32, SPR_AVG, &options,
                                        &requests[i]));
    }
    options.priority = priority;
    float *x = b->x + b->buckets * b->length;
    require(b->comm,
            spr_iallreduce(b->comm, x, x, b->urgent, SPR_FP32, SPR_AVG, &options, &urgent));
    require(b->comm, spr_wait(&urgent, -1));
    *urgent_ms = now_ms() - begin;
    for (size_t i = 0; i < b->buckets; i++)
        require(b->comm, spr_wait(&requests[i], -1));
    *all_ms = now_ms() - begin;
}

static double slowest(const struct bench *b, double *times, size_t n)
{
    require(b->comm, spr_allreduce(b->comm, times, times, n, SPR_FP64, SPR_MAX, NULL));
    qsort(times, n, sizeof *times, ascending);
    return times[n / 2];
}

/* 0: it is none. */
static size_t number(int argc, char **argv, int i, size_t otherwise)
{
    char *end;
    unsigned long long n;

    if (i >= argc)
        return otherwise;
    n = strtoull(argv[i], &end, 10);
    return *end || argv[i][0] == '-' || n > UINT32_MAX ? 0 : (size_t)n;
}

int main(int argc, char **argv)
{
    static double urgent_ms[2][MOST_PAIRS], all_ms[2][MOST_PAIRS];
    struct bench b = {NULL, number(argc, argv, 1, 8), number(argc, argv, 2, 1 << 20),
                      number(argc, argv, 3, 1 << 16), NULL};
    size_t pairs = number(argc, argv, 4, 11);
    double ignored[2];

    if (argc > 5 || !b.buckets || b.buckets > MOST_BUCKETS || pairs < 1 || pairs > MOST_PAIRS ||
        !b.length || !b.urgent) {
        fprintf(stderr, "usage: %s [BUCKETS [LONG [SHORT [PAIRS]]]]; at most %d and %d\n", argv[0],
                MOST_BUCKETS, MOST_PAIRS);
        return 2;
    }
    require(NULL, spr_comm_create(NULL, &b.comm));
    b.x = calloc(b.buckets * b.length + b.urgent, sizeof *b.x);
    if (!b.x) {
        fprintf(stderr, "priority: no memory\n");
        return 1;
    }
    measure(&b, 0, &ignored[0], &ignored[1]);
    for (size_t i = 0; i < pairs; i++)
        for (int k = 0; k < 2; k++)
            measure(&b, k, &urgent_ms[k][i], &all_ms[k][i]);
    for (int k = 0; k < 2; k++) {
        double urgent = slowest(&b, urgent_ms[k], pairs), all = slowest(&b, all_ms[k], pairs);
        if (spr_comm_rank(b.comm) == 0)
            printf("%zu x %zu floats, then %zu %-13s done after %7.2f of %7.2f ms\n", b.buckets,
                   b.length, b.urgent, k ? "more urgent:" : "as urgent:", urgent, all);
    }
    spr_comm_destroy(b.comm);
    free(b.x);
    return 0;
}
