/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/bootstrap/meeting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "transport/bootstrap/auth_wire.h"
#include "transport/bootstrap/identity.h"
#include "transport/bootstrap/root.h"
#include "transport/bootstrap/root_file.h"

#define MS 1000000ull
#define FILE_PREFIX "file:"
/* When the time is over the numbers still have to reach those who are there. */
#define SEATING (5000 * MS)

/* ---- Where ---- */

static bool take(char text[SPR_MEETING_PLACE_BYTES], const char *prefix, const char *place)
{
    if (!place || !*place)
        return false;
    snprintf(text, SPR_MEETING_PLACE_BYTES, "%s%s", prefix, place);
    return true;
}

spr_status spr_meeting_place(const char *place, const spr_comm_options *options,
                             const char *otherwise, char text[SPR_MEETING_PLACE_BYTES],
                             struct spr_error *error)
{
    char job_text[SPR_JOB_TEXT_BYTES];
    struct spr_identity id;
    bool pmix;

    if ((place && strlen(place) >= SPR_MEETING_PLACE_BYTES))
        return spr_error_set(error, SPR_ERR_INVALID, -1, "the place to meet is too long");
    if (take(text, "", place) || take(text, "", getenv("SPARRING_MEET")) ||
        (options && (take(text, "", options->root) || take(text, FILE_PREFIX, options->file))) ||
        take(text, "", getenv("SPARRING_ROOT")) ||
        take(text, FILE_PREFIX, getenv("SPARRING_FILE")) || take(text, "", otherwise))
        return SPR_OK;
    if (spr_identity_find(options, false, &id, &pmix, job_text, error) == SPR_OK &&
        (take(text, "", id.root) || take(text, FILE_PREFIX, id.file)))
        return SPR_OK;
    spr_error_clear(error);
    return spr_error_set(error, SPR_ERR_INVALID, -1,
                         "where do members and newcomers meet? Set SPARRING_MEET=host:port, "
                         "unix:name or file:path, the same for all");
}

/* ---- Opening ---- */

/* All newcomers say that they are rank 1 of 2: rank 0 numbers them later. The place and the job's
 * name are in the job id, so that no other job's newcomers are let in. */
static spr_status make_key(const struct spr_auth_key *given, const char *place, int rank,
                           struct spr_auth_key *key, struct spr_error *error)
{
    const char *job = getenv("SPARRING_JOB");
    uint8_t mac[SPR_AUTH_MAC_BYTES];
    char text[SPR_MEETING_PLACE_BYTES + 64];

    *key = *given;
    key->epoch = 0;
    key->rank = rank;
    key->size = 2;
    snprintf(text, sizeof(text), "meeting %.16s %s", job ? job : "", place);
    if (!spr_auth_hmac(given, text, strlen(text), mac))
        return spr_error_set(error, SPR_ERR_SYSTEM, -1, "libcrypto has no HMAC-SHA256");
    memcpy(&key->job, mac, sizeof(key->job));
    return SPR_OK;
}

static spr_status open_place(const char *place, const struct spr_auth_key *given, int rank,
                             bool loopback_only, uint64_t deadline_ns, spr_bootstrap *boot,
                             struct spr_error *error)
{
    size_t prefix = strlen(FILE_PREFIX);
    struct spr_auth_key key;
    spr_status status = make_key(given, place, rank, &key, error);

    if (status == SPR_OK && strncmp(place, FILE_PREFIX, prefix) == 0)
        status = spr_root_file(place + prefix, &key, loopback_only, deadline_ns, boot, error);
    else if (status == SPR_OK)
        status = spr_bootstrap_tcp(place, &key, loopback_only, deadline_ns, boot, error);
    explicit_bzero(&key, sizeof(key));
    if (status == SPR_OK)
        spr_root_of(boot)->meeting = true;
    return status;
}

spr_status spr_meeting_open(const char *place, const struct spr_auth_key *key,
                            const struct spr_meeting_terms *terms, bool loopback_only,
                            uint64_t deadline_ns, spr_bootstrap *boot, struct spr_error *error)
{
    int size = terms->members + terms->newcomers;
    struct spr_root_conn **conns = spr_calloc((size_t)size, sizeof(*conns));
    struct spr_root *r;
    spr_status status;

    if (!conns)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for %d ranks", size);
    status = open_place(place, key, 0, loopback_only, deadline_ns, boot, error);
    if (status != SPR_OK) {
        spr_free(conns);
        return status;
    }
    r = spr_root_of(boot);
    r->first = terms->members;
    r->size = size;
    r->at_least = terms->at_least;
    spr_free(r->server.conns); /* empty: nobody is let in before the first allgather */
    r->server.conns = conns;
    return SPR_OK;
}

spr_status spr_meeting_join(const char *place, const struct spr_auth_key *key, bool loopback_only,
                            uint64_t deadline_ns, spr_bootstrap *boot, struct spr_error *error)
{
    return open_place(place, key, 1, loopback_only, deadline_ns, boot, error);
}

void spr_meeting_seated(spr_bootstrap *boot, uint64_t deadline_ns)
{
    struct spr_root *r = spr_root_of(boot);

    r->deadline_ns = deadline_ns;
    boot->rank = (uint32_t)r->key.rank;
    boot->size = (uint32_t)r->size;
}

/* Newcomers say nothing between the exchanges. */
static spr_status look_for_newcomers(struct spr_root *r)
{
    char byte;

    for (int rank = r->first; rank < r->size; rank++) {
        const struct spr_root_conn *c = r->server.conns[rank];
        ssize_t n = c ? recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) : 1;

        if (n == 0)
            spr_root_server_fail(r, SPR_ERR_RANK_LOST, rank,
                                 "rank %d, a newcomer, ended its connection: it died", rank);
        else if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            spr_root_server_fail(r, SPR_ERR_RANK_LOST, rank, "rank %d, a newcomer, was lost: %m",
                                 rank);
    }
    return r->error.status;
}

spr_status spr_meeting_look(const spr_bootstrap *boot, struct spr_error *error)
{
    struct spr_root *r = spr_root_of(boot);
    spr_status status =
        r->side == &spr_root_client_side ? spr_root_client_look(r) : look_for_newcomers(r);

    return status ? spr_error_set(error, status, r->error.rank, "%s", r->error.text) : SPR_OK;
}

void spr_meeting_tend(spr_bootstrap *boot, const char *whom)
{
    struct spr_root *r = spr_root_of(boot);

    if (r->active)
        (void)r->side->step(r); /* the outcome is that of the next test */
    for (int rank = r->first; rank < r->size && r->error.status == SPR_OK; rank++) {
        struct spr_root_conn *c = r->server.conns[rank];

        if (!c || !c->contributed)
            continue;
        if (spr_root_conn_idle(c))
            spr_root_conn_send_text(c, SPR_ROOT_NOTE, SPR_IN_PROGRESS, -1, whom);
        (void)spr_root_conn_flush(c);
    }
}

void spr_meeting_refuse(spr_bootstrap *boot, spr_status status, int rank, const char *text)
{
    struct spr_root *r = spr_root_of(boot);

    spr_error_set(&r->error, status, rank, "%s", text);
    r->side->tell(r);
}

/* ---- Before the newcomers are numbered ---- */

int spr_root_meeting_place(const struct spr_root *r)
{
    for (int rank = r->first; rank < r->size && !r->seated; rank++)
        if (!r->server.conns[rank])
            return rank;
    return -1;
}

void spr_root_meeting_leave(struct spr_root *r, struct spr_root_conn *c)
{
    struct spr_root_server *s = &r->server;
    char from[160];

    spr_info(SPR_SUB_INIT, "meeting: the newcomer from %s has gone again",
             spr_address_text(&c->address, from, sizeof(from)));
    s->conns[c->rank] = NULL;
    s->connected--;
    s->contributed -= c->contributed;
    spr_root_watch(r, c, 0); /* close() alone does not, while a forked child has it, too */
    spr_root_conn_close(c);
    spr_free(c);
}

bool spr_root_meeting_settle(struct spr_root *r)
{
    struct spr_root_server *s = &r->server;
    int next = r->first;

    if (!spr_root_meeting_open(r) || s->contributed < r->at_least || r->error.status != SPR_OK)
        return false;
    for (int rank = r->first; rank < r->size; rank++) {
        struct spr_root_conn *c = s->conns[rank];

        if (c && !c->contributed) {
            spr_root_meeting_leave(r, c);
        } else if (c) {
            s->conns[rank] = NULL;
            c->rank = next;
            s->conns[next++] = c;
        }
    }
    r->size = next;
    r->deadline_ns = spr_monotonic_ns() + spr_root_scaled(SEATING);
    spr_root_door_close(r);
    return true;
}
