/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which process is this? As getpid(), which is a system call in each call with glibc, but as cheap
 * as a read: from a page that the kernel wipes in a child (MADV_WIPEONFORK, Linux 4.14).
 */
#ifndef SPR_BASE_FORK_H
#define SPR_BASE_FORK_H

#include <stdint.h>

/* Differs between this process, those that it was forked from and those that it forks; never 0. For
 * the life of the process it is the same. Thread-safe, async-signal-safe after the first call. */
uint64_t spr_process(void);

#endif
