/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/series.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char comma_dots[] = ", ...";

void spr_series_begin(struct spr_series *s, char *text, size_t bytes)
{
    *s = (struct spr_series){.text = text, .bytes = bytes, .last = -1};
    s->cut = bytes < sizeof comma_dots;
    if (bytes > 0)
        text[0] = '\0';
}

/* There is always room for the dots behind what is written. */
void spr_series_add(struct spr_series *s, const char *fmt, ...)
{
    size_t comma = s->used ? 2 : 0, start = s->used + comma, end;
    va_list args;

    if (s->cut)
        return;
    va_start(args, fmt);
    end = start + (size_t)vsnprintf(s->text + start, s->bytes - start, fmt, args);
    va_end(args);
    s->cut = end + sizeof comma_dots > s->bytes;
    if (s->cut) {
        memcpy(s->text + s->used, comma_dots + 2 - comma, sizeof comma_dots - 2 + comma);
    } else {
        memcpy(s->text + s->used, comma_dots, comma);
        s->used = end;
    }
}

void spr_series_end(struct spr_series *s)
{
    if (s->last > s->first + 1)
        spr_series_add(s, "%d-%d", s->first, s->last);
    else
        for (int number = s->first; number <= s->last; number++)
            spr_series_add(s, "%d", number);
    s->last = s->first - 1;
}

void spr_series_add_number(struct spr_series *s, int number)
{
    if (number != s->last + 1) {
        spr_series_end(s);
        s->first = number;
    }
    s->last = number;
}
