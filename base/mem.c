/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Counted allocation. The counters are process-wide and atomic: tests inject failures into code
 * that runs in library threads.
 */
#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem_count.h"
#include "base/util.h"

static _Atomic int64_t live, live_bytes;
static _Atomic uint64_t fail_countdown; /* 0 = never; 1 = the next one fails */

bool spr_mem_count_try(void)
{
    uint64_t n = atomic_load_explicit(&fail_countdown, memory_order_relaxed);

    while (n != 0 && !atomic_compare_exchange_weak(&fail_countdown, &n, n - 1))
        ;
    return n != 1;
}

void spr_mem_count_add(int64_t change, int64_t bytes)
{
    atomic_fetch_add_explicit(&live, change, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_bytes, bytes, memory_order_relaxed);
}

static void *counted(void *p)
{
    if (p)
        spr_mem_count_add(1, (int64_t)malloc_usable_size(p));
    return p;
}

/* Asking for 0 bytes gives a pointer of its own, so that NULL always means "no memory". */
void *spr_malloc(size_t bytes)
{
    return spr_mem_count_try() ? counted(malloc(bytes ? bytes : 1)) : NULL;
}

void *spr_calloc(size_t n, size_t bytes)
{
    if (n == 0 || bytes == 0)
        n = bytes = 1;
    return spr_mem_count_try() ? counted(calloc(n, bytes)) : NULL;
}

void *spr_realloc(void *p, size_t bytes)
{
    int64_t before = (int64_t)malloc_usable_size(p); /* 0 of NULL */
    void *q;

    if (!spr_mem_count_try())
        return NULL;
    q = realloc(p, bytes ? bytes : 1);
    if (q)
        spr_mem_count_add(p == NULL, (int64_t)malloc_usable_size(q) - before);
    return q;
}

char *spr_strdup(const char *s)
{
    size_t bytes = strlen(s) + 1;
    char *copy = spr_malloc(bytes);

    return copy ? memcpy(copy, s, bytes) : NULL;
}

void spr_free(void *p)
{
    if (!p)
        return;
    spr_mem_count_add(-1, -(int64_t)malloc_usable_size(p));
    free(p);
}

void *spr_aligned_alloc(size_t alignment, size_t bytes)
{
    void *p = NULL;

    if (!spr_mem_count_try())
        return NULL;
    /* posix_memalign, unlike aligned_alloc, does not ask for a multiple of the alignment. */
    if (posix_memalign(&p, alignment, bytes ? bytes : 1) != 0)
        return NULL;
    return counted(p);
}

uint64_t spr_mem_fail_nth(uint64_t n) { return atomic_exchange(&fail_countdown, n); }

int64_t spr_mem_live(void) { return atomic_load(&live); }

int64_t spr_mem_live_bytes(void) { return atomic_load(&live_bytes); }
