/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What mem.c and pages.c share: failure injection and the count of live allocations.
 */
#ifndef SPR_BASE_MEM_COUNT_H
#define SPR_BASE_MEM_COUNT_H

#include <stdbool.h>
#include <stdint.h>

/* Called before each allocation; false: a test wants this one to fail. */
bool spr_mem_count_try(void);
/* Allocations made (+) or freed (-), and their bytes. */
void spr_mem_count_add(int64_t change, int64_t bytes);

#endif
