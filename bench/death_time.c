/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How long it takes from the death of a rank to the error on each of the others, and until these
 * have shrunk the communicator and summed again. Run by bench/deaths under sparring-run, once per
 * death: the rank that follows the victim kills it at a random moment of a loop of collectives.
 *
 *   death_time FILE VICTIM RESIDENT_MIB ELEMENTS
 *
 * FILE is where the ranks meet. Each survivor writes "ms  ms  rank  error"; the second is 0 where
 * it could not go on.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <sparring/sparring.h>

struct meeting {
    _Atomic uint64_t killed_ns;
    _Atomic int victim;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_ms(long ms) { nanosleep(&(struct timespec){0, ms * 1000000}, NULL); }

static struct meeting *meet(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *map = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, sizeof(struct meeting)) == 0)
        map = mmap(NULL, sizeof(struct meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        perror(path);
        exit(2);
    }
    return map;
}

static void *killer(void *arg)
{
    struct meeting *m = arg;

    sleep_ms(20 + (long)(now_ns() / 1000 % 60));
    atomic_store(&m->killed_ns, now_ns());
    kill(atomic_load(&m->victim), SIGKILL);
    return NULL;
}

static double since_ms(const struct meeting *m)
{
    return (double)(now_ns() - atomic_load(&m->killed_ns)) * 1e-6;
}

/* After a death: the survivors, and one more sum of ones. */
static bool go_on(spr_comm *comm, float *x, size_t elements)
{
    for (size_t i = 0; i < elements; i++)
        x[i] = 1;
    if (spr_comm_shrink(comm, 0, NULL) != SPR_OK ||
        spr_allreduce(comm, x, x, elements, SPR_FP32, SPR_SUM, NULL) != SPR_OK)
        return false;
    return x[elements - 1] == (float)spr_comm_size(comm);
}

static long number(const char *text) { return strtol(text, NULL, 10); }

int main(int argc, char **argv)
{
    spr_comm *comm = NULL;
    spr_status status = SPR_OK;
    struct meeting *m;
    pthread_t thread;
    int rank, victim;
    size_t bytes, elements;
    char error[512];
    double error_ms;
    bool good;
    float *x;

    if (argc != 5 || spr_comm_create(NULL, &comm) != SPR_OK) {
        fprintf(stderr, "%s\n", argc != 5 ? "four arguments" : spr_last_error(NULL));
        return 2;
    }
    m = meet(argv[1]);
    rank = spr_comm_rank(comm);
    victim = (int)number(argv[2]);
    bytes = (size_t)number(argv[3]) << 20;
    elements = (size_t)number(argv[4]);
    x = calloc(elements, sizeof *x);
    if (rank == victim) {
        char *resident = malloc(bytes + 1);
        if (!resident)
            return 2;
        memset(resident, 1, bytes + 1);
        atomic_store(&m->victim, getpid());
    }
    if (spr_barrier(comm, NULL) != SPR_OK || !x)
        return 2;
    if (rank == (victim + 1) % spr_comm_size(comm) && pthread_create(&thread, NULL, killer, m))
        return 2;
    while (status == SPR_OK)
        status = spr_allreduce(comm, x, x, elements, SPR_FP32, SPR_SUM, NULL);
    error_ms = since_ms(m);
    snprintf(error, sizeof error, "%s: %s", spr_status_name(status), spr_last_error(comm));
    good = go_on(comm, x, elements);
    printf("%8.3f  %8.3f  %d  %s\n", error_ms, good ? since_ms(m) : 0.0, rank, error);
    fflush(stdout);
    spr_comm_destroy(comm);
    free(x);
    return 0;
}
