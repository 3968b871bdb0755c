/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/choice.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "transport/lanes/lanes.h"

const struct spr_transport_kind spr_transport_kinds[] = {
    {"shm", SPR_T_SHM, &spr_transport_shm, NULL},
#ifdef HAVE_VERBS
    {"verbs", SPR_T_VERBS, &spr_transport_verbs, NULL},
#endif
#ifdef HAVE_URING
    {"uring", SPR_T_URING, &spr_transport_uring, &spr_lanes_uring},
#endif
    {"epoll", SPR_T_EPOLL, &spr_transport_epoll, &spr_lanes_epoll},
};
const size_t spr_transport_kinds_count = SPR_ARRAY_LEN(spr_transport_kinds);

bool spr_transport_is(const struct spr_transport *t, const struct spr_transport_kind *kind)
{
    return t->ops == kind->ops || (kind->lanes && t->ops == kind->lanes);
}

static bool is_tcp(int id) { return id == SPR_T_URING || id == SPR_T_EPOLL; }

/* Is `name` in the comma-separated list? */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, name, n) && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

/* self is there in any case; a rank alone may ask for nothing else. */
spr_status spr_comm_check_transports(const char *list, struct spr_error *error)
{
    char word[32], names[64] = "auto,self";

    for (size_t i = 0; i < spr_transport_kinds_count; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), ",%s",
                 spr_transport_kinds[i].name);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, ","), p);
        if (!listed(names, word))
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "unknown transport '%s' in '%s': there is %s", word, list, names);
    }
    return SPR_OK;
}

/* Can another one that is asked for, or all, do its work? */
static bool has_substitute(int id, const char *list)
{
    bool epoll = listed(list, "auto") || listed(list, "epoll");

    return id == SPR_T_URING ? epoll : id == SPR_T_VERBS && (epoll || listed(list, "uring"));
}

static spr_status open_one(spr_comm *comm, const struct spr_transport_kind *kind, bool asked_for,
                           struct spr_transport_offer *offer, struct spr_error *error)
{
    struct spr_transport_params params = spr_comm_transport_params(comm);
    struct spr_error reason = {0};
    struct spr_transport *t = NULL;
    bool lanes = kind->lanes && spr_lanes_wanted(&comm->options);
    spr_status status;

    params.key = &comm->key;
    params.loopback_only = comm->key.secret_bytes == 0 && !comm->options.insecure;
    params.one_thread = comm->options.progress == 0;
    status = (lanes ? kind->lanes : kind->ops)->open(&params, &t, &reason);
    if (status == SPR_OK) {
        comm->transports[comm->transport_count++] = t;
        offer->open = true;
        return SPR_OK;
    }
    offer->refused = true;
    snprintf(offer->why_not, sizeof offer->why_not, "%s", reason.text);
    if ((asked_for && !has_substitute(kind->id, comm->options.transports)) ||
        status == SPR_ERR_INVALID) {
        *error = reason;
        return spr_error_set(error, status, comm->rank, "transport %s: %s", kind->name,
                             spr_status_string(status));
    }
    /* Most hosts have no RDMA device, and nothing is amiss there. */
    if (kind->id == SPR_T_VERBS && status == SPR_ERR_UNSUPPORTED && !asked_for)
        return SPR_OK;
    comm->counters.fallbacks++;
    spr_trace_add(comm->trace, spr_now_ns(comm->clock), SPR_EV_FALLBACK, -1,
                  spr_trace_word(comm->trace, kind->name), 0, 0);
    spr_warn(SPR_SUB_INIT, "transport %s cannot be used: %s", kind->name, reason.text);
    return SPR_OK;
}

/* shm, verbs, and one of the two TCP twins: io_uring where it is asked for by its name and not
 * refused. Only one thread may move the bytes of a ring, the library's, so each call that waits
 * hands over to it and back, which takes longer than a short message; and long ones go no faster
 * (docs/tuning.md). */
spr_status spr_comm_open_transports(spr_comm *comm, struct spr_transport_offer *offers,
                                    struct spr_error *error)
{
    const char *list = comm->options.transports;
    bool any = listed(list, "auto"), have_tcp = false, have_uring = false;
    int without = comm->transport_count;
    spr_status status = SPR_OK;

    for (size_t k = 0; status == SPR_OK && k < spr_transport_kinds_count; k++) {
        const struct spr_transport_kind *kind = &spr_transport_kinds[k];
        struct spr_transport_offer unseen = {0}, *offer = offers ? &offers[k] : &unseen;
        bool tcp = is_tcp(kind->id), asked_for = listed(list, kind->name);
        *offer = unseen;
        if (!asked_for && !any) {
            snprintf(offer->why_not, sizeof offer->why_not, "not among the transports asked for");
        } else if (kind->id == SPR_T_URING && !asked_for) {
            snprintf(offer->why_not, sizeof offer->why_not,
                     "only where it is asked for by its name: epoll answers faster");
        } else if (tcp && have_tcp) {
            snprintf(offer->why_not, sizeof offer->why_not, "not needed: uring can be used");
        } else {
            status = open_one(comm, kind, asked_for, offer, error);
            have_tcp |= tcp && offer->open;
            have_uring |= kind->id == SPR_T_URING && offer->open;
        }
    }
    if (status == SPR_OK && !have_uring && comm->options.zerocopy_bytes != SIZE_MAX)
        spr_warn(SPR_SUB_INIT, "SPARRING_ZEROCOPY has no effect: it is for the transport uring, "
                               "which is not used; SPARRING_TRANSPORTS=auto,uring asks for it");
    if (status == SPR_OK && comm->transport_count == without)
        status = spr_error_set(error, SPR_ERR_UNSUPPORTED, comm->rank,
                               "no transport of '%s' works here: sparring-info says why; "
                               "SPARRING_TRANSPORTS=auto takes what does",
                               list);
    return status;
}

const struct spr_transport_kind *spr_transport_choose(const struct spr_peer_info *mine,
                                                      const struct spr_peer_info *peer,
                                                      const char **why_not)
{
    const struct spr_transport_kind *chosen = NULL;

    for (size_t k = 0; k < spr_transport_kinds_count; k++) {
        const struct spr_transport_kind *kind = &spr_transport_kinds[k];
        const char *reason = NULL;
        if (!chosen)
            /* Both ends come to the same answer; the TCP twins reach each other. */
            reason = mine->transports >> kind->id & 1 ? kind->ops->unusable(mine, peer)
                                                      : "it is not open here";
        if (!chosen && !reason)
            chosen = kind;
        if (why_not)
            why_not[k] = reason;
    }
    return chosen;
}
