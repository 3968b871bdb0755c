/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the driver of a network interface says of its link.
 */
#ifndef SPR_TRANSPORT_TCP_RATE_H
#define SPR_TRANSPORT_TCP_RATE_H

#include <stdint.h>

struct spr_tcp_link_facts {
    uint64_t mtu_bytes; /* 0: not known */
    uint32_t mbit;      /* Mbit/s; 0: not known */
    char driver[32];    /* "": not known */
};

/* By a socket: /sys may show the interfaces of another network namespace. */
void spr_tcp_link_facts(const char *interface, struct spr_tcp_link_facts *facts);

#define SPR_TCP_MOST_MBIT 4000000u /* no link has more */

/* Mbit/s of the link that an interface leads to other hosts by; 0: not known. What bridges, tunnels
 * and the cables of containers and some virtual machines say is a constant, and no link's rate. */
uint32_t spr_tcp_link_mbit(const char *interface);

#endif
