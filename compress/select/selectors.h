/* SPDX-License-Identifier: BSD-2-Clause
 *
 * All selectors. A new one is a new file, a line here and one in the table of select.c.
 */
#ifndef SPR_COMPRESS_SELECT_SELECTORS_H
#define SPR_COMPRESS_SELECT_SELECTORS_H

#include "compress/select/select.h"

extern const struct spr_selector spr_selector_topk, spr_selector_accumulate, spr_selector_threshold,
    spr_selector_sampled, spr_selector_reuse, spr_selector_block, spr_selector_random;

#endif
