/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Error text: the first cause is kept, with the rank and the operation it belongs to.
 */
#ifndef SPR_BASE_ERROR_H
#define SPR_BASE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include <sparring/status.h>

#include "base/util.h"

#define SPR_ERROR_TEXT_BYTES 768

/* Where an operation failed. Zeroed = no error. */
struct spr_error {
    spr_status status;
    int rank; /* the rank that is to blame, or -1 */
    char text[SPR_ERROR_TEXT_BYTES];
};

/* Set status, rank and text unless an error is set already (the first cause wins); returns
 * `status`. `error` may be NULL. Does not log. */
spr_status spr_error_set(struct spr_error *error, spr_status status, int rank, const char *fmt, ...)
    SPR_PRINTF(4, 5);
/* The same, and appends ": " and strerror(saved_errno). */
spr_status spr_error_errno(struct spr_error *error, spr_status status, int rank, int saved_errno,
                           const char *fmt, ...) SPR_PRINTF(5, 6);
void spr_error_clear(struct spr_error *error);
/* An error of this build: a status that another process sent may be none. */
bool spr_error_is_known(int32_t status);

/* The calling thread's own error (calls without a communicator); never NULL. */
struct spr_error *spr_thread_error(void);

#endif
