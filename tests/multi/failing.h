/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Calls that fail once: the n-th allocation, the n-th mmap, socket, epoll_create1 ..., or only n
 * descriptors. The calls of the library are caught by the linker ($(failing_wraps) in
 * tests/local.mk).
 */
#ifndef TESTS_MULTI_FAILING_H
#define TESTS_MULTI_FAILING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What can fail: "allocation", "descriptors" (only n are left), then calls. */
extern const char *const failing_calls[];
extern const size_t failing_calls_count;

/* The n-th of these calls (1: the next one) fails, in any thread of this process. */
void failing_arm(const char *call, uint64_t n);
/* Nothing fails any more. Returns whether something had, or may have. */
bool failing_disarm(const char *call, uint64_t n);
bool failing_armed(void);

#endif
