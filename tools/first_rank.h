/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Of the ranks of a job, which are started alike, the first one speaks for all.
 */
#ifndef SPR_TOOLS_FIRST_RANK_H
#define SPR_TOOLS_FIRST_RANK_H

#include <stdbool.h>

/* As far as the launcher's variables say; where there is no launcher, too. */
bool first_rank(void);
/* Before a rank says what the first one may say as well: where that has ended with the same error,
 * the launcher ends this one meanwhile. */
void first_rank_first(void);

#endif
