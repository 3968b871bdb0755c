/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Who shares a host, and who relays for whom.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "collectives/topology.h"

#define MOST 12

static void at_first_every_rank_has_a_host_of_its_own(void **state)
{
    struct spr_topology t;

    (void)state;
    assert_true(spr_topology_new(&t, 3));
    assert_int_equal(t.hosts, 3);
    assert_false(spr_topology_has_levels(&t, 3));
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            assert_int_equal(spr_topology_source(&t, false, from, to), from);
    spr_topology_free(&t);
}

static void hosts_are_numbered_by_their_first_ranks(void **state)
{
    static const int identity[] = {0, 0, 2, 2, 0, 2}, ids[] = {0, 1, 2, 3, 4, 5};
    static const int left[] = {1, 2, 4}; /* after a shrink */
    struct spr_topology t;

    (void)state;
    assert_true(spr_topology_new(&t, 6));
    memcpy(t.identity, identity, sizeof identity);
    spr_topology_update(&t, ids, 6);
    assert_int_equal(t.hosts, 2);
    assert_true(spr_topology_has_levels(&t, 6));
    assert_memory_equal(t.host, ((int[]){0, 0, 1, 1, 0, 1}), sizeof identity);
    assert_memory_equal(t.local, ((int[]){0, 1, 0, 1, 2, 2}), sizeof identity);
    assert_memory_equal(t.ranks, ((int[]){0, 1, 4, 2, 3, 5}), sizeof identity);
    assert_memory_equal(t.first, ((int[]){0, 3, 6}), 3 * sizeof(int));
    spr_topology_update(&t, left, 3);
    assert_int_equal(t.hosts, 2);
    assert_memory_equal(t.ranks, ((int[]){0, 2, 1}), sizeof left);
    assert_memory_equal(t.local, ((int[]){0, 0, 1}), sizeof left);
    spr_topology_free(&t);
}

/* Of a host the fastest rank counts, and of a rank its number at the start. */
static void links_are_compared_host_by_host(void **state)
{
    static const int identity[] = {0, 0, 2, 3, 4}, ids[] = {0, 1, 2, 3, 4};
    static const uint32_t rate[] = {500, 1000, 1000, 1000, 100};
    static const int left[] = {1, 2, 3, 4}, others[] = {0, 1, 2, 3};
    struct spr_topology t;

    (void)state;
    assert_true(spr_topology_new(&t, 5));
    assert_false(t.uneven);
    memcpy(t.identity, identity, sizeof identity);
    spr_topology_update(&t, ids, 5);
    assert_false(t.uneven); /* nothing is known */
    memcpy(t.rate, rate, sizeof rate);
    spr_topology_update(&t, ids, 5);
    assert_true(t.uneven && t.gain < 1 && t.most > 1);
    assert_memory_equal(t.host_rate, ((uint32_t[]){1000, 1000, 1000, 100}), 16);
    assert_int_equal(t.cuts[3], t.cuts[4]);
    spr_topology_update(&t, left, 4);
    assert_true(t.uneven);
    assert_memory_equal(t.host_rate, ((uint32_t[]){1000, 1000, 1000, 100}), 16);
    spr_topology_update(&t, others, 4); /* the slow one is lost */
    assert_false(t.uneven);
    assert_true(t.gain == 1 && t.most == 1);
    t.rate[4] = 800;
    spr_topology_update(&t, ids, 5);
    assert_false(t.uneven); /* a fifth slower: it would not save enough */
    assert_true(t.gain == 1 && t.most == 1);
    t.rate[4] = 700;
    spr_topology_update(&t, ids, 5);
    assert_true(t.uneven);
    t.rate[2] = 0;
    spr_topology_update(&t, ids, 5);
    assert_false(t.uneven);
    t.rate[2] = 1000;
    t.rack_identity[2] = t.rack_identity[0] = 0;
    spr_topology_update(&t, ids, 5);
    assert_true(spr_topology_has_racks(&t));
    assert_false(t.uneven);
    spr_topology_update(&t, left + 2, 2);
    assert_int_equal(t.hosts, 2);
    assert_false(t.uneven);
    spr_topology_free(&t);
}

/* Any ranks on any hosts: what a rank tells reaches each rank, and each other host once. */
static void what_a_rank_tells_enters_each_host_once(void **state)
{
    struct spr_rng rng = {spr_rng_test_seed(), 0};

    (void)state;
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    for (int trial = 0; trial < 1000; trial++) {
        int size = 1 + (int)spr_rng_below(&rng, MOST), ids[MOST], places[MOST];
        struct spr_topology t;

        assert_true(spr_topology_new(&t, size));
        for (int r = 0; r < size; r++) {
            ids[r] = r;
            places[r] = (int)spr_rng_below(&rng, (uint64_t)size);
            for (int same = r; same >= 0; same--)
                if (places[same] == places[r])
                    t.identity[r] = same;
        }
        spr_topology_update(&t, ids, size);
        for (int from = 0; from < size; from++) {
            int entries[MOST] = {0}, relayed = 0;
            for (int to = 0; to < size; to++) {
                int source = spr_topology_source(&t, false, from, to);
                assert_int_equal(t.host[from] == t.host[to], places[from] == places[to]);
                if (source == from) {
                    entries[t.host[to]] += t.host[to] != t.host[from];
                    continue;
                }
                relayed++; /* by a neighbour that has it from the source */
                assert_int_equal(places[source], places[to]);
                assert_int_equal(spr_topology_source(&t, false, from, source), from);
            }
            for (int h = 0; h < t.hosts; h++)
                assert_int_equal(entries[h], h != t.host[from]);
            assert_int_equal(relayed,
                             size - (t.hosts - 1) - spr_topology_local_ranks(&t, t.host[from]));
        }
        spr_topology_free(&t);
    }
}

/* Any hosts in any racks, and some ranks lost: it enters each other rack once, and each other host
 * once; and who passes on what is those who hear it. */
static void what_a_rank_tells_enters_each_rack_once(void **state)
{
    struct spr_rng rng = {spr_rng_test_seed(), 0};

    (void)state;
    for (int trial = 0; trial < 1000; trial++) {
        int world = 1 + (int)spr_rng_below(&rng, MOST), first[MOST], rack[MOST];
        int size = 0, ids[MOST], place[MOST]; /* of those that are left */
        struct spr_topology t;

        assert_true(spr_topology_new(&t, world));
        for (int r = 0; r < world; r++) {
            first[r] = (int)spr_rng_below(&rng, (uint64_t)world);
            rack[r] = (int)spr_rng_below(&rng, 1 + (uint64_t)world / 3); /* of a place */
            if (trial % 2 || spr_rng_below(&rng, 3)) {
                place[size] = first[r];
                ids[size++] = r;
            }
        }
        for (int r = 0; r < world; r++)
            for (int same = r; same >= 0; same--) {
                if (first[same] == first[r])
                    t.identity[r] = same;
                if (rack[first[same]] == rack[first[r]])
                    t.rack_identity[r] = same;
            }
        spr_topology_update(&t, ids, size);
        for (int from = 0; from < size; from++) {
            int racks[MOST] = {0}, hosts[MOST] = {0}, home = t.host[from];
            bool ring = spr_rng_below(&rng, 2);
            /* Its own rack's hosts before it are at the end of a ring. */
            bool back = ring && t.racks > 1 && home != t.rack_first[t.rack[home]];

            for (int to = 0; to < size; to++) {
                int source = spr_topology_source(&t, ring, from, to), found = 0;

                assert_int_equal(t.rack[t.host[from]] == t.rack[t.host[to]],
                                 rack[place[from]] == rack[place[to]]);
                racks[t.rack[t.host[to]]] += t.rack[t.host[to]] != t.rack[t.host[source]];
                hosts[t.host[to]] += t.host[to] != t.host[source];
                if (ring && t.host[to] != t.host[source])
                    assert_int_equal(t.host[to], (t.host[source] + 1) % t.hosts);
                for (int rank = 0; rank < size; rank++)
                    for (int i = 0; i < spr_topology_listeners(&t, ring, from, rank); i++)
                        if (spr_topology_listener(&t, ring, from, rank, i) == to) {
                            assert_int_equal(rank, source);
                            found++;
                        }
                assert_int_equal(found, source != from);
            }
            for (int k = 0; k < t.racks; k++)
                assert_int_equal(racks[k], k != t.rack[home] || back);
            for (int h = 0; h < t.hosts; h++)
                assert_int_equal(hosts[h], h != home);
        }
        spr_topology_free(&t);
    }
}

/* Two hosts of four ranks: each rank of one relays for one of the other. */
static void ranks_of_a_host_share_the_work(void **state)
{
    static const int identity[] = {0, 0, 0, 0, 4, 4, 4, 4}, ids[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct spr_topology t;

    (void)state;
    assert_true(spr_topology_new(&t, 8));
    memcpy(t.identity, identity, sizeof identity);
    spr_topology_update(&t, ids, 8);
    for (int from = 0; from < 4; from++)
        assert_int_equal(spr_topology_relay(&t, from, 1), 4 + from);
    spr_topology_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_first_every_rank_has_a_host_of_its_own),
        cmocka_unit_test(hosts_are_numbered_by_their_first_ranks),
        cmocka_unit_test(links_are_compared_host_by_host),
        cmocka_unit_test(what_a_rank_tells_enters_each_host_once),
        cmocka_unit_test(what_a_rank_tells_enters_each_rack_once),
        cmocka_unit_test(ranks_of_a_host_share_the_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
