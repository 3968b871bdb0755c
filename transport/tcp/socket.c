/* SPDX-License-Identifier: BSD-2-Clause */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/tcp/tcp.h"

#define KEEPALIVE_IDLE_S 10
#define KEEPALIVE_INTERVAL_S 2
#define KEEPALIVE_PROBES 10

uint64_t spr_tcp_seconds_ns(double seconds)
{
    return (uint64_t)(seconds * spr_time_factor() * 1e9);
}

static void set_int(int fd, int level, int option, int value)
{
    /* None of these decides whether the connection works. */
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

void spr_tcp_limit_unsent(struct spr_link *link, size_t bytes)
{
    const struct spr_tcp_link *l = spr_tcp_link_of(link);

    if (l->fd >= 0)
        set_int(l->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT,
                (int)spr_min_size(l->same_host ? SPR_TCP_LOOPBACK_UNSENT : INT_MAX, bytes));
}

/*
 * SO_SNDBUF and SO_RCVBUF stay untouched: setting them turns the kernel's autotuning off.
 *
 * TCP_USER_TIMEOUT also ends connections whose peer is alive but does not read (zero window), so it
 * must not be shorter than the time for which an operation may legitimately wait: its deadline.
 */
spr_status spr_tcp_socket_options(int fd, const struct spr_options *options,
                                  struct spr_error *error)
{
    double user_timeout_ms = options->timeout_s * spr_time_factor() * 1e3;

    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
            (int)(user_timeout_ms < 2e9 ? user_timeout_ms : 2e9));
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
    if (options->congestion && options->congestion[0] &&
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, options->congestion,
                   (socklen_t)strlen(options->congestion))) {
        char available[200] = "";
        FILE *f = fopen("/proc/sys/net/ipv4/tcp_available_congestion_control", "re");
        int saved = errno;
        if (f) {
            if (!fgets(available, sizeof available, f))
                available[0] = '\0';
            fclose(f);
        }
        available[strcspn(available, "\n")] = '\0';
        return spr_error_errno(error, SPR_ERR_INVALID, -1, saved,
                               "congestion control \"%s\" cannot be used (there are: %s)",
                               options->congestion, available);
    }
    return SPR_OK;
}

void spr_tcp_congestion_name(int fd, char *name, size_t bytes)
{
    socklen_t length = (socklen_t)(bytes - 1);

    memset(name, 0, bytes);
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length))
        snprintf(name, bytes, "unknown");
}

const char *spr_tcp_errno_text(int error, char *text, size_t bytes)
{
    const char *description = strerrordesc_np(error);

    if (description)
        snprintf(text, bytes, "%s", description);
    else
        snprintf(text, bytes, "error %d", error);
    /* "Connection refused", but not "RPC ..." */
    if (text[0] && islower((unsigned char)text[1]))
        text[0] = (char)tolower((unsigned char)text[0]);
    return text;
}

spr_status spr_tcp_errno_status(int error)
{
    bool ours = error == ENOMEM || error == ENOBUFS || error == EMFILE || error == ENFILE;

    return ours ? SPR_ERR_NOMEM : SPR_ERR_LINK;
}

void spr_tcp_reset(int fd)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

    /* Unlike closing, it also works while a forked child or a guardian has the socket. */
    if (connect(fd, &nobody, sizeof nobody) < 0)
        (void)shutdown(fd, SHUT_RDWR);
}

void spr_tcp_close_politely(int fd)
{
    char trash[4096];
    ssize_t n;
    int most = 256;

    if (fd < 0)
        return;
    (void)shutdown(fd, SHUT_WR);
    do
        n = recv(fd, trash, sizeof trash, MSG_DONTWAIT);
    while (n > 0 && --most > 0);
    close(fd);
}
