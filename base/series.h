/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A list in a line of text, "2, 5-7". Where there is no room for all of it, it ends with ", ..."
 * after a whole item: half a number would be another one.
 */
#ifndef SPR_BASE_SERIES_H
#define SPR_BASE_SERIES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

struct spr_series {
    char *text;
    size_t bytes, used;
    bool cut;        /* the dots are there: what is added is dropped */
    int first, last; /* numbers that are still to be written; none when last < first */
};

/* The text is "" at first, and complete after each add. */
void spr_series_begin(struct spr_series *s, char *text, size_t bytes);
void spr_series_add(struct spr_series *s, const char *fmt, ...) SPR_PRINTF(2, 3);

/* Numbers from 0, in ascending order; three or more in a row become "5-7". Complete after the end.
 */
void spr_series_add_number(struct spr_series *s, int number);
void spr_series_end(struct spr_series *s);

#endif
