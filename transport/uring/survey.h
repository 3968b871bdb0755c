/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What io_uring of this kernel gives to the transport; for sparring-info. Needs no liburing.h.
 */
#ifndef SPR_TRANSPORT_URING_SURVEY_H
#define SPR_TRANSPORT_URING_SURVEY_H

#include <stdbool.h>

#include "base/error.h"

struct spr_uring_feature {
    const char *name;
    bool there;
    bool needed; /* without it there is no transport; else no zero copy */
};

#define SPR_URING_FEATURES 16
struct spr_uring_survey {
    const char *ring; /* the kind of ring that the kernel gives, in words */
    struct spr_uring_feature features[SPR_URING_FEATURES];
    int feature_count;
};

/* Set a ring up as the transport does, look at it, and free it. `one_thread`: as in struct
 * spr_transport_params. Errors: those with which the transport cannot be opened. */
spr_status spr_uring_survey(bool one_thread, struct spr_uring_survey *survey,
                            struct spr_error *error);

#endif
