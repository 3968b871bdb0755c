/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What does not depend on one option alone.
 */
#ifndef SPR_TOOLS_PERF_OPTIONS_CHECK_H
#define SPR_TOOLS_PERF_OPTIONS_CHECK_H

#include "tools/perf/options.h"

/* Take the words that are no options, check, and fill in the defaults that depend on others. */
enum options_next options_complete(struct options *options, uint64_t used, int words, char **word);

#endif
