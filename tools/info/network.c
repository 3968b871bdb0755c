/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The network as the library sees it: it is asked, not imitated.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/info/report.h"
#include "transport/tcp/rate.h"
#include "transport/tcp/tcp.h"

static void ask_interface(struct info_interface *i)
{
    struct spr_tcp_link_facts facts;

    spr_tcp_link_facts(i->at.name, &facts);
    i->mtu_bytes = facts.mtu_bytes ? facts.mtu_bytes : INFO_NONE;
    i->speed_mbit = facts.mbit ? facts.mbit : INFO_NONE;
    memcpy(i->driver, facts.driver, sizeof i->driver);
}

static void take_interface(void *ctx, const struct spr_tcp_interface *at, bool up, bool chosen)
{
    struct info_network *n = ctx;
    struct info_interface *i = &n->interfaces[n->interface_count];

    if (n->interface_count == INFO_INTERFACES)
        return;
    n->interface_count++;
    *i = (struct info_interface){.at = *at, .up = up, .chosen = chosen};
    ask_interface(i);
}

static void probe_congestion(const struct spr_options *options, struct info_network *n)
{
    struct spr_error error = {0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    file_line(n->available, sizeof n->available,
              "/proc/sys/net/ipv4/tcp_available_congestion_control");
    if (fd < 0)
        return;
    if (spr_tcp_socket_options(fd, options, &error))
        snprintf(n->congestion_why_not, sizeof n->congestion_why_not, "%s", error.text);
    spr_tcp_congestion_name(fd, n->congestion, sizeof n->congestion);
    close(fd);
}

void probe_network(const struct spr_options *options, bool loopback_only, struct info_network *n)
{
    struct spr_error error = {0};

    *n = (struct info_network){0};
    if (spr_tcp_interface_survey(options->interface_name, loopback_only, take_interface, n, &error))
        snprintf(n->why_none, sizeof n->why_none, "%s", error.text);
    probe_congestion(options, n);
}

void probe_uring(const struct spr_options *options, struct info_uring *u)
{
    *u = (struct info_uring){0};
#ifdef HAVE_URING
    struct spr_error error = {0};

    u->usable = spr_uring_survey(options->progress == 0, &u->survey, &error) == SPR_OK;
    snprintf(u->why_not, sizeof u->why_not, "%s", error.text);
#else
    (void)options;
    snprintf(u->why_not, sizeof u->why_not, "built without liburing");
#endif
}
