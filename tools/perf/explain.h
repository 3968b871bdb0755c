/* SPDX-License-Identifier: BSD-2-Clause
 *
 * --explain: which algorithms there are for a row, what the model predicts for each, and what it
 * came to. --tune: which one is the fastest.
 */
#ifndef SPR_TOOLS_PERF_EXPLAIN_H
#define SPR_TOOLS_PERF_EXPLAIN_H

#include "tools/perf/trial.h"

/* With --explain: measure a model, unless there is one, and say which. */
bool explain_begin(struct job *job);
/* With --tune: measure what can do the calls of a trial of "auto". Collective. */
bool tune_trial(struct trial *trial);
/* Its figures are there: add what was predicted, and what "auto" has taken. */
bool explain_trial(struct trial *trial);
/* With --explain: the trials of a group as a list, predicted and measured. */
void explain_group(const struct trial *trials, size_t count);

#endif
