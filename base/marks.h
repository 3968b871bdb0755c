/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Marks: a set of numbers below n, as bits. Where something has to be done for some of many ranks,
 * those are marked as it comes up, so that nobody has to look at all of them each time.
 */
#ifndef SPR_BASE_MARKS_H
#define SPR_BASE_MARKS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct spr_marks {
    uint64_t *words; /* [spr_marks_words(n)] */
    int n;
};

static inline size_t spr_marks_words(int n) { return ((size_t)n + 63) / 64; }

static inline void spr_marks_set(struct spr_marks *m, int i)
{
    m->words[i / 64] |= UINT64_C(1) << i % 64;
}

static inline void spr_marks_clear(struct spr_marks *m, int i)
{
    m->words[i / 64] &= ~(UINT64_C(1) << i % 64);
}

static inline void spr_marks_set_all(struct spr_marks *m)
{
    memset(m->words, 0xff, spr_marks_words(m->n) * sizeof *m->words);
}

/* The first one in [from, to), or `to`. */
static inline int spr_marks_scan(const struct spr_marks *m, int from, int to)
{
    while (from < to) {
        uint64_t word = m->words[from / 64] >> from % 64;
        if (word) {
            from += __builtin_ctzll(word);
            return from < to ? from : to;
        }
        from = (from / 64 + 1) * 64;
    }
    return to;
}

/* All marked ones, in a circle that begins at `first`, in [0, n): the first step of at least
 * `step` whose number, (first + step) % n, is marked; n when there is none. What is marked
 * while they are gone through is met if it is still to come, and not if it has been passed. */
static inline int spr_marks_next(const struct spr_marks *m, int first, int step)
{
    if (step < m->n - first) {
        int at = spr_marks_scan(m, first + step, m->n);
        if (at < m->n)
            return at - first;
        step = m->n - first;
    }
    return spr_marks_scan(m, first + step - m->n, first) + m->n - first;
}

#define spr_marks_for_each(step, m, first)                                                         \
    for ((step) = spr_marks_next(m, first, 0); (step) < (m)->n;                                    \
         (step) = spr_marks_next(m, first, (step) + 1))

#endif
