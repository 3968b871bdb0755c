/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Private to the bootstrap.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_ROOT_FILE_H
#define SPR_TRANSPORT_BOOTSTRAP_ROOT_FILE_H

#include <sparring/bootstrap.h>

#include "base/error.h"
#include "transport/bootstrap/auth.h"

/* Like spr_bootstrap_file; loopback_only: only for ranks on this host. */
spr_status spr_root_file(const char *path, const struct spr_auth_key *key, bool loopback_only,
                         uint64_t deadline_ns, spr_bootstrap *boot, struct spr_error *error);

#endif
