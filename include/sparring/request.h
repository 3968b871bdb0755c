/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Requests: collectives under way. Every collective has a form that returns a request (spr_i...)
 * and a blocking one. A request is owned by the caller until it is freed by a successful spr_test
 * or spr_wait (any result but SPR_IN_PROGRESS and SPR_ERR_TIMEOUT frees it and sets *request to
 * NULL).
 */
#ifndef SPARRING_REQUEST_H
#define SPARRING_REQUEST_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Progress, then: SPR_IN_PROGRESS, or the request's result (the request is freed). */
spr_status spr_test(spr_request **request);

/*
 * Wait until the request is complete, at most timeout_s seconds (negative: until the operation's
 * own deadline). SPR_ERR_TIMEOUT leaves the request running. Any thread; one thread per request.
 */
spr_status spr_wait(spr_request **request, double timeout_s);

/*
 * Give up: revokes the communicator, as spr_comm_abort() does. The request completes with
 * SPR_ERR_CANCELED as soon as its buffers are not in use any more, and still has to be waited for.
 * In a forked child nothing is done, here and below.
 */
void spr_cancel(spr_request *request);

/*
 * Call `done(ctx, status)` once when the request completes, from the thread that progresses (at
 * once when it is complete already). It must not block or call into the communicator.
 */
void spr_on_complete(spr_request *request, void (*done)(void *ctx, spr_status status), void *ctx);

#ifdef __cplusplus
}
#endif
#endif
