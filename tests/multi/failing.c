/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/multi/failing.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <pthread.h>
#include <stdatomic.h>
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

#include "base/mem.h"
#include "base/util.h"
#include "tests/multi/job.h"

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

const char *const failing_calls[] = {
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
const size_t failing_calls_count = SPR_ARRAY_LEN(failing_calls);

/* Arming --------------------------------------------------------------------------------------- */

#define MOST_DESCRIPTORS 40

void failing_arm(const char *call, uint64_t n)
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

bool failing_disarm(const char *call, uint64_t n)
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

bool failing_armed(void) { return failing != NULL; }
