/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Who this rank is: from the options, or from what a launcher put into the environment. Private to
 * the bootstrap.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_IDENTITY_H
#define SPR_TRANSPORT_BOOTSTRAP_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include <sparring/comm.h>

#include "base/error.h"
#include "transport/bootstrap/bootstrap.h"

#define SPR_JOB_TEXT_BYTES 512

/* One launcher: the variables that make a complete set, and where its ranks can meet. */
struct spr_launcher {
    const char *name; /* identity.source */
    const char *rank, *size;
    const char *also[3]; /* needed as well, NULL-terminated */
    bool explicitly;     /* the user's own word: others may contradict it */
    bool inherited; /* often left over from a launcher further out: its size is no contradiction */
    bool lone_is_nothing; /* a size of 1 says nothing: there is no such launcher */
    /* Where the ranks meet when nobody named a root: fills root, or fails with a text. */
    spr_status (*meet)(const struct spr_launcher *l, struct spr_identity *id,
                       struct spr_error *error);
    /* For meet: ranks on this host, or hosts; and what names the job, joined. */
    const char *local_size, *hosts;
    const char *job[3];
};
extern const struct spr_launcher spr_launchers[]; /* in the order of preference */
extern const size_t spr_launchers_count;

/*
 * Fill rank, size, source, root and file. *pmix: PMIx is there to be asked, and nothing that goes
 * before it is complete: then rank and size are left at 0 and 1. With use_pmix false it is passed
 * over. job_text: what names the job, for those without SPARRING_JOB. `options` may be NULL.
 * Errors: INVALID (bad or contradictory values), BOOTSTRAP (ranks on several hosts and no root).
 */
spr_status spr_identity_find(const struct spr_comm_options *options, bool use_pmix,
                             struct spr_identity *id, bool *pmix, char job_text[SPR_JOB_TEXT_BYTES],
                             struct spr_error *error);
/* SPARRING_JOB, else a hash of job_text (under the secret, if there is one). INVALID: not
 * hexadecimal. */
spr_status spr_identity_job(const struct spr_auth_key *key, const char *job_text, uint64_t *job,
                            struct spr_error *error);

#endif
