/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sockets of the places in root_address.h.
 */
#include "transport/bootstrap/root_address.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 4096 /* all ranks may come at once; the kernel cuts it to somaxconn */

/* Close, keep errno. */
static int give_up(int fd)
{
    int saved = errno;

    close(fd);
    errno = saved;
    return -1;
}

static void set_option(int fd, int level, int option, int value)
{
    /* All of them only make things better: nothing to do when the system does not know one. */
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

static int open_socket(const struct spr_address *a)
{
    return socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void no_delay(int fd, const struct spr_address *a)
{
    if (a->sa.ss_family != AF_UNIX)
        set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

int spr_address_listen(const struct spr_address *a)
{
    int fd = open_socket(a);

    if (fd < 0)
        return -1;
    if (a->sa.ss_family != AF_UNIX) {
        /* Connections of the job before us may still be in TIME_WAIT. */
        set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
        if (a->sa.ss_family == AF_INET6)
            set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    }
    if (bind(fd, (const struct sockaddr *)&a->sa, a->bytes) != 0 || listen(fd, BACKLOG) != 0)
        return give_up(fd);
    return fd;
}

int spr_address_connect(const struct spr_address *a)
{
    int fd = open_socket(a);

    if (fd < 0)
        return -1;
    no_delay(fd, a);
    if (connect(fd, (const struct sockaddr *)&a->sa, a->bytes) == 0 || errno == EINPROGRESS ||
        errno == EINTR)
        return fd;
    return give_up(fd);
}

int spr_address_accept(int listen_fd, struct spr_address *from)
{
    int fd;

    memset(from, 0, sizeof(*from));
    from->bytes = sizeof(from->sa);
    fd = accept4(listen_fd, (struct sockaddr *)&from->sa, &from->bytes,
                 SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        no_delay(fd, from);
    return fd;
}

bool spr_socket_same_user(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    int domain = 0;
    socklen_t domain_bytes = sizeof(domain);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_bytes) != 0)
        return false;
    if (domain != AF_UNIX)
        return true;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}
