/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A vector of no known shape, as a matrix: for codecs of low rank. The others look at elements.
 */
#ifndef SPR_TOOLS_MATRIX_LAYOUT_H
#define SPR_TOOLS_MATRIX_LAYOUT_H

#include <math.h>

#include <sparring/codec.h>

/* n elements as a matrix of so many rows (0: about as many as columns), and as a vector what is
 * left over. Returns how many parameters that are. */
static inline size_t matrix_layout(size_t n, size_t rows, spr_layout layout[2])
{
    if (rows == 0)
        rows = (size_t)sqrt((double)n);
    if (rows == 0)
        rows = 1;
    size_t columns = n / rows, rest = n - rows * columns;
    layout[0] = (spr_layout){.id = 1, .name = "gradient", .rows = rows, .columns = columns};
    layout[1] =
        (spr_layout){.id = 2, .name = "rest", .offset = rows * columns, .rows = rest, .columns = 1};
    return rest > 0 ? 2 : 1;
}

#endif
