/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/multi/bootstrap_ranks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

struct outcome *outcomes;

struct plan make_plan(int size)
{
    struct plan p = {.size = size, .secret = "hush", .seconds = 30, .rounds = 3, .dies = -1};

    return p;
}

struct spr_auth_key make_key(const struct plan *p, int rank)
{
    struct spr_auth_key key = {.job = 77, .rank = rank, .size = p->size};

    key.secret_bytes = strlen(p->secret);
    memcpy(key.secret, p->secret, key.secret_bytes);
    if (rank == 1 && p->wrong_secret)
        key.secret[0] ^= 1;
    if (rank == 1 && p->odd_size)
        key.size = p->odd_size;
    return key;
}

static uint8_t expected(int rank, int round, size_t i)
{
    return (uint8_t)spr_hash_u32((uint64_t)rank << 40 | (uint64_t)round << 32 | i);
}

static size_t round_bytes(const struct plan *p, int rank, int round)
{
    static const size_t bytes[] = {8, 500, 0, 20000, 1};

    if (rank == 1 && p->odd_bytes)
        return p->odd_bytes;
    return bytes[round % 5];
}

static spr_status one_round(const struct plan *p, spr_bootstrap *boot, int rank, int round,
                            uint64_t deadline, struct spr_error *error)
{
    size_t bytes = round_bytes(p, rank, round);
    uint8_t *in = calloc(1, bytes + 1), *out = calloc((size_t)p->size, bytes + 1);
    spr_status status;

    for (size_t i = 0; i < bytes; i++)
        in[i] = expected(rank, round, i);
    status = spr_bootstrap_allgather(boot, in, out, bytes, deadline, error);
    for (int r = 0; r < p->size && status == SPR_OK; r++)
        for (size_t i = 0; i < bytes; i++)
            if (out[(size_t)r * bytes + i] != expected(r, round, i))
                status = SPR_ERR_CORRUPT;
    free(in);
    free(out);
    return status;
}

static spr_status run_rank(const struct plan *p, int rank, struct spr_error *error)
{
    uint64_t deadline = spr_monotonic_ns() + (uint64_t)(p->seconds * 1e9);
    struct spr_auth_key key = make_key(p, rank);
    spr_bootstrap boot = SPR_BOOTSTRAP_INIT;
    spr_status status;

    if (p->file)
        status = spr_bootstrap_file(p->file, &key, deadline, &boot, error);
    else
        status = spr_bootstrap_tcp(p->root, &key, false, deadline, &boot, error);
    if (status != SPR_OK)
        return status;
    for (int round = 0; round < p->rounds && status == SPR_OK; round++) {
        if (rank == p->dies && round == p->dies_round)
            raise(SIGKILL);
        status = one_round(p, &boot, rank, round, deadline, error);
    }
    boot.close(boot.ctx);
    return status;
}

_Noreturn void rank_process(const struct plan *p, int rank)
{
    struct outcome *o = &outcomes[rank];
    struct spr_error error = {.rank = -1};
    struct timespec half = {0, 500000000};
    uint64_t start;

    alarm(120); /* not inherited from the test */
    if (rank < 64 && p->late >> rank & 1)
        nanosleep(&half, NULL);
    start = spr_monotonic_ns();
    o->status = run_rank(p, rank, &error);
    o->ns = spr_monotonic_ns() - start;
    if (o->status == SPR_OK && spr_mem_live() != 0)
        o->status = SPR_ERR_NOMEM; /* a leak */
    o->blamed = error.rank;
    memcpy(o->text, error.text, sizeof(o->text));
    _exit(0);
}

void start_ranks(const struct plan *p)
{
    memset(outcomes, 0, MOST_RANKS * sizeof(*outcomes));
    fflush(NULL);
    for (int rank = 0; rank < p->size; rank++) {
        pid_t child;

        outcomes[rank].status = NEVER_RAN;
        if (rank < 64 && p->absent >> rank & 1)
            continue;
        child = fork();
        assert_true(child >= 0);
        if (child == 0)
            rank_process(p, rank);
    }
}

uint64_t run(const struct plan *p)
{
    uint64_t start = spr_monotonic_ns();

    start_ranks(p);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    return spr_monotonic_ns() - start;
}

void expect_all_ok(const struct plan *p)
{
    for (int rank = 0; rank < p->size; rank++)
        if (outcomes[rank].status != SPR_OK)
            fail_msg("rank %d: status %d: %s", rank, outcomes[rank].status, outcomes[rank].text);
}

void expect_text(int rank, spr_status status, const char *words)
{
    const struct outcome *o = &outcomes[rank];

    if (o->status != status || !strstr(o->text, words))
        fail_msg("rank %d: status %d, text '%s' instead of %d, '%s'", rank, o->status, o->text,
                 status, words);
}

int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port;

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &bytes), 0);
    port = ntohs(a.sin_port);
    close(fd);
    return port;
}

void choose_tcp(struct plan *p) { snprintf(p->root, sizeof(p->root), "127.0.0.1:%d", free_port()); }

/* The tests may themselves run as a rank of something. */
static void clear_identity(void)
{
    static const char *const names[] = {
        "SPARRING_RANK", "SPARRING_ROOT", "SPARRING_FILE", "SPARRING_SIZE", "RANK",
        "PMIX_RANK",     "PMI_RANK",      "SLURM_PROCID",  "SPARRING_JOB",  "OMPI_COMM_WORLD_RANK",
    };

    for (size_t i = 0; i < SPR_ARRAY_LEN(names); i++)
        unsetenv(names[i]);
}

uint64_t bootstrap_test_begin(void)
{
    uint64_t seed = spr_rng_test_seed();

    alarm(240);
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    clear_identity();
    outcomes = mmap(NULL, MOST_RANKS * sizeof(*outcomes), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED)
        abort();
    return seed;
}
