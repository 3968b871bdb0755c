/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Making a communicator, inside: what all ways to one have in common.
 *
 *   settings.c  the options
 *   choice.c    transports
 *   links.c     who is where, links; link_rates.c  what these are worth
 *   create.c    the order of it all; the end
 */
#ifndef SPR_COLLECTIVES_CREATE_H
#define SPR_COLLECTIVES_CREATE_H

#include "collectives/comm.h"

/* Environment and configuration file, then what the user gave (may be NULL). */
spr_status spr_comm_load_options(const spr_comm_options *user, struct spr_options *o,
                                 struct spr_error *error);
/* A copy with its own strings. */
spr_status spr_comm_copy_options(const struct spr_options *from, struct spr_options *to);
/* Settings that decide what travels and when, which must be equal on all ranks. decisions:
 * the hash of spr_decisions_load(). */
uint64_t spr_comm_config_hash(const struct spr_options *o, uint64_t decisions);

/* What this rank tells the others: who and where it is, what it offers. */
void spr_comm_describe(const spr_comm *comm, struct spr_peer_info *info);
/* Everybody learns of everybody: fills comm->peers. */
spr_status spr_comm_exchange(spr_comm *comm, spr_bootstrap *boot, uint64_t deadline_ns,
                             struct spr_error *error);
/* What it tells of its host's link for a transport. */
struct spr_link_rate spr_comm_link_rate(const spr_comm *comm, const struct spr_transport *t);
/* comm->peers are there: fills comm->topology.rate. O(size). */
void spr_comm_find_rates(spr_comm *comm);
/* A line of level info where they make a difference, or were given in vain. */
void spr_comm_tell_rates(const spr_comm *comm);
/* Close transports that lead to nobody, once it is known who is there. */
void spr_comm_close_unused(spr_comm *comm);
/* Links to all others. */
spr_status spr_comm_connect(spr_comm *comm, const spr_bootstrap *meeting, uint64_t deadline_ns,
                            struct spr_error *error);
/* One line of level info that says what is used. */
void spr_comm_announce(const spr_comm *comm);

/* All of these, for a communicator of spr_comm_new that has its key. `meeting`: of those who are
 * connected to rank 0 of one, else NULL. After an error spr_comm_discard() it. */
spr_status spr_comm_build(spr_comm *comm, spr_bootstrap *boot, const spr_bootstrap *meeting,
                          uint64_t deadline_ns, struct spr_error *error);
/* Without a goodbye. comm may be NULL. */
void spr_comm_discard(spr_comm *comm);
/* It is given up while it is made: where there are links, the others hear why. comm may be NULL. */
void spr_comm_withdraw(spr_comm *comm, const char *why);

#endif
