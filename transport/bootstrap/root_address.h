/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Where rank 0 is met: TCP addresses, or an abstract Unix socket. Private to the bootstrap.
 */
#ifndef SPR_TRANSPORT_BOOTSTRAP_ROOT_ADDRESS_H
#define SPR_TRANSPORT_BOOTSTRAP_ROOT_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"

#define SPR_PLACE_ADDRESSES 16
#define SPR_PLACE_TEXT_BYTES 300
#define SPR_UNIX_PREFIX "unix:" /* of the text of an abstract socket */

struct spr_address {
    struct sockaddr_storage sa;
    socklen_t bytes;
};

/* One place with its addresses, in the order in which they are tried. */
struct spr_place {
    char text[SPR_PLACE_TEXT_BYTES]; /* as the user wrote it */
    bool name;                       /* the host is a name, not an address */
    int count;
    struct spr_address list[SPR_PLACE_ADDRESSES];
};

/*
 * "host:port", "address:port", "[IPv6 address]:port" or "unix:name". Names are looked up until the
 * deadline, since a cluster's name service may learn of rank 0 later than we do. Errors: INVALID
 * (not of this form), BOOTSTRAP (unknown name).
 */
spr_status spr_place_resolve(struct spr_place *place, const char *text, uint64_t deadline_ns,
                             struct spr_error *error);
/* Add one numeric "address:port". false: not that, or no room. */
bool spr_place_add(struct spr_place *place, const char *text);

bool spr_address_loopback(const struct spr_address *a);
/* The same port on all addresses of this host. */
struct spr_address spr_address_any(const struct spr_address *a);
/* "10.0.0.1:1234", "[::1]:1234", "unix:name". Returns buf. */
const char *spr_address_text(const struct spr_address *a, char *buf, size_t bytes);

/* Non-blocking sockets; -1 with errno. */
int spr_address_listen(const struct spr_address *a);
/* Begin to connect; errors come here or with the first send. */
int spr_address_connect(const struct spr_address *a);
/* -1 with errno EAGAIN when there is none. *from is the peer's address. */
int spr_address_accept(int listen_fd, struct spr_address *from);

/* false: the other end of a Unix socket belongs to another user (TCP: always true). Abstract names
 * have no permissions, anybody on the host can bind or reach them. */
bool spr_socket_same_user(int fd);

#endif
