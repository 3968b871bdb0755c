/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What ranks make of the rates that they tell each other: those of the transport that links them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/choice.h"
#include "collectives/create.h"
#include "transport/tcp/address.h"
#include "transport/tcp/rate.h"

#define RANKS 4

enum {
    EPOLL = 1 << SPR_T_EPOLL,
    URING = 1 << SPR_T_URING,
    VERBS = 1 << SPR_T_VERBS,
    SHM = 1 << SPR_T_SHM
};

static struct spr_peer_info peers[RANKS];
static spr_comm comm = {.size = RANKS, .peers = peers};

/* Rank r is on host r; TCP has 1000 + r kbit/s on one interface, RDMA 9000 + r on one device. */
static void reset(uint32_t transports)
{
    const struct spr_tcp_address a = {.family = SPR_TCP_IPV4, .port = 1};

    for (uint32_t r = 0; r < RANKS; r++) {
        peers[r] = (struct spr_peer_info){.transports = transports, .net_namespace = r};
        for (int id = 0; id < SPR_T_COUNT; id++) {
            memcpy(peers[r].address[id], &a, sizeof a);
            if (id != SPR_T_SHM)
                peers[r].rate[id] =
                    (struct spr_link_rate){(id == SPR_T_VERBS ? 9000 : 1000) + r, 1};
        }
    }
}

static void assert_rates(uint32_t first)
{
    spr_comm_find_rates(&comm);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(comm.topology.rate[r], first ? first + r : 0);
}

static void the_rates_are_those_of_what_links_hosts(void **state)
{
    bool built = false;

    (void)state;
    for (size_t k = 0; k < spr_transport_kinds_count; k++)
        built |= spr_transport_kinds[k].id == SPR_T_VERBS;
    reset(SHM | EPOLL);
    assert_rates(1000);
    reset(EPOLL | VERBS);
    assert_rates(built ? 9000 : 1000);
    /* One without: two others may go by RDMA, and it does not. */
    peers[2].transports = EPOLL;
    assert_rates(0);
    /* One with: it talks RDMA to nobody; nor do two of one host. */
    reset(EPOLL);
    peers[3].transports |= VERBS;
    assert_rates(1000);
    peers[2].transports |= VERBS;
    assert_rates(0);
    peers[2].net_namespace = peers[3].net_namespace;
    assert_rates(1000);
    /* Unlike ports: there RDMA leads to none of them, or to some. */
    reset(EPOLL | VERBS);
    peers[0].address[SPR_T_VERBS][sizeof(struct spr_tcp_address)] = 1;
    assert_rates(1000);
    peers[1].address[SPR_T_VERBS][sizeof(struct spr_tcp_address)] = 1;
    assert_rates(built ? 0 : 1000);
}

static void tcp_twins_count_as_one(void **state)
{
    (void)state;
    reset(EPOLL);
    peers[1].transports = URING;
    peers[1].rate[SPR_T_EPOLL].kbit = 77; /* it does not offer that */
    assert_rates(1000);
}

static void rates_of_unequal_numbers_of_interfaces_are_not_known(void **state)
{
    (void)state;
    reset(EPOLL);
    peers[1].rate[SPR_T_EPOLL].of = 2;
    assert_rates(0);
    peers[1].rate[SPR_T_EPOLL].of = 0; /* its user has said it */
    assert_rates(1000);
    for (int r = 0; r < RANKS; r++)
        peers[r].rate[SPR_T_EPOLL].of = 2;
    assert_rates(1000);
    peers[1].rate[SPR_T_EPOLL].kbit = 0;
    spr_comm_find_rates(&comm);
    assert_int_equal(comm.topology.rate[1], 0);
    assert_int_equal(comm.topology.rate[2], 1002);
}

static void nothing_is_known_of_loopback_nor_of_what_does_not_exist(void **state)
{
    struct spr_tcp_link_facts facts;

    (void)state;
    assert_int_equal(spr_tcp_link_mbit("lo"), 0);
    assert_int_equal(spr_tcp_link_mbit("no such interface, and a long name"), 0);
    spr_tcp_link_facts("lo", &facts);
    assert_true(facts.mtu_bytes >= 1500);
    spr_tcp_link_facts("nix0", &facts);
    assert_int_equal(facts.mtu_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rates_are_those_of_what_links_hosts),
        cmocka_unit_test(tcp_twins_count_as_one),
        cmocka_unit_test(rates_of_unequal_numbers_of_interfaces_are_not_known),
        cmocka_unit_test(nothing_is_known_of_loopback_nor_of_what_does_not_exist),
    };

    if (!spr_topology_new(&comm.topology, RANKS))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
