/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the files of the shared-memory transport share.
 *
 *   shm.c       the operations; progress, sleeping
 *   ring.c      frames: publish, receive, release
 *   socket.c    Unix sockets: listen, accept, end of file
 *   connect.c   one connection: authentication, exchange of descriptors, mapping
 *   region.c    memory; slots.c  who holds which slot
 */
#ifndef SPR_TRANSPORT_SHM_PRIVATE_H
#define SPR_TRANSPORT_SHM_PRIVATE_H

#include "base/list.h"
#include "base/mem.h"
#include "transport/shm/region.h"
#include "transport/shm/slots.h"
#include "transport/transport.h"

/* What an epoll event points to: the first member of each source. */
enum spr_shm_source { SPR_SHM_LISTENER, SPR_SHM_BELL, SPR_SHM_TIMER, SPR_SHM_CONN, SPR_SHM_LINK };

/* The one byte that is ever sent on the socket of a link: the end that follows is not that of the
 * process. */
#define SPR_SHM_CUT 'c'

struct spr_shm_link {
    enum spr_shm_source source;
    struct spr_link base;

    /* Frames to the peer. */
    struct spr_tx *head, *tail; /* all that sent() has not returned yet */
    struct spr_tx *uncopied;    /* the first of them that is not yet in shared memory */
    struct spr_shm_area *out;   /* own memory, for this peer */
    uint32_t published;         /* descriptors written */
    uint32_t consumed_seen;     /* how many of them the peer took, as last read */
    uint32_t released_seen;     /* releases of the peer that were taken in */
    struct spr_shm_held held;

    /* Frames from the peer. */
    const struct spr_shm_entry *next; /* the descriptor that comes next, or NULL before mapping */
    uint32_t consumed;                /* descriptors taken */
    uint32_t released;                /* slots given back */
    struct spr_shm_view view;
    struct spr_pool copies; /* borrowed payloads that were inline */

    /* The peer. */
    uint64_t rung;    /* the sleep (its word) that the bell was rung for */
    int bell;         /* its eventfd */
    int socket;       /* open as long as the link: its end of file is the peer's end */
    int pid, pidfd;   /* the socket may outlive the process, in a child that it forked; -1 = none */
    bool gone;        /* end of file seen; frames that are in the ring still count */
    bool was_cut;     /* ... and the peer has said that it lives on */
    bool cut;         /* kill() was called: return what is queued, no other upcall */
    spr_status fault; /* found outside progress(): take the link down there */
    const char *fault_text;

    struct spr_shm_conn *conn; /* connecting side, while connecting */
};

/* A connection that is not a link yet. */
struct spr_shm_conn {
    enum spr_shm_source source;
    struct spr_list node; /* in conns, also when dead */
    enum { CONN_IDLE, CONN_AUTH, CONN_EXCHANGE, CONN_READY, CONN_DEAD } state;
    bool connector;
    int peer; /* -1 until proven */
    int socket, bell, pid;
    bool sent, received; /* the descriptors */
    bool half_open;      /* accepted and not proven */
    uint32_t events;     /* that epoll waits for */
    int attempts;
    const char *why;      /* after an error */
    uint64_t deadline_ns; /* accepted side */
    uint8_t address[16];  /* connecting side */
    struct spr_shm_view view;
    struct spr_auth auth;
};

struct spr_shm {
    struct spr_transport base;
    struct spr_shm_own own;
    struct spr_shm_slots slots;
    struct spr_shm_link **by_rank; /* NULL = no link */
    struct spr_shm_link **links;   /* all, in the order of connect() */
    int link_count;
    uint64_t generation; /* of sleeps */
    bool armed;
    unsigned until_sockets; /* calls of progress() until the sockets are looked at */

    uint8_t name[16]; /* of the listening socket */
    int epoll, listener, bell, timer;
    enum spr_shm_source listener_source, bell_source, timer_source; /* epoll points here */
    struct spr_list conns;
    int dead;           /* closed, freed at the end of the pass over events */
    int half_open;      /* accepted and not proven yet */
    int unfinished;     /* connections that are under way, both sides */
    bool listener_off;  /* not in epoll now */
    bool accept_warned; /* once: it is tried again every tick */
    bool timer_on;
    bool sockets_due; /* something to do there without an event */
};

static inline struct spr_shm *spr_shm_of(struct spr_transport *t)
{
    return spr_container_of(t, struct spr_shm, base);
}
static inline struct spr_shm_link *spr_shm_link_of(struct spr_link *link)
{
    return spr_container_of(link, struct spr_shm_link, base);
}
static inline struct spr_shm *spr_shm_of_link(const struct spr_shm_link *link)
{
    return spr_shm_of(link->base.transport);
}

/* ---- ring.c ---- */
/* The peer's next frame is there. */
static inline bool spr_shm_has_frame(const struct spr_shm_link *link)
{
    return link->next &&
           atomic_load_explicit(&link->next->turn, memory_order_acquire) == link->consumed + 1;
}
/* A link becomes usable: its memory is mapped. */
void spr_shm_ring_attach(struct spr_shm_link *link);
/* Copy queued frames as far as there is room. Returns how many. */
int spr_shm_flush(struct spr_shm_link *link);
/* Take what came; upcalls. Returns how many frames. */
int spr_shm_receive(struct spr_shm_link *link);
void spr_shm_release(struct spr_link *link, void *token);
/* The peer took descriptors or released slots since the last look. */
bool spr_shm_has_room_news(const struct spr_shm_link *link);
/* Take in what the peer consumed and released. */
void spr_shm_reclaim(struct spr_shm_link *link);

/* ---- socket.c ---- */
spr_status spr_shm_sockets_open(struct spr_shm *t, struct spr_error *error);
void spr_shm_sockets_close(struct spr_shm *t);
/* Accept, authenticate, see ends of file. Returns the number of things done. */
int spr_shm_sockets_progress(struct spr_shm *t);
/* A connected socket's other end belongs to this user; its process, as the kernel knows it. */
bool spr_shm_same_user(int fd, int *pid);
/* Watch the process of a link that comes up. */
void spr_shm_watch_process(struct spr_shm *t, struct spr_shm_link *link);

/* ---- connect.c ---- */
spr_status spr_shm_conn_start(struct spr_shm *t, struct spr_shm_link *link, const uint8_t *address);
void spr_shm_conn_accepted(struct spr_shm *t, int fd, int pid);
/* Go on; closes, or hands over to its link. Returns the number of steps. */
int spr_shm_conn_drive(struct spr_shm *t, struct spr_shm_conn *c);
/* Close; freed with the dead ones, since an event may still point to it. */
void spr_shm_conn_close(struct spr_shm *t, struct spr_shm_conn *c);
void spr_shm_conn_free_dead(struct spr_shm *t);

/* ---- shm.c ---- */
/* Take a link down, with upcalls: queued frames come back, then down(). Only inside progress(). */
void spr_shm_link_down(struct spr_shm_link *link, spr_status why, const char *text);

#endif
