/* SPDX-License-Identifier: BSD-2-Clause
 *
 * All GIDs of a device at once: one call, where a call for each entry of a table of 1024
 * (soft-RoCE) takes milliseconds.
 */
#ifndef SPR_TRANSPORT_VERBS_GIDS_H
#define SPR_TRANSPORT_VERBS_GIDS_H

#include <infiniband/verbs.h>
#include <stddef.h>

/* The entries that are not empty, of all ports, by port and index. The caller frees *entries with
 * spr_free; it is NULL when there are none, or on an error. Returns their number. */
size_t spr_verbs_gids(struct ibv_context *context, struct ibv_gid_entry **entries);

#endif
