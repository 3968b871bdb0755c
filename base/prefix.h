/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Included by the compiler before everything else (-include, see Makefile.am).
 *
 * config.h has to come first since it asks for GNU and POSIX interfaces. The library is compiled
 * with -fvisibility=hidden; what the public headers declare stays visible because this is its first
 * declaration. libsparring.map says which of it is exported.
 */
#ifndef SPR_BASE_PREFIX_H
#define SPR_BASE_PREFIX_H

#include "config.h"

#pragma GCC visibility push(default)
#include <sparring/sparring.h>
#pragma GCC visibility pop

#endif
