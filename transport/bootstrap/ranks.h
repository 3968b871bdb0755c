/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A set of ranks as text. Private to the bootstrap.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_RANKS_H
#define SPR_TRANSPORT_BOOTSTRAP_RANKS_H

#include <stdbool.h>
#include <stddef.h>

/* "rank 3" or "ranks 3, 5-7": those below `size` for which `in` holds; "" when there is none. Ends
 * with ", ..." when buf is too small. Returns how many they are. */
int spr_ranks_text(bool (*in)(const void *ctx, int rank), const void *ctx, int size, char *buf,
                   size_t bytes);

#endif
