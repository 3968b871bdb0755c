/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The emulated network of --emulate.
 *
 *   network namespace of this process           namespaces of host 0, 1, ... (with names h0, h1,
 * ...) bridge sw -- p0 [tbf] ------ veth ------ [tbf] eth0 10.77.0.1/16 fd77::1/64
 *               -- p1 [tbf] ------ veth ------ [tbf] eth0 10.77.0.2/16 fd77::2/64
 *
 * With several links each host has eth1, ... as well, each on a bridge of its own: sw1, p0.1,
 * 10.78.0.1/16, fd78::1/64 and so on.
 *
 * This process leaves the network namespace it was started in, so nothing of this is ever visible
 * there, and the kernel removes it all when the last process inside is gone. Each link is shaped in
 * both directions: on the host's side what it sends, on the bridge's side what it receives.
 */
#ifndef TOOLS_RUN_EMULATE_H
#define TOOLS_RUN_EMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct emulated_host {
    int network_fd; /* its network namespace */
    int name_fd;    /* its UTS namespace */
};

struct emulated_network {
    struct emulated_host *hosts;
    int count;
};

enum {
    EMULATED_ROOT_PORT = 7077,
    EMULATED_ADDRESS_BYTES = 16,
    EMULATED_LINKS = 4, /* of a host */
    EMULATED_RATES = 32 /* hosts whose links have rates of their own */
};

/* What each host has, equally many links; the last one of those named stands for all behind it.
 * count 0: there is no emulated network. */
struct emulated_links {
    int count, hosts;
    uint64_t rate_bits_s[EMULATED_RATES][EMULATED_LINKS];
};

uint64_t emulated_rate(const struct emulated_links *links, int host, int link);

/* The IPv4 address of a host. */
void emulated_address(int host, char address[EMULATED_ADDRESS_BYTES]);

/* Puts this process into new namespaces (a user namespace too, where it lacks the privilege) and
 * builds the network. congestion: NULL = leave it. Returns 0, or the exit code after one line said
 * why: 2 = not allowed here, 1 = something else. */
int emulated_network_build(struct emulated_network *network, int hosts,
                           const struct emulated_links *links, const char *congestion);
void emulated_network_free(struct emulated_network *network);

/* Moves the calling process, a child, into a host. False with errno set. */
bool emulated_host_enter(const struct emulated_host *host);

#endif
