/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/multi/grow.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define COUNT 100000

static char place[64];

static unsigned char state_byte(size_t i) { return (unsigned char)(i * 2654435761u >> 13); }

unsigned char *grow_state(size_t bytes)
{
    unsigned char *state = malloc(bytes + 1);

    RANK_CHECK(state != NULL);
    for (size_t i = 0; i < bytes; i++)
        state[i] = state_byte(i);
    return state;
}

void grow_choose_place(void)
{
    static int number;

    snprintf(place, sizeof place, "unix:test_grow.%d.%d", (int)getpid(), number++);
}

spr_grow_options grow_options(void)
{
    spr_grow_options options = SPR_GROW_OPTIONS_INIT;

    options.meet = place;
    options.wait_s = 30;
    return options;
}

spr_comm *grow_members(spr_comm *comm, const spr_grow_options *options)
{
    spr_comm *grown = NULL;

    if (spr_comm_grow(comm, options, &grown) != SPR_OK) {
        fprintf(stderr, "member %d: %s\n", spr_comm_rank(comm), spr_last_error(NULL));
        _exit(96);
    }
    return grown;
}

/* The same bits on all ranks. */
void grow_check_sums(spr_comm *comm)
{
    static float in[COUNT], out[COUNT];
    int rank = spr_comm_rank(comm), size = spr_comm_size(comm);
    float expected = (float)(size * (size + 1) / 2);

    for (size_t i = 0; i < COUNT; i++)
        in[i] = (float)(rank + 1);
    for (int k = 0; k < 3; k++) {
        if (spr_allreduce(comm, in, out, COUNT, SPR_FP32, SPR_SUM, NULL) != SPR_OK) {
            fprintf(stderr, "rank %d of %d: %s\n", rank, size, spr_last_error(comm));
            _exit(97);
        }
        for (size_t i = 0; i < COUNT; i++)
            RANK_CHECK(out[i] == expected);
    }
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
}

/* The job's own communicator goes first. */
void grow_leave(spr_comm *old, spr_comm *grown)
{
    spr_comm_destroy(old);
    grow_check_sums(grown);
    spr_comm_destroy(grown);
    _exit(0);
}

/* Newcomers ------------------------------------------------------------------------------------ */

static void *keep(void *ctx, size_t bytes)
{
    struct taken *taken = ctx;

    taken->bytes = malloc(bytes);
    taken->count = bytes;
    return taken->bytes;
}

spr_comm *grow_join(const struct newcomer *how, struct taken *taken)
{
    spr_comm_options create = SPR_COMM_OPTIONS_INIT;
    spr_grow_options options = grow_options();
    spr_comm *comm = NULL;
    spr_status status;

    if (how->setting)
        setenv(how->setting, how->value, 1);
    create.transports = how->transports;
    create.interface_name = job_interface;
    create.secret = how->secret ? how->secret : job_secret;
    create.secret_bytes = create.secret ? strlen(create.secret) + 1 : 0;
    if (how->wait_s > 0)
        options.wait_s = how->wait_s;
    options.create = &create;
    options.ctx = taken;
    options.take = how->no_take ? NULL : how->take ? how->take : keep;
    status = spr_comm_grow(NULL, &options, &comm);
    if (status) {
        RANK_CHECK(comm == NULL);
        fprintf(stderr, "newcomer %d: %s\n", (int)getpid(), spr_last_error(NULL));
        _exit(-status);
    }
    return comm;
}

pid_t grow_fork(void (*main)(void *arg), void *arg)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        job_alone();
        main(arg);
        _exit(0);
    }
    return pid;
}

static void newcomer_main(void *arg)
{
    const struct newcomer *how = arg;
    struct taken taken = {NULL, 0};
    spr_comm *comm = grow_join(how, &taken);

    RANK_CHECK(spr_comm_size(comm) == how->expected_size);
    RANK_CHECK(taken.count == how->state_bytes);
    for (size_t i = 0; i < taken.count; i++)
        RANK_CHECK(taken.bytes[i] == state_byte(i));
    free(taken.bytes);
    grow_check_sums(comm);
    spr_comm_destroy(comm);
}

pid_t grow_start(const struct newcomer *how)
{
    struct newcomer copy = *how;

    return grow_fork(newcomer_main, &copy);
}

/* Time ----------------------------------------------------------------------------------------- */

static uint64_t deadline_ns(void)
{
    return spr_monotonic_ns() + spr_seconds_ns(GROW_SECONDS * spr_time_factor());
}

int grow_end_of(pid_t pid)
{
    uint64_t deadline = deadline_ns();
    int status;

    while (waitpid(pid, &status, WNOHANG) != pid) {
        if (spr_monotonic_ns() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        job_pause_ms(1);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void grow_meet(struct job *job, int where, int how_many)
{
    _Atomic int *here = job_counter(job, where);
    uint64_t deadline = deadline_ns();

    atomic_fetch_add(here, 1);
    while (atomic_load(here) < how_many && spr_monotonic_ns() < deadline)
        usleep(100);
}

void grow_die_later(long us)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {{0, 0}, {us / 1000000, us % 1000000 * 1000 + 1}};
    timer_t timer;

    RANK_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    RANK_CHECK(timer_settime(timer, 0, &when, NULL) == 0);
}
