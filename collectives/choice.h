/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which transports a rank opens, and which of them links it with a peer. It is decided here and
 * nowhere else; sparring-info asks the same functions, and shows their reasons.
 */
#ifndef SPR_COLLECTIVES_CHOICE_H
#define SPR_COLLECTIVES_CHOICE_H

#include "collectives/comm.h"

struct spr_transport_kind {
    const char *name;
    int id; /* SPR_T_... */
    const struct spr_transport_ops *ops;
    const struct spr_transport_ops *lanes; /* over several connections; NULL: there is no such */
};

/* Is that what this transport is? */
bool spr_transport_is(const struct spr_transport *t, const struct spr_transport_kind *kind);

/* In the order of preference: `auto` takes the first that works for a peer. At most SPR_T_COUNT. */
extern const struct spr_transport_kind spr_transport_kinds[];
extern const size_t spr_transport_kinds_count;

/* What became of one kind when this rank opened its transports. */
struct spr_transport_offer {
    bool open;
    bool refused; /* it was tried, and cannot be used */
    char why_not[SPR_ERROR_TEXT_BYTES];
};

/* Is it a list of transports that there are? INVALID. */
spr_status spr_comm_check_transports(const char *list, struct spr_error *error);
/* Open those that comm->options.transports asks for: shm, verbs, and one of the two TCP
 * twins. `offers`:
 * NULL, or [SPR_T_COUNT], filled in the order of spr_transport_kinds as far as it came. */
spr_status spr_comm_open_transports(spr_comm *comm, struct spr_transport_offer *offers,
                                    struct spr_error *error);
/* What links these two: the first kind that `mine` offers and that is not unusable; NULL: none.
 * `why_not`: NULL, or [SPR_T_COUNT], filled in the order of spr_transport_kinds: the reason of
 * those that were passed over, NULL for the one that was taken and those after it. Pure. */
const struct spr_transport_kind *spr_transport_choose(const struct spr_peer_info *mine,
                                                      const struct spr_peer_info *peer,
                                                      const char **why_not);

#endif
