/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A dense result against the inputs of all ranks.
 *
 * Integers, minimum, maximum and copies have to be equal. A floating point sum of P numbers, added
 * in whatever order, has an error of at most g(P-1) * sum |x|, g(k) = k u / (1 - k u), u the unit
 * roundoff (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2); the
 * division of an average and the rounding to 16 bits add one rounding each. The reference is
 * computed in fp64, so for fp64 its own error doubles the bound.
 */
#ifndef SPR_TOOLS_PERF_DENSE_CHECK_H
#define SPR_TOOLS_PERF_DENSE_CHECK_H

#include "tools/perf/trial.h"

/* g(steps) of fp32, or of fp64. */
double rounding_bound(spr_dtype dtype, int steps);
/* Compare trial->vectors->recv, on this rank; tally->same is the same on all. */
bool dense_compare(struct trial *trial, struct tally *tally);

#endif
