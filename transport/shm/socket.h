/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sockets of the shared-memory transport: what socket.c gives to connect.c.
 */
#ifndef SPR_TRANSPORT_SHM_SOCKET_H
#define SPR_TRANSPORT_SHM_SOCKET_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct spr_shm;

/* The abstract name that belongs to an address. Returns its length. */
socklen_t spr_shm_socket_name(struct sockaddr_un *to, const uint8_t name[16]);
/* epoll_ctl; source is the object whose first member is its enum spr_shm_source. */
int spr_shm_epoll_set(struct spr_shm *t, int op, int fd, uint32_t events, void *source);

#endif
