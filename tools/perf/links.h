/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What this host's network interfaces have carried, as the kernel counts it.
 */
#ifndef SPR_TOOLS_PERF_LINKS_H
#define SPR_TOOLS_PERF_LINKS_H

struct links {
    double sent, received; /* bytes, frames' headers included, of all interfaces but loopback;
                            * NAN = unknown */
};

/* The counters of this network namespace, so far. */
struct links links_read(void);

#endif
