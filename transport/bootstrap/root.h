/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A star around rank 0 that does allgathers: the bootstrap over TCP, over an abstract Unix socket
 * and by way of a shared file. Private to the bootstrap.
 *
 *   root.c         the bootstrap's functions, what both sides share
 *   root_server.c  rank 0: events, timers, failure
 *   root_door.c    rank 0: who comes in
 *   root_gather.c  rank 0: the allgather
 *   root_client.c  all others
 *   root_tcp.c     rank 0 is at a host and port, or at an abstract Unix socket
 *   root_file.c    where rank 0 is, from a shared file
 *   meeting.c      newcomers of a communicator that grows, who have no number yet
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_ROOT_H
#define SPR_TRANSPORT_BOOTSTRAP_ROOT_H

#include <stdbool.h>
#include <stdint.h>

#include <sparring/bootstrap.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "transport/bootstrap/auth.h"
#include "transport/bootstrap/root_address.h"
#include "transport/bootstrap/root_conn.h"

#define SPR_ROOT_HALF_OPEN 64 /* most connections that are not proven yet */

struct spr_root;

/* What rank 0 and the others do differently. */
struct spr_root_side {
    spr_status (*open)(struct spr_root *r);
    /* An allgather was posted. */
    void (*begin)(struct spr_root *r);
    /* Move on. SPR_OK: the allgather is complete. Errors: r->error is set. */
    spr_status (*step)(struct spr_root *r);
    /* Sleep until something can happen, at most until until_ns. */
    void (*wait)(struct spr_root *r, uint64_t until_ns);
    /* What is missing, as the text of a status that is returned. */
    spr_status (*explain)(struct spr_root *r, char *text, size_t bytes);
    /* It failed (r->error), or is given up: tell the others. */
    void (*tell)(struct spr_root *r);
    void (*close)(struct spr_root *r);
};
extern const struct spr_root_side spr_root_server_side, spr_root_client_side;

/* Where rank 0 is. */
struct spr_root_kind {
    spr_status (*open)(struct spr_root *r);
    /* Rank 0 listens on *address: tell the others. */
    spr_status (*publish)(struct spr_root *r, const struct spr_address *address);
    /* Others, before an attempt: bring r->place up to date. NOT_FOUND: not yet, `why` is filled. */
    spr_status (*find)(struct spr_root *r, char *why, size_t bytes);
    void (*close)(struct spr_root *r);
};

struct spr_root_server {
    int epoll_fd, listen_fd;
    bool listening;          /* listen_fd is watched */
    uint64_t listen_next_ns; /* the port was taken: try again then */
    int listen_errno;
    struct spr_list half; /* connections that are not proven, oldest first */
    int half_count;
    struct spr_root_conn **conns; /* by rank; [0] and those that did not arrive: NULL */
    int connected;
    int contributed, delivered; /* others, in this allgather */
    bool broadcasting;
    uint64_t note_next_ns, note_gap_ns;
    bool told;              /* those who are connected know of the failure ... */
    uint64_t linger_ns;     /* ... and until then those who still come are told */
    int refused;            /* connections that were turned away ... */
    char last_refusal[240]; /* ... and the last of them */
};

struct spr_root_client {
    struct spr_root_conn conn;
    bool proven, sent; /* sent: our part of this allgather is under way */
    short events;      /* that the handshake waits for */
    int tried;         /* addresses of the place tried so far */
    uint64_t next_ns, give_up_ns, pause_ns;
    struct spr_rng rng;
    spr_status last;     /* of the last attempt ... */
    char last_text[420]; /* ... and why it failed */
    bool warned;
    char note[SPR_ROOT_TEXT_BYTES + 1]; /* whom rank 0 waits for */
    uint64_t ended_ns; /* after the last exchange: rank 0 ended the connection; 0 = not yet */
};

struct spr_root {
    struct spr_auth_key key; /* a copy: wiped at the end */
    const struct spr_root_side *side;
    const struct spr_root_kind *kind;
    struct spr_place place;
    int size;  /* who takes part, all with the same number of bytes */
    int first; /* rank 0 speaks for those before this one, who do not come here; mostly 1 */
    bool meeting, seated; /* see meeting.h; seated: the others have their numbers */
    int at_least;         /* rank 0 of a meeting: who must have come at the deadline */
    uint64_t start_ns, deadline_ns;
    struct spr_error error;
    char line[SPR_ERROR_TEXT_BYTES];
    /* The allgather under way. */
    bool active;
    uint32_t sequence;
    const void *in;
    void *out;
    size_t bytes;
    union {
        struct spr_root_server server; /* rank 0 */
        struct spr_root_client client; /* all others */
    };
    /* root_file.c */
    char file[SPR_PLACE_TEXT_BYTES];
    uint64_t base_job, file_nonce;
};

/*
 * Make a bootstrap. place: copied; rank 0 listens at its first address. The key is copied. Errors:
 * NOMEM, SYSTEM, and what kind->publish returns.
 */
spr_status spr_root_open(const struct spr_root_kind *kind, const struct spr_place *place,
                         const char *file, const struct spr_auth_key *key, uint64_t deadline_ns,
                         spr_bootstrap *boot, struct spr_error *error);
/* Is this one of ours? */
struct spr_root *spr_root_of(const spr_bootstrap *boot);
/* "30 s": how long it was tried. */
const char *spr_root_waited(const struct spr_root *r, char *buf, size_t bytes);

/* How many come to rank 0. */
static inline int spr_root_others(const struct spr_root *r) { return r->size - r->first; }

/* A time limit, scaled for slow machines. */
static inline uint64_t spr_root_scaled(uint64_t ns)
{
    return (uint64_t)((double)ns * spr_time_factor());
}

/* root_server.c: failure (%m works), the events that a connection is watched for, the end's text.
 */
void spr_root_server_fail(struct spr_root *r, spr_status status, int rank, const char *fmt, ...)
    SPR_PRINTF(4, 5);
void spr_root_watch(struct spr_root *r, struct spr_root_conn *c, uint32_t events);
void spr_root_server_tell(struct spr_root *r, struct spr_root_conn *c);

/* root_door.c: get the port; let those in who wait; a stranger has something; time passes; when to
 * look next; close, when all are in. */
void spr_root_door_listen(struct spr_root *r);
void spr_root_door_accept(struct spr_root *r);
void spr_root_door_handshake(struct spr_root *r, struct spr_root_conn *c);
void spr_root_door_timers(struct spr_root *r);
uint64_t spr_root_door_until(const struct spr_root *r);
void spr_root_door_close(struct spr_root *r);

/* root_client.c: between exchanges: rank 0 has given up (r->error), or ended the connection some
 * time ago. */
spr_status spr_root_client_look(struct spr_root *r);
/* meeting.c: a place for a newcomer, or -1; somebody has gone before all were seated; the time is
 * over: go on with those who are there, if they are enough. */
int spr_root_meeting_place(const struct spr_root *r);
void spr_root_meeting_leave(struct spr_root *r, struct spr_root_conn *c);
bool spr_root_meeting_settle(struct spr_root *r);
/* Nobody has a number yet: whoever comes may go again. */
static inline bool spr_root_meeting_open(const struct spr_root *r)
{
    return r->meeting && !r->seated;
}

/* root_gather.c: a proven connection has something. */
void spr_root_gather_event(struct spr_root *r, struct spr_root_conn *c, uint32_t events);
/* A rank has arrived. */
void spr_root_gather_join(struct spr_root *r, struct spr_root_conn *c);
void spr_root_gather_begin(struct spr_root *r);
/* Broadcast when all parts are there. SPR_OK: everybody has the result. */
spr_status spr_root_gather_step(struct spr_root *r);

#endif
