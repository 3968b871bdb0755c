/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Interface: which of this host's addresses the TCP transports use.
 */
#ifndef SPR_TRANSPORT_TCP_INTERFACE_H
#define SPR_TRANSPORT_TCP_INTERFACE_H

#include <stdbool.h>

#include <sparring/status.h>

#include "base/error.h"
#include "transport/tcp/address.h"

#define SPR_TCP_INTERFACE_TEXT 100 /* a name or an address, as in the option */

/* Interfaces that are used together. */
struct spr_tcp_joined {
    uint32_t count; /* of names; 0: none are joined. More than four are counted only */
    char names[4][SPR_TCP_INTERFACE_TEXT];
    char missing[SPR_TCP_INTERFACE_TEXT]; /* one that is not up, or has no address; "": none */
};

/* What `wanted` joins with '+': "eth0+eth1,eth2" is eth0 and eth1, if one of them is up and has an
 * address (joined->missing: the other one is not), else eth2 (count 0: nothing is joined). */
void spr_tcp_interface_joined(const char *wanted, struct spr_tcp_joined *joined);

struct spr_tcp_interface {
    char name[16]; /* IF_NAMESIZE */
    struct spr_tcp_address address;
    bool asked;      /* the user named it */
    const char *why; /* why this one, for the log */
};

/*
 * `wanted`: names of interfaces or literal addresses, separated by commas, or '+' where they are
 * joined, of which the first that exists and is up is taken; "" takes the first interface that is
 * up, has an address and is neither loopback nor made for containers and virtual machines (veth*,
 * docker*, br-*, virbr*), IPv4 before IPv6, and loopback when there is none. `loopback_only`:
 * nothing but loopback will do.
 *
 * Errors: INVALID (none of the wanted exists, is up and has an address, or it is not loopback; the
 * text lists what exists), SYSTEM.
 */
spr_status spr_tcp_interface_choose(const char *wanted, bool loopback_only,
                                    struct spr_tcp_interface *chosen, struct spr_error *error);

/* The same choice, explained: tell() is called for every address of every interface, and for those
 * without one (address.family 0), with `why` saying why it was chosen, or why not. Errors: as
 * above, after everything was told. */
spr_status spr_tcp_interface_survey(const char *wanted, bool loopback_only,
                                    void (*tell)(void *ctx, const struct spr_tcp_interface *i,
                                                 bool up, bool chosen),
                                    void *ctx, struct spr_error *error);

#endif
