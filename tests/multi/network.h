/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Emulated hosts whose cables a test pulls, slows down or makes deaf, made like those of
 * `sparring-run --emulate` (tools/run/emulate.h has a picture). The test sits where the switch is:
 * what it does to a cable, the hosts only notice by the packets that do not come.
 */
#ifndef TESTS_MULTI_NETWORK_H
#define TESTS_MULTI_NETWORK_H

#include <stdbool.h>

#include "tests/multi/job.h"

/* Of each cable, in bits per second, until network_rate. */
#define NETWORK_RATE 1000000000ull

/* Moves this process to the switch; once per process. False: not possible here, after a line that
 * says why. */
bool network_build(int hosts);
/* For job_prepare: rank r lives on host r % hosts. */
void network_enter(struct job *job, int rank);

/* The cable between host and switch. Out: neither end sends or receives. */
void network_cable(int host, bool plugged);
/* What `from` sends to `to` is lost on its way; the other direction works. */
void network_mute(int from, int to, bool lost);
/* Both directions of a host's cable. */
void network_rate(int host, unsigned long long bits_s);

/* The two connections between two ranks that have exchanged data. */
enum network_connection { NETWORK_DATA, NETWORK_CONTROL };
/* Is the kernel able to (CONFIG_INET_DIAG_DESTROY)? */
bool network_can_reset(void);
/* Wait until data and heartbeats move between all of the first `hosts` hosts, one rank on each. */
void network_await(int hosts);
/* Reset one of them; both ends learn of it. One rank per host. */
void network_reset(int host, int peer, enum network_connection which);
/* The power of a host fails: its processes end and its connections are forgotten, without a word
 * if its cable is out. */
void network_power_off(int host);
/* Processes that live on a host. */
int network_processes(int host);

#endif
