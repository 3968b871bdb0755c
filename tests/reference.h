/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The naive fp64 reference of reductions. Inputs are a pure function of (seed, salt, rank, index),
 * so that every rank can compute everybody's.
 */
#ifndef TESTS_REFERENCE_H
#define TESTS_REFERENCE_H

#include <stdbool.h>

#include <sparring/types.h>

/* SPARRING_TEST_SCALE, by default 1; below (sanitizers, emulated guests) a part of the cases is
 * enough. */
double reference_scale(void);
bool reference_small_scale(void);

/* Element i of an array of type t, as a double, and back (rounded to nearest). */
double reference_load(spr_dtype t, const void *p, size_t i);
void reference_store(spr_dtype t, void *p, size_t i, double x);
/* Relative error of one rounding; 0 for integers. */
double reference_unit(spr_dtype t);
/* In (-1, 1); integers below 2^25, so that fp64 sums of them are exact. */
double reference_input(uint64_t seed, spr_dtype t, uint64_t salt, int rank, size_t i);
/* The reduction of x[0..ranks), and the largest error that roundings may cause: one for each rank,
 * in any order. Halves are floats until they are results. */
double reference_reduce(const double *x, int ranks, spr_dtype t, spr_op op, double *bound);
/* Does this algorithm of allreduce take that? Those that round partial sums take no halves; flat
 * takes what is eager by default. */
bool reference_allreduce_takes(const char *algorithm, spr_dtype t, size_t count);
/* Does this algorithm of a sparse allreduce make a list of the union? */
bool reference_sparse_lists(const char *algorithm);

#endif
