/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What options say of a collective: of the tools that run collectives. Wrong usage is said by
 * options_wrong(), whose result is returned.
 */
#ifndef SPR_TOOLS_COLLECTIVE_OPTIONS_H
#define SPR_TOOLS_COLLECTIVE_OPTIONS_H

#include <stddef.h>

#include "tools/command_line.h"

/* The collective that the only word names, as its place in `names`; without a word *kind stays. */
enum options_next take_collective(int count, char *const *words, const char *const *names,
                                  int name_count, int *kind);
/* "auto", "all", or an algorithm of the collective. */
enum options_next check_algorithm(const char *collective, const char *algorithm);
/* A codec that can be made. Density and codec have one truth: a ratio in the codec becomes the
 * density, and excludes others, as a codec that sends every element does. */
enum options_next check_codec(const char *codec, double *densities, size_t *density_count);

#endif
