/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the tests that break things share: how often, how much is left behind.
 */
#ifndef TESTS_MULTI_FAULTS_H
#define TESTS_MULTI_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* How often a test repeats: `in_check` under `make check`, `in_soak` under `make soak` (which sets
 * SPARRING_SOAK=1); a part of that with SPARRING_TEST_SCALE, as under sanitizers. At least 1. */
int fault_repeats(int in_check, int in_soak);
void fault_pause_us(long us);

/* In memory that the processes of a test share. */
#define FAULT_MEETING_MAX 3
struct fault_meeting {
    _Atomic int arrived;
    _Atomic int pid[FAULT_MEETING_MAX];
};
/* Waits until all `count` have come as often as this process, which is number `who` and counts in
 * `times`. Ends it when another one has ended before: that one has said why. */
void fault_meet(struct fault_meeting *meeting, int count, int who, int *times);

/* What this process holds: descriptors, mappings of memfds, children; and names in /dev/shm. */
struct fault_census {
    int descriptors, memfds, children, names;
};
struct fault_census fault_census_take(void);
/* Fails the test when there is more than before. */
void fault_census_expect(const struct fault_census *before);

/* Put this process into a network namespace of its own, with nothing but a loopback. False: not
 * allowed (it takes root or user namespaces). */
bool fault_own_network(void);
/* Does this transport go through the network of such a namespace? Not shared memory, and not RDMA:
 * its devices stay outside. */
bool fault_is_inside(const char *transport);
/* Take the loopback of such a namespace down, or up again. */
bool fault_loopback(bool up);

#endif
