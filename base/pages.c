/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Anonymous pages, huge and locked where the system lets us.
 */
#include "base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem_count.h"
#include "base/util.h"

/* Length of the mapping behind `bytes`; 0 when it does not fit into size_t with room to align. */
static size_t mapped_bytes(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (bytes > SIZE_MAX / 2)
        return 0;
    return spr_align_up(spr_max_size(bytes, 1), page);
}

static void *map(size_t length)
{
    void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

/* The kernel gives huge pages only to whole aligned 2 MiB: map more, cut off both ends. */
static void *map_huge(size_t length)
{
    char *start = map(length + SPR_HUGE_PAGE);
    size_t head, tail;

    if (!start)
        return NULL;
    head = spr_align_up((uintptr_t)start, SPR_HUGE_PAGE) - (uintptr_t)start;
    tail = SPR_HUGE_PAGE - head;
    if (head)
        munmap(start, head);
    if (tail)
        munmap(start + head + length, tail);
    /* Advice only: where there are no huge pages the memory works all the same. */
    (void)madvise(start + head, length, MADV_HUGEPAGE);
    return start + head;
}

void *spr_pages_alloc(size_t bytes)
{
    size_t length = mapped_bytes(bytes);
    void *p;

    if (!spr_mem_count_try() || length == 0)
        return NULL;
    p = length >= SPR_HUGE_PAGE ? map_huge(length) : map(length);
    if (p)
        spr_mem_count_add(1, (int64_t)bytes);
    return p;
}

void spr_pages_free(void *p, size_t bytes)
{
    if (!p)
        return;
    munmap(p, mapped_bytes(bytes));
    spr_mem_count_add(-1, -(int64_t)bytes);
}

static void warn_not_locked(size_t bytes, int saved_errno)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    struct rlimit limit;
    char text[32] = "unlimited";

    if (atomic_flag_test_and_set(&warned))
        return;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(text, sizeof(text), "%llu bytes", (unsigned long long)limit.rlim_cur);
    errno = saved_errno;
    spr_warn(SPR_SUB_MEM,
             "cannot lock %zu bytes (%m); the memory is used unlocked; the memlock limit is %s: "
             "raise it with 'ulimit -l', limits.conf or LimitMEMLOCK=",
             bytes, text);
}

bool spr_pages_lock(void *p, size_t bytes)
{
    if (mlock(p, bytes) == 0)
        return true;
    warn_not_locked(bytes, errno);
    return false;
}
