/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SPR_COLLECTIVES_CHOOSE_CODEC_H
#define SPR_COLLECTIVES_CHOOSE_CODEC_H

#include <sparring/tune.h>

/* Says which of n trials are within the bounds, and returns the place of the one to take; -1: there
 * is none. current: the place of what is in use; -1: nothing is. */
int spr_trials_decide(spr_codec_trial *trials, int n, const spr_choice_options *options,
                      int current);

#endif
