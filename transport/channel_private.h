/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What channel.c (sending side), channel_held.c (what waits for more urgent data),
 * channel_receive.c (upcalls of the links) and channel_stop.c share.
 */
#ifndef SPR_TRANSPORT_CHANNEL_PRIVATE_H
#define SPR_TRANSPORT_CHANNEL_PRIVATE_H

#include "transport/channel.h"

/* Something that came before its partner was posted. */
enum early_kind {
    EARLY_GRANT,   /* a grant without a send */
    EARLY_REQUEST, /* a request without a receive */
    EARLY_DATA     /* eager data without a receive */
};
struct early {
    struct spr_list node;
    enum early_kind kind;
    uint32_t operation, step;
    uint64_t descriptor;
    size_t bytes;
    void *data;  /* EARLY_DATA: of spr_channel_data_get() */
    bool placed; /* EARLY_GRANT: `place` is set */
    struct spr_place place;
};

void spr_channel_early_init(struct spr_channel *ch);
/* After all that is kept was dropped. */
void spr_channel_early_destroy(struct spr_channel *ch);
/* Memory for a message of so many bytes; NULL: none is left. */
void *spr_channel_data_get(struct spr_channel *ch, size_t bytes);
void spr_channel_data_put(struct spr_channel *ch, void *data); /* or NULL */

/* What an eager message takes of the window. */
static inline uint32_t spr_eager_cost(size_t bytes) { return (uint32_t)bytes + SPR_FRAME_BYTES; }
/* Data that may leave: to the link, or held while something more urgent is under way. */
void spr_channel_send_or_hold(struct spr_channel_peer *p, struct spr_send *s);
void spr_channel_hand_over_data(struct spr_channel_peer *p, struct spr_send *s);
/* Send data of an operation that are held back. */
void spr_channel_send_held_of(struct spr_channel_peer *p, uint32_t operation);
/* Held data are not sent. */
void spr_channel_drop_held(struct spr_channel_peer *p, struct spr_send *s, spr_status status);
/* A receive that is in no list meets eager data that came before it. */
void spr_channel_deliver_early(struct spr_channel_peer *p, struct spr_recv *r, struct early *e);
/* What the peer sent ahead for an operation is not wanted. */
void spr_channel_drop_ahead(struct spr_channel_peer *p, uint32_t operation);
/* Unlink and free, data included. */
void spr_channel_drop_early(struct spr_channel_peer *p, struct early *e);
/* Fail the communicator because of a peer. */
void spr_channel_fail(struct spr_channel_peer *p, spr_status status, const char *text);
/* Who is to blame for a failure on the link to this peer: want of memory or descriptors is this
 * rank's own. */
int spr_channel_culprit(const struct spr_channel_peer *p, spr_status status);
/* Has the peer gone without taking part in this operation? One that said BYE has sent all that was
 * needed of it for earlier ones. */
bool spr_channel_never_comes(const struct spr_channel_peer *p, uint32_t operation);
/* Send a CREDIT frame when half of the eager window is consumed and unreported. */
void spr_channel_report_credit(struct spr_channel_peer *p);
void spr_channel_send_control(struct spr_channel_peer *p, enum spr_frame_type type,
                              uint32_t operation, uint32_t step, uint64_t descriptor, uint32_t arg,
                              uint64_t arg64, const void *data, size_t bytes);
/* Remember a grant or request that came before its partner; NULL and failed when there are too
 * many. */
struct early *spr_channel_keep(struct spr_channel_peer *p, enum early_kind kind,
                               const struct spr_frame *f);
/* Allow the peer to send what this receive waits for, into its place if that is possible. */
void spr_channel_send_grant(struct spr_channel_peer *p, struct spr_recv *r);
/* A GRANT frame arrived; `place` may be NULL. */
void spr_channel_grant(struct spr_channel_peer *p, const struct spr_frame *f,
                       const struct spr_place *place);
/* A RECALL frame arrived: the peer has given receives up; or we had, and it says that it knows. */
void spr_channel_on_recall(struct spr_channel_peer *p, const struct spr_frame *f);
/* Nothing that the peer was allowed to write comes any more: complete what waited for that. */
void spr_channel_recall_over(struct spr_channel_peer *p);

void spr_channel_on_up(struct spr_link *link);
spr_status spr_channel_on_header(struct spr_link *link, const struct spr_frame *f,
                                 struct spr_rx *rx);
void spr_channel_on_payload(struct spr_link *link, const struct spr_frame *f, const void *data,
                            void *token);
void spr_channel_on_down(struct spr_link *link, spr_status why, const char *text);

#endif
