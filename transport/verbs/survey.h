/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the verbs transport thinks of the devices, ports and GIDs of this host, one by one: the same
 * search that it makes when it opens, for tools that show it.
 */
#ifndef SPR_TRANSPORT_VERBS_SURVEY_H
#define SPR_TRANSPORT_VERBS_SURVEY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "transport/options.h"
#include "transport/tcp/interface.h"

struct spr_verbs_candidate {
    const char *device;
    uint8_t port; /* 0: the device as a whole */
    int gid;      /* index; -1: the port as a whole */
    bool usable;
    bool chosen;     /* told last, once more */
    const char *why; /* it is not usable, or what it is */
};

/* Calls tell() for each candidate. `chosen` becomes a text such as "rxe0:1 (RoCE v2, GID 1 ...)".
 * UNSUPPORTED: there is no device; INVALID: none of those that the options name can be used;
 * SYSTEM: none can be used. Nothing stays open. */
spr_status spr_verbs_survey(const struct spr_options *options,
                            const struct spr_tcp_interface *interface,
                            void (*tell)(void *ctx, const struct spr_verbs_candidate *candidate),
                            void *ctx, char *chosen, size_t bytes, struct spr_error *error);

/* What a rank with so many peers registers before any bucket, and counts against the limit of
 * locked memory: with less, the transport cannot be used. */
uint64_t spr_verbs_locked_bytes(const struct spr_options *options, uint32_t peers);

#endif
