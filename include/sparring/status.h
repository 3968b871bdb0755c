/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Status codes. Every function that can fail returns one.
 *
 * Codes are negative and grouped by the largest thing that is lost, which tells the caller what to
 * rebuild: only the request, a link, a rank, or the whole communicator. Numbers are never reused.
 */
#ifndef SPARRING_STATUS_H
#define SPARRING_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef int spr_status;

enum {
    SPR_OK = 0,
    SPR_IN_PROGRESS = 1, /* not an error: the request runs on */

    /* The call is refused, or the request is lost. The communicator works on, unless a collective
     * under way ends with one of these other than MISMATCH and TOO_SMALL: that revokes it. */
    SPR_ERR_INVALID = -1,     /* an argument is wrong; nothing was changed */
    SPR_ERR_UNSUPPORTED = -2, /* valid, but not built in or not possible here */
    SPR_ERR_NOMEM = -3,       /* memory could not be had */
    SPR_ERR_TIMEOUT = -4,     /* wait() gave up; the request runs on */
    SPR_ERR_CANCELED = -5,    /* cancelled, which revokes the communicator */
    SPR_ERR_MISMATCH = -6,    /* ranks called with different arguments: no rank gets a result */
    SPR_ERR_NOT_FOUND = -7,   /* no such name, parameter or file */
    SPR_ERR_TOO_SMALL = -8,   /* the caller's buffer cannot hold the result */

    /* A link is lost. */
    SPR_ERR_LINK = -20,    /* the connection to a rank broke */
    SPR_ERR_PROTO = -21,   /* a frame breaks the protocol */
    SPR_ERR_CORRUPT = -22, /* a checksum does not match */

    /* A rank is lost: shrink or restart. */
    SPR_ERR_RANK_LOST = -40, /* a rank died or left */
    SPR_ERR_EXPELLED = -41,  /* this rank was expelled by the others */

    /* The communicator is lost. */
    SPR_ERR_REVOKED = -60,   /* an earlier failure or abort revoked it */
    SPR_ERR_DEADLINE = -61,  /* an operation's own deadline passed */
    SPR_ERR_BOOTSTRAP = -62, /* the ranks did not find each other */
    SPR_ERR_AUTH = -63,      /* a peer does not know the job's secret */
    SPR_ERR_SYSTEM = -64,    /* the operating system refused something */
    SPR_ERR_FORKED = -65     /* called in a forked child */
};

/* A short English sentence for a code, without rank or operation; never NULL. Thread-safe. */
const char *spr_status_string(spr_status status);

/* The name of a code, e.g. "SPR_ERR_RANK_LOST"; never NULL. Thread-safe. */
const char *spr_status_name(spr_status status);

#ifdef __cplusplus
}
#endif
#endif
