/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Private to the bootstrap.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_ROOT_FILE_H
#define SPR_TRANSPORT_BOOTSTRAP_ROOT_FILE_H

#include <sparring/bootstrap.h>

#include "base/error.h"
#include "transport/bootstrap/auth.h"
#include "transport/bootstrap/root_address.h"

/* Like spr_bootstrap_file; loopback_only: only for ranks on this host. */
spr_status spr_root_file(const char *path, const struct spr_auth_key *key, bool loopback_only,
                         uint64_t deadline_ns, spr_bootstrap *boot, struct spr_error *error);

/* The file's text, which is cut up: fills nonce and place. false: not a file of rank 0. */
bool spr_root_file_parse(char *text, uint64_t *nonce, struct spr_place *place);

#endif
