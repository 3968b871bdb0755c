/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/tcp/rate.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"

static const char *const made_up[] = {"veth", "bridge", "tun", "dummy", "openvswitch", "vmxnet3"};

void spr_tcp_link_facts(const char *interface, struct spr_tcp_link_facts *facts)
{
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    struct ethtool_cmd link = {.cmd = ETHTOOL_GSET};
    struct ifreq r = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    *facts = (struct spr_tcp_link_facts){0};
    if (fd < 0)
        return;
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", interface);
    if (ioctl(fd, SIOCGIFMTU, &r) == 0)
        facts->mtu_bytes = (uint64_t)r.ifr_mtu;
    r.ifr_data = (void *)&link;
    if (ioctl(fd, SIOCETHTOOL, &r) == 0) {
        /* Not ethtool_cmd_speed(), which shifts "unknown" out of an int. */
        facts->mbit = (uint32_t)link.speed_hi << 16 | link.speed;
        if (facts->mbit == (uint32_t)SPEED_UNKNOWN || facts->mbit == UINT16_MAX)
            facts->mbit = 0;
    }
    r.ifr_data = (void *)&driver;
    if (ioctl(fd, SIOCETHTOOL, &r) == 0)
        snprintf(facts->driver, sizeof facts->driver, "%.31s", driver.driver);
    close(fd);
}

uint32_t spr_tcp_link_mbit(const char *interface)
{
    struct spr_tcp_link_facts facts;

    spr_tcp_link_facts(interface, &facts);
    for (size_t i = 0; i < SPR_ARRAY_LEN(made_up); i++)
        if (!strcmp(facts.driver, made_up[i]))
            return 0;
    return facts.mbit;
}
