/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rank 0 at a host and port, or at an abstract Unix socket: a place that all ranks know from the
 * start.
 */
#include "transport/bootstrap/bootstrap.h"

#include <string.h>

#include "base/log.h"
#include "transport/bootstrap/root.h"

static spr_status open_nothing(struct spr_root *r)
{
    (void)r;
    return SPR_OK;
}

static spr_status publish_nothing(struct spr_root *r, const struct spr_address *address)
{
    (void)r;
    (void)address;
    return SPR_OK;
}

static spr_status find_nothing(struct spr_root *r, char *why, size_t bytes)
{
    (void)r;
    (void)why;
    (void)bytes;
    return SPR_OK;
}

static void close_nothing(struct spr_root *r) { (void)r; }

static const struct spr_root_kind fixed = {open_nothing, publish_nothing, find_nothing,
                                           close_nothing};

static bool all_loopback(const struct spr_place *place)
{
    for (int i = 0; i < place->count; i++)
        if (!spr_address_loopback(&place->list[i]))
            return false;
    return true;
}

/* Many a host knows its own name as 127.0.1.1, or by one of several addresses, while the others
 * look for it elsewhere. */
static void listen_everywhere(struct spr_place *place)
{
    const char *port = strrchr(place->text, ':');
    char all[64];

    if (!place->name || strncmp(place->text, "localhost", 9) == 0 ||
        (place->count == 1 && !spr_address_loopback(&place->list[0])))
        return;
    spr_info(SPR_SUB_INIT, "root %s is %s: listening on all addresses", place->text,
             place->count > 1 ? "several addresses" : "a loopback address on its own host");
    place->count = 0;
    snprintf(all, sizeof(all), "[::]%s", port);
    (void)spr_place_add(place, all);
    snprintf(all, sizeof(all), "0.0.0.0%s", port); /* where there is no IPv6 */
    (void)spr_place_add(place, all);
}

spr_status spr_bootstrap_tcp(const char *root, const struct spr_auth_key *key, bool loopback_only,
                             uint64_t deadline_ns, spr_bootstrap *boot, struct spr_error *error)
{
    struct spr_place place;
    spr_status status;

    if (key->size == 1)
        return spr_bootstrap_single(boot);
    status = spr_place_resolve(&place, root, deadline_ns, error);
    if (status != SPR_OK)
        return status;
    if (loopback_only && !all_loopback(&place))
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "root %s can be reached by others and the job has no secret: set "
                             "SPARRING_SECRET_FILE on all ranks, or SPARRING_INSECURE=yes on a "
                             "network that you trust",
                             root);
    if (key->rank == 0 && !loopback_only)
        listen_everywhere(&place);
    return spr_root_open(&fixed, &place, "", key, deadline_ns, boot, error);
}
