/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The handshake on a socket: moves exactly the bytes that the machine asks for, so that what
 * follows on the stream (and descriptors passed with it) is left for its reader.
 */
#include "transport/bootstrap/auth.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "transport/bootstrap/auth_wire.h"

/* Both: false when the socket has nothing to offer now. */
static bool push(struct spr_auth *a, int fd, const uint8_t *data, size_t bytes)
{
    ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n >= 0)
        spr_auth_sent(a, (size_t)n);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
        return false;
    else if (errno != EINTR)
        spr_auth_broken(a, "the connection failed", errno);
    return true;
}

static bool pull(struct spr_auth *a, int fd, uint8_t *into, size_t bytes)
{
    ssize_t n = recv(fd, into, bytes, MSG_DONTWAIT);

    if (n > 0)
        spr_auth_received(a, (size_t)n);
    else if (n == 0)
        spr_auth_broken(a, "the peer closed the connection during the handshake", 0);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
        return false;
    else if (errno != EINTR)
        spr_auth_broken(a, "the connection failed", errno);
    return true;
}

spr_status spr_auth_drive(struct spr_auth *a, int fd, short *events)
{
    const uint8_t *data = NULL;
    uint8_t *into = NULL;
    size_t bytes;

    while (spr_auth_result(a) == SPR_IN_PROGRESS) {
        if ((bytes = spr_auth_output(a, &data)) > 0) {
            *events = POLLOUT;
            if (!push(a, fd, data, bytes))
                break;
        } else {
            bytes = spr_auth_wants(a, &into);
            *events = POLLIN;
            if (!pull(a, fd, into, bytes))
                break;
        }
    }
    return spr_auth_result(a);
}
