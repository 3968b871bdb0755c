/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The flight recorder in a file. Its pages belong to the file, so they outlive the process without
 * anybody's doing: there is no handler that SIGKILL could skip.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/trace.h"
#include "base/util.h"

/* Communicators of this process that are in files now; each has a number of its own. */
static _Atomic uint64_t taken;

static int take_index(void)
{
    uint64_t seen = atomic_load(&taken);

    while (~seen) {
        int index = __builtin_ctzll(~seen);
        if (atomic_compare_exchange_weak(&taken, &seen, seen | 1ull << index))
            return index;
    }
    errno = EMFILE;
    return -1;
}

static void give_index(int index)
{
    if (index >= 0)
        atomic_fetch_and(&taken, ~(1ull << index));
}

/* The first bytes of a small file, up to the end of the line. */
static void read_line(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, bytes - 1) : 0;

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

/* Clock ticks since boot at which a process began, 0: there is none; together with the pid it is
 * never reused. */
static uint64_t process_start(uint32_t pid)
{
    unsigned long long start = 0;
    char text[1024];
    const char *rest;

    snprintf(text, sizeof text, "/proc/%" PRIu32 "/stat", pid);
    read_line(text, text, sizeof text);
    rest = strrchr(text, ')'); /* the name before it may hold anything */
    if (!rest || sscanf(rest + 1,
                        " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                        "%*d %llu",
                        &start) != 1)
        return 0;
    return start;
}

static void describe(struct spr_trace_header *h, uint64_t job, uint32_t epoch, int index)
{
    struct timespec real;

    h->pid = (uint32_t)getpid();
    h->epoch = epoch;
    h->index = (uint32_t)index;
    h->job = job;
    h->process_start = process_start(h->pid);
    read_line("/proc/sys/kernel/random/boot_id", h->boot_id, sizeof h->boot_id);
    gethostname(h->host, sizeof h->host - 1);
    h->start_ns = spr_monotonic_ns();
    clock_gettime(CLOCK_REALTIME, &real);
    h->start_realtime_ns = (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec;
}

/* A new file of ours alone, with all its blocks: a page that the file system cannot give when it is
 * written would be a SIGBUS. */
static int create(int dir, const char *name)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dir, name, flags, 0600), rc;

    if (fd < 0 && errno == EEXIST && unlinkat(dir, name, 0) == 0) /* of a process with our pid */
        fd = openat(dir, name, flags, 0600);
    if (fd < 0)
        return -1;
    rc = posix_fallocate(fd, 0, (off_t)SPR_TRACE_FILE_BYTES);
    if (rc == 0)
        return fd;
    close(fd);
    unlinkat(dir, name, 0);
    errno = rc;
    return -1;
}

static int open_dir(const char *path)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    int dir = open(path, flags);

    if (dir < 0 && errno == ENOENT && (mkdir(path, 0700) == 0 || errno == EEXIST))
        dir = open(path, flags);
    return dir;
}

/* Is it the recorder of another process, that lives? */
static bool lives(int dir, const char *name)
{
    struct spr_trace_header h = {0};
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool read_all = fd >= 0 && read(fd, &h, sizeof h) == (ssize_t)sizeof h;

    if (fd >= 0)
        close(fd);
    return read_all && h.process_start && h.pid != (uint32_t)getpid() &&
           h.process_start == process_start(h.pid);
}

/* Ranks that were taken into a communicator have numbers that ranks had which live under others
 * now. */
static void free_name(int dir, int rank, int index, char *name, size_t bytes)
{
    int number = index;

    do {
        if (number > 0)
            snprintf(name, bytes, "rank-%d.%d.trace", rank, number);
        else
            snprintf(name, bytes, "rank-%d.trace", rank);
        number++;
    } while (lives(dir, name));
}

/* Copy what there is into the file and go on in there; under its own name only when complete. */
static bool move(struct spr_trace *t, int dir, const char *temporary, const char *name)
{
    int fd = create(dir, temporary);
    char *p = MAP_FAILED;

    if (fd < 0)
        return false;
    p = mmap(NULL, SPR_TRACE_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED)
        memcpy(p, (const void *)t->header, SPR_TRACE_FILE_BYTES);
    close(fd);
    if (p == MAP_FAILED || renameat(dir, temporary, dir, name)) {
        int saved = errno;
        if (p != MAP_FAILED)
            munmap(p, SPR_TRACE_FILE_BYTES);
        unlinkat(dir, temporary, 0);
        errno = saved;
        return false;
    }
    spr_free(t->header);
    t->header = (struct spr_trace_header *)(void *)p;
    t->ring = (struct spr_event *)(void *)(p + SPR_TRACE_HEADER_BYTES);
    t->shared = true;
    return true;
}

bool spr_trace_share(struct spr_trace *t, const char *path, uint64_t job, uint32_t epoch, char *why,
                     size_t why_bytes)
{
    char name[48] = "", temporary[64];
    int dir = open_dir(path), index = dir >= 0 ? take_index() : -1;
    int error = errno;
    bool moved;

    if (index >= 0)
        free_name(dir, t->header->rank, index, name, sizeof name);
    snprintf(temporary, sizeof temporary, ".%d.%s", (int)getpid(), name);
    describe(t->header, job, epoch, index);
    errno = error;
    moved = index >= 0 && move(t, dir, temporary, name);
    if (!moved) {
        snprintf(why, why_bytes, "%s", strerror(errno));
        give_index(index);
    } else {
        t->index = index;
    }
    if (dir >= 0)
        close(dir);
    return moved;
}

void spr_trace_free(struct spr_trace *t)
{
    if (!t)
        return;
    atomic_store_explicit(&t->header->ended, 1, memory_order_release);
    if (t->shared)
        munmap(t->header, SPR_TRACE_FILE_BYTES);
    else
        spr_free(t->header);
    give_index(t->index);
    spr_free(t);
}
