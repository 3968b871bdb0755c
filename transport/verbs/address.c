/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Whose address is a GID of RoCE? Devices are the same in all network namespaces, interfaces are
 * not: with a GID of another namespace packets would pass by the network that this process sees,
 * such as the emulated one of sparring-run. And which IP address has a device?
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netpacket/packet.h>
#include <string.h>

#include "transport/verbs/verbs.h"

/* fe80:: and the interface's MAC, as the kernel makes the GID that needs no IP address. */
static bool is_of_mac(const uint8_t gid[16], const struct sockaddr *a)
{
    struct sockaddr_ll link;
    const uint8_t *mac = link.sll_addr;

    memcpy(&link, a, sizeof link);
    return link.sll_halen == 6 && gid[0] == 0xfe && gid[1] == 0x80 && gid[8] == (mac[0] ^ 2) &&
           !memcmp(gid + 9, mac + 1, 2) && gid[11] == 0xff && gid[12] == 0xfe &&
           !memcmp(gid + 13, mac + 3, 3);
}

static bool is_of(const uint8_t gid[16], const struct sockaddr *a)
{
    uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff};
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    switch (a->sa_family) {
    case AF_INET:
        memcpy(&in, a, sizeof in);
        memcpy(mapped + 12, &in.sin_addr, 4);
        return !memcmp(gid, mapped, sizeof mapped);
    case AF_INET6:
        memcpy(&in6, a, sizeof in6);
        return !memcmp(gid, &in6.sin6_addr, 16);
    case AF_PACKET:
        return is_of_mac(gid, a);
    default:
        return false;
    }
}

bool verbs_gid_is_here(const union ibv_gid *gid)
{
    struct ifaddrs *all = NULL;
    bool here = false;

    if (getifaddrs(&all))
        return true; /* who can tell */
    for (const struct ifaddrs *it = all; it && !here; it = it->ifa_next)
        here = it->ifa_addr && is_of(gid->raw, it->ifa_addr);
    freeifaddrs(all);
    return here;
}

size_t verbs_ip_addresses(const struct verbs_device *d, struct spr_tcp_address *a, size_t most)
{
    bool is_gid = d->port.link_layer == IBV_LINK_LAYER_ETHERNET;
    struct ifaddrs *all = NULL;
    size_t n = 0;

    if (getifaddrs(&all))
        return 0;
    for (const struct ifaddrs *it = all; it && n < most; it = it->ifa_next) {
        const struct sockaddr *sa = it->ifa_addr;
        if (!sa || !spr_tcp_address_from(&a[n], sa) || a[n].loopback ||
            (is_gid && !is_of(d->gid.raw, sa)))
            continue;
        n++;
    }
    freeifaddrs(all);
    return n;
}
