/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Address of a TCP listener as ranks tell each other: the first bytes of spr_peer_info.address[].
 *
 *    0        1        2                 4                                   8
 *   +--------+--------+-----------------+-----------------------------------+
 *   | family | flags  | port            | scope (the owner's; informational)|
 *   +--------+--------+-----------------+-----------------------------------+
 *   | IPv4 (first 4 bytes) or IPv6, network order                           |  8
 *   |                                                                       |
 *   +-----------------------------------------------------------------------+
 *
 * Little-endian; the rest of the blob is zero. Family 0: no address.
 */
#ifndef SPR_TRANSPORT_TCP_ADDRESS_H
#define SPR_TRANSPORT_TCP_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { SPR_TCP_IPV4 = 4, SPR_TCP_IPV6 = 6 };

struct spr_tcp_address {
    uint8_t family;   /* SPR_TCP_IPV4, SPR_TCP_IPV6, 0 = none */
    uint8_t loopback; /* reachable on the same host only */
    uint16_t port;
    uint32_t scope; /* interface index of a link-local IPv6 address */
    uint8_t bytes[16];
};
_Static_assert(sizeof(struct spr_tcp_address) == 24, "TCP address layout");

/* "[fe80::1%2]:65535" and the like. */
#define SPR_TCP_ADDRESS_TEXT 80

/* Family, address, port and scope of sa. False: neither IPv4 nor IPv6. */
bool spr_tcp_address_from(struct spr_tcp_address *a, const struct sockaddr *sa);
/* The length for bind() and connect(); 0 when a holds no valid address. */
socklen_t spr_tcp_address_to(const struct spr_tcp_address *a, struct sockaddr_storage *sa);
bool spr_tcp_address_link_local(const struct spr_tcp_address *a);
/* Same family and address; port and scope do not matter. */
bool spr_tcp_address_same_host(const struct spr_tcp_address *a, const struct spr_tcp_address *b);
/* "192.0.2.1:4711", "[2001:db8::1]:4711", without the port when it is 0; returns text. */
const char *spr_tcp_address_print(const struct spr_tcp_address *a, char *text, size_t bytes);

#endif
