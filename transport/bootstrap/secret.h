/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The job's secret. Private to the bootstrap.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_SECRET_H
#define SPR_TRANSPORT_BOOTSTRAP_SECRET_H

#include <sparring/comm.h>

#include "base/error.h"
#include "transport/bootstrap/auth.h"

/*
 * Into key->secret: options->secret, else what SPARRING_SECRET_FD is open on (read from its start
 * when it can seek, then closed and the variable removed: it is not inherited any further; the
 * process remembers the secret for its next communicator), else the contents of
 * SPARRING_SECRET_FILE, every byte of it, else none. Up to 64 bytes are used as they are, of more
 * the SHA-256. `options` may be NULL. Errors: INVALID, SYSTEM.
 */
spr_status spr_secret_load(const struct spr_comm_options *options, struct spr_auth_key *key,
                           struct spr_error *error);

#endif
