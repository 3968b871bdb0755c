/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fork.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

/* The number of this process lies in the page; 0: it was not given one yet. */
static _Atomic(_Atomic uint64_t *) page;
/* The last number that was given; a child goes on counting where its parent was. */
static _Atomic uint64_t last;
static _Atomic int cannot; /* the kernel does not know of such pages */

static _Atomic uint64_t *make_page(void)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    _Atomic uint64_t *nobody = NULL;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || madvise(p, bytes, MADV_WIPEONFORK)) {
        if (p != MAP_FAILED)
            munmap(p, bytes);
        atomic_store(&cannot, 1);
        return NULL;
    }
    if (!atomic_compare_exchange_strong(&page, &nobody, p)) { /* another thread was first */
        munmap(p, bytes);
        p = nobody;
    }
    return p;
}

static uint64_t first_call(void)
{
    _Atomic uint64_t *p = atomic_load(&page);
    uint64_t none = 0, number;

    if (!p && !atomic_load(&cannot))
        p = make_page();
    if (!p)
        return (uint64_t)getpid();
    number = atomic_fetch_add(&last, 1) + 1;
    return atomic_compare_exchange_strong(p, &none, number) ? number : none;
}

uint64_t spr_process(void)
{
    _Atomic uint64_t *p = atomic_load_explicit(&page, memory_order_acquire);
    uint64_t number = p ? atomic_load_explicit(p, memory_order_relaxed) : 0;

    return number ? number : first_call();
}
