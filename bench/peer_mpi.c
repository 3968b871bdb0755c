/* SPDX-License-Identifier: BSD-2-Clause
 *
 * peer_mpi ELEMENTS WARMUP ITERATIONS SECONDS: MPI_Allreduce of fp32 under mpirun, for
 * bench/compare. Each iteration counts from a barrier to its slowest rank. Fewer than ITERATIONS
 * (at least one) when they would take longer than SECONDS. Rank 0 prints one line of JSON.
 */
#include <mpi.h>

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Whole numbers, so that sums are exact in any order. The sum over ranks: see count_wrong(). */
enum { PERIOD = 251, OFFSET = 100 };

struct bench {
    int rank, size, elements;
    float *send, *recv;
    double cpu_us; /* user and system, of what is timed */
};

struct bytes {
    double received, sent;
};

static void out_of_memory(void)
{
    fprintf(stderr, "peer_mpi: out of memory\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What the interfaces of this network namespace have carried, loopback left out. */
static struct bytes link_bytes(void)
{
    struct bytes sum = {0, 0};
    char line[512], name[64];
    double received, sent;
    FILE *file = fopen("/proc/self/net/dev", "re");

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, " %63[^: ]: %lf %*s %*s %*s %*s %*s %*s %*s %lf", name, &received,
                   &sent) != 3 ||
            strcmp(name, "lo") == 0)
            continue;
        sum.received += received;
        sum.sent += sent;
    }
    if (file != NULL)
        fclose(file);
    return sum;
}

static double cpu_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* The duration on this rank, in us. */
static double iterate(struct bench *bench)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double cpu = cpu_us(), begin = MPI_Wtime();
    MPI_Allreduce(bench->send, bench->recv, bench->elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double us = (MPI_Wtime() - begin) * 1e6;
    bench->cpu_us += cpu_us() - cpu;
    return us;
}

static int64_t count_wrong(struct bench *bench)
{
    int64_t wrong = 0;
    int weights = bench->size * (bench->size + 1) / 2; /* 1 + 2 + ... */
    float weight = (float)weights;
    float offset = (float)(OFFSET * bench->size);

    memset(bench->recv, 0xff, (size_t)bench->elements * sizeof(float));
    iterate(bench);
    for (int i = 0; i < bench->elements; i++)
        wrong += !(bench->recv[i] == (float)(i % PERIOD) * weight - offset);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return wrong;
}

/* How many iterations fit, the same on all ranks. */
static int warm_up(struct bench *bench, int warmup, int iterations, double seconds)
{
    double us = 0;

    for (int i = 0; i < warmup; i++)
        us = iterate(bench);
    MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (us * iterations <= seconds * 1e6)
        return iterations;
    int fit = (int)(seconds * 1e6 / us);
    return fit > 1 ? fit : 1;
}

static void print(const struct bench *bench, const double *us, int iterations, struct bytes bytes,
                  int64_t wrong)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;

    if (bench->rank != 0)
        return;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\"\\\n")] = '\0';
    printf("{\"version\": \"%s\", \"ranks\": %d, \"elements\": %d, \"wrong\": %" PRId64
           ", \"sent_bytes\": %.0f, \"recv_bytes\": %.0f, \"cpu_sum_us\": %.3f, \"times_us\": [",
           library, bench->size, bench->elements, wrong, bytes.sent, bytes.received, bench->cpu_us);
    for (int i = 0; i < iterations; i++)
        printf("%s%.3f", i > 0 ? ", " : "", us[i]);
    puts("]}");
}

static void measure(struct bench *bench, int warmup, int iterations, double seconds)
{
    iterations = warm_up(bench, warmup, iterations, seconds);
    if (bench->rank == 0)
        fputs("peer_mpi: timing\n", stderr); /* for bench/verbs */
    double *us = calloc((size_t)iterations, sizeof *us);
    if (us == NULL)
        out_of_memory();
    bench->cpu_us = 0;
    struct bytes before = link_bytes();
    for (int i = 0; i < iterations; i++)
        us[i] = iterate(bench);
    struct bytes after = link_bytes();
    struct bytes bytes = {(after.received - before.received) / iterations,
                          (after.sent - before.sent) / iterations};
    double cpu_sum = bench->cpu_us / iterations;
    MPI_Allreduce(MPI_IN_PLACE, &cpu_sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, us, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &bytes.received, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &bytes.sent, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    int64_t wrong = count_wrong(bench);
    bench->cpu_us = cpu_sum;
    print(bench, us, iterations, bytes, wrong);
    free(us);
}

int main(int argc, char **argv)
{
    struct bench bench = {0};
    if (argc != 5 || strtol(argv[1], NULL, 10) < 1 || strtol(argv[2], NULL, 10) < 1 ||
        strtol(argv[3], NULL, 10) < 1) {
        fprintf(stderr, "usage: peer_mpi ELEMENTS WARMUP ITERATIONS SECONDS\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.size);
    bench.elements = (int)strtol(argv[1], NULL, 10);
    bench.send = malloc((size_t)bench.elements * sizeof(float));
    bench.recv = malloc((size_t)bench.elements * sizeof(float));
    if (bench.send == NULL || bench.recv == NULL)
        out_of_memory();
    for (int i = 0; i < bench.elements; i++)
        bench.send[i] = (float)(i % PERIOD) * (float)(bench.rank + 1) - OFFSET;
    memset(bench.recv, 0, (size_t)bench.elements * sizeof(float));
    measure(&bench, (int)strtol(argv[2], NULL, 10), (int)strtol(argv[3], NULL, 10),
            strtod(argv[4], NULL));
    free(bench.send);
    free(bench.recv);
    return MPI_Finalize() == MPI_SUCCESS ? 0 : 1;
}
