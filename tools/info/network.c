/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The network as the library sees it: it is asked, not imitated.
 */
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/info/report.h"
#include "transport/tcp/tcp.h"

/* By a socket: /sys may show the interfaces of another network namespace. */
static void ask_interface(struct info_interface *i)
{
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    struct ethtool_cmd link = {.cmd = ETHTOOL_GSET};
    struct ifreq r = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint32_t speed;

    i->mtu_bytes = i->speed_mbit = INFO_NONE;
    if (fd < 0)
        return;
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", i->at.name);
    if (ioctl(fd, SIOCGIFMTU, &r) == 0)
        i->mtu_bytes = (uint64_t)r.ifr_mtu;
    r.ifr_data = (void *)&link;
    if (ioctl(fd, SIOCETHTOOL, &r) == 0) {
        /* Not ethtool_cmd_speed(), which shifts "unknown" out of an int. */
        speed = (uint32_t)link.speed_hi << 16 | link.speed;
        if (speed && speed != (uint32_t)SPEED_UNKNOWN)
            i->speed_mbit = speed;
    }
    r.ifr_data = (void *)&driver;
    if (ioctl(fd, SIOCETHTOOL, &r) == 0)
        snprintf(i->driver, sizeof i->driver, "%.31s", driver.driver);
    close(fd);
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
