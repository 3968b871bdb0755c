/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Torture: the n-th allocation fails, the n-th call of mmap, socket, epoll_create ... fails, for
 * every n, and there are only n descriptors. Two ranks make a communicator and use it; in one of
 * them something fails once. Each call then either works or gives an error with a text; nothing
 * crashes, hangs or leaks, and the next communicator of the same processes works.
 *
 * The calls of the library are caught by the linker (--wrap in tests/local.mk).
 */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
#ifdef HAVE_URING
#include <liburing.h>
#endif

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"

#define SECONDS 240
/* A rank that fails during start-up leaves the other one waiting. */
#define INIT_TIMEOUT_S 0.3

/* The calls that can fail ---------------------------------------------------------------------- */

static const char *failing;        /* name of the call that will fail; NULL: none */
static _Atomic uint64_t countdown; /* 1: the next one */

static bool fails(const char *name)
{
    uint64_t n = atomic_load(&countdown);

    if (n == 0 || !failing || strcmp(failing, name) != 0)
        return false;
    while (n != 0 && !atomic_compare_exchange_weak(&countdown, &n, n - 1))
        ;
    return n == 1;
}

/* clang-format off */
#define WRAP(type, name, error, on_error, params, args)                                            \
    type __real_##name params;                                                                     \
    type __wrap_##name params;                                                                     \
    type __wrap_##name params                                                                      \
    {                                                                                              \
        if (fails(#name)) {                                                                        \
            errno = error;                                                                         \
            return on_error;                                                                       \
        }                                                                                          \
        return __real_##name args;                                                                 \
    }
WRAP(int, accept4, ENFILE, -1, (int fd, struct sockaddr *a, socklen_t *n, int flags),
     (fd, a, n, flags))
WRAP(int, bind, EADDRINUSE, -1, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
WRAP(int, connect, ECONNREFUSED, -1, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
WRAP(int, epoll_create1, EMFILE, -1, (int flags), (flags))
WRAP(int, eventfd, ENFILE, -1, (unsigned value, int flags), (value, flags))
WRAP(int, ftruncate, EINVAL, -1, (int fd, off_t n), (fd, n))
WRAP(int, getifaddrs, ENOMEM, -1, (struct ifaddrs **list), (list))
WRAP(ssize_t, getrandom, ENOSYS, -1, (void *p, size_t n, unsigned flags), (p, n, flags))
WRAP(int, listen, EADDRINUSE, -1, (int fd, int n), (fd, n))
WRAP(int, memfd_create, ENFILE, -1, (const char *name, unsigned flags), (name, flags))
WRAP(void *, mmap, ENOMEM, MAP_FAILED,
     (void *at, size_t n, int protection, int flags, int fd, off_t from),
     (at, n, protection, flags, fd, from))
WRAP(int, pthread_create, EAGAIN, EAGAIN,
     (pthread_t *t, const pthread_attr_t *attributes, void *(*run)(void *), void *arg),
     (t, attributes, run, arg))
WRAP(ssize_t, recvmsg, ENOMEM, -1, (int fd, struct msghdr *m, int flags), (fd, m, flags))
WRAP(ssize_t, sendmsg, ENOBUFS, -1, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
WRAP(int, socket, EMFILE, -1, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, timerfd_create, EMFILE, -1, (int clock, int flags), (clock, flags))
#ifdef HAVE_URING
WRAP(int, io_uring_queue_init_params, ENOMEM, -ENOMEM,
     (unsigned n, struct io_uring *ring, struct io_uring_params *p), (n, ring, p))
WRAP(int, io_uring_register, EINVAL, -EINVAL,
     (unsigned fd, unsigned what, const void *arg, unsigned n), (fd, what, arg, n))
#endif
/* clang-format on */

int __real_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
    errno = ENOSPC;
    return fails("epoll_ctl") ? -1 : __real_epoll_ctl(epoll, what, fd, event);
}

int __real_fcntl(int fd, int command, long arg);
int __wrap_fcntl(int fd, int command, long arg);
int __wrap_fcntl(int fd, int command, long arg)
{
    errno = EINVAL;
    return fails("fcntl") ? -1 : __real_fcntl(fd, command, arg);
}

int __real_open(const char *path, int flags, unsigned mode);
int __wrap_open(const char *path, int flags, unsigned mode);
int __wrap_open(const char *path, int flags, unsigned mode)
{
    errno = EMFILE;
    return fails("open") ? -1 : __real_open(path, flags, mode);
}

static const char *const calls[] = {
    "allocation",
    "descriptors",
    "accept4",
    "bind",
    "connect",
    "epoll_create1",
    "epoll_ctl",
    "eventfd",
    "fcntl",
    "ftruncate",
    "getifaddrs",
    "getrandom",
    "listen",
    "memfd_create",
    "mmap",
    "open",
    "pthread_create",
    "recvmsg",
    "sendmsg",
    "socket",
    "timerfd_create",
#ifdef HAVE_URING
    "io_uring_queue_init_params",
    "io_uring_register",
#endif
};

/* Arming --------------------------------------------------------------------------------------- */

#define MOST_DESCRIPTORS 40

static void arm(const char *call, uint64_t n)
{
    failing = call;
    if (!strcmp(call, "allocation")) {
        spr_mem_fail_nth(n);
    } else if (!strcmp(call, "descriptors")) {
        struct rlimit limit;
        int next = dup(0); /* the lowest free one */
        RANK_CHECK(next >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
        close(next);
        limit.rlim_cur = (rlim_t)next + n - 1;
        RANK_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    } else {
        atomic_store(&countdown, n);
    }
}

/* Nothing fails any more. Returns whether something had, or may have. */
static bool disarm(const char *call, uint64_t n)
{
    struct rlimit limit;
    bool hit = atomic_load(&countdown) == 0;

    if (!strcmp(call, "allocation")) {
        hit = spr_mem_fail_nth(0) == 0;
    } else if (!strcmp(call, "descriptors")) {
        RANK_CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        limit.rlim_cur = limit.rlim_max;
        RANK_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        hit = n < MOST_DESCRIPTORS;
    }
    atomic_store(&countdown, 0);
    failing = NULL;
    return hit;
}

/* What the ranks do ---------------------------------------------------------------------------- */

enum { N = 30000, ENTRIES = 300 };

/* An error has a text of one line; want of memory is not another rank's fault. */
static void explain(int rank, spr_status status, const char *text)
{
    char other[24];

    if (status == SPR_OK)
        return;
    snprintf(other, sizeof other, "rank %d ", 1 - rank);
    if (failing && (strstr(text, "no memory") || strstr(text, "allocate") ||
                    strstr(text, "open files") || strstr(text, "no descriptors")))
        RANK_CHECK(strncmp(text, other, strlen(other)) != 0);
    RANK_CHECK(status < 0 && strcmp(spr_status_name(status), "SPR_ERR_UNKNOWN") != 0);
    if (!*text || strchr(text, '\n'))
        fprintf(stderr, "%s has the text '%s'\n", spr_status_name(status), text);
    RANK_CHECK(*text && strchr(text, '\n') == NULL);
}

/* Returns the first error. */
static spr_status use(spr_comm *comm)
{
    static uint32_t index[ENTRIES];
    static float value[ENTRIES], x[N];
    spr_sparse list = {index, value, ENTRIES, 0};
    spr_layout layout = {1, "w", 0, N, 1};
    spr_codec *codec = NULL;
    void *memory = NULL;
    spr_status status = spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, NULL);

    for (uint32_t i = 0; i < ENTRIES; i++)
        index[i] = i * (N / ENTRIES);
    if (status == SPR_OK)
        status = spr_sparse_allreduce(comm, &list, N, x, NULL, SPR_SUM, NULL);
    if (status == SPR_OK)
        status = spr_codec_create("topk:ratio=1%", &layout, 1, &codec);
    if (status == SPR_OK)
        status = spr_compressed_allreduce(comm, codec, x, SPR_SUM, NULL);
    if (status == SPR_OK)
        status = spr_mem_alloc(comm, sizeof x, &memory);
    if (status == SPR_OK)
        status = spr_barrier(comm, NULL);
    explain(spr_comm_rank(comm), status, spr_last_error(comm));
    spr_mem_free(comm, memory);
    spr_codec_destroy(codec);
    return status;
}

static spr_status one_life(struct job *job, int rank, double timeout_s)
{
    spr_comm_options options;
    spr_bootstrap bootstrap;
    spr_comm *comm = NULL;
    spr_status status;

    job_options(job, rank, &options, &bootstrap);
    options.init_timeout_s = timeout_s;
    status = spr_comm_create(&options, &comm);
    explain(rank, status, spr_last_error(NULL));
    RANK_CHECK((status == SPR_OK) == (comm != NULL));
    if (status != SPR_OK)
        job_break(job);
    else
        status = use(comm);
    spr_comm_destroy(comm);
    return status;
}

/* In shared memory. */
struct control {
    _Atomic int arrived, go_on;
    _Atomic uint64_t n; /* for the test that reports a hang */
    _Atomic int pid[2];
    uint64_t sites;
};

static void meet(struct control *c, int rank, int *times)
{
    atomic_store(&c->pid[rank], (int)getpid());
    atomic_fetch_add(&c->arrived, 1);
    ++*times;
    while (atomic_load(&c->arrived) < 2 * *times) {
        int other = atomic_load(&c->pid[1 - rank]);
        if (other && kill(other, 0))
            _exit(97); /* it has said why */
        fault_pause_us(100);
    }
}

struct torture {
    const char *call;
    int rank; /* where it fails: rank 1 connects, rank 0 is connected to */
};

/* For n = 1, 2, ... until nothing fails any more. Never returns to the caller's communicator. */
static void torture(struct job *job, int rank)
{
    const struct torture *t = job->arg;
    const char *call = t->call;
    struct control *c = (void *)job->shared;
    struct fault_census before;
    int times = 0;

    atomic_store(&c->go_on, 1);
    spr_mem_fail_nth(0);
    RANK_CHECK(one_life(job, rank, 30) == SPR_OK); /* what is made once is there then */
    before = fault_census_take();
    for (uint64_t n = 1; atomic_load(&c->go_on); n++) {
        bool hit = false;
        meet(c, rank, &times);
        if (rank == t->rank) {
            job_renew(job);
            atomic_store(&c->n, n);
        }
        meet(c, rank, &times);
        if (rank == t->rank)
            arm(call, n);
        one_life(job, rank, INIT_TIMEOUT_S);
        if (rank == t->rank)
            hit = disarm(call, n);
        RANK_CHECK(spr_mem_live() == 0);
        RANK_CHECK(fault_census_take().descriptors == before.descriptors);
        RANK_CHECK(fault_census_take().memfds == before.memfds);
        if (rank == t->rank && !hit) {
            c->sites = n - 1;
            atomic_store(&c->go_on, 0);
        }
        meet(c, rank, &times);
    }
    if (rank == 0)
        job_renew(job);
    meet(c, rank, &times);
    RANK_CHECK(one_life(job, rank, 30) == SPR_OK);
    _exit(0);
}

static void torture_one(const char *transport, struct torture *t)
{
    uint64_t begin = spr_monotonic_ns();
    const struct control *c;
    struct job job;

    job_prepare = torture;
    job_start(&job, 2, transport, NULL, t);
    c = (void *)job.shared;
    if (!job_wait(&job, SECONDS) || job.codes[0] || job.codes[1])
        fail_msg("over %s, %s number %d fails in rank %d: ranks ended with %d and %d", transport,
                 t->call, (int)c->n, t->rank, job.codes[0], job.codes[1]);
    assert_true(c->sites > 10 || strcmp(t->call, "allocation") != 0); /* it does fail */
    printf("%-6s %-28s rank %d: %4d sites, %.1f s\n", transport, t->call, t->rank, (int)c->sites,
           (double)(spr_monotonic_ns() - begin) * 1e-9);
    fflush(stdout);
    munmap(job.shared, JOB_SHARED_BYTES);
}

static void torture_over(const char *transport)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(calls); i++)
        for (int rank = 0; rank < 2; rank++)
            torture_one(transport, &(struct torture){calls[i], rank});
}

static void shared_memory_survives_what_fails_once(void **state)
{
    (void)state;
    torture_over("shm");
}

static void epoll_survives_what_fails_once(void **state)
{
    (void)state;
    torture_over("epoll");
}

static void io_uring_survives_what_fails_once(void **state)
{
    (void)state;
#ifdef HAVE_URING
    torture_over("uring");
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_memory_survives_what_fails_once),
        cmocka_unit_test(epoll_survives_what_fails_once),
        cmocka_unit_test(io_uring_survives_what_fails_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
