/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which transport links two ranks: both ends come to the same answer, and every kind that is passed
 * over has a reason. Which interface TCP uses: the survey tells of what the choice takes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "collectives/choice.h"
#include "transport/tcp/interface.h"

static uint64_t seed;

static const struct spr_transport_kind *kind_of(int id)
{
    for (size_t k = 0; k < spr_transport_kinds_count; k++)
        if (spr_transport_kinds[k].id == id)
            return &spr_transport_kinds[k];
    return NULL;
}

static void draw_rank(struct spr_rng *rng, struct spr_peer_info *info)
{
    *info = (struct spr_peer_info){
        .transports = (uint32_t)spr_rng_below(rng, 1u << SPR_T_COUNT),
        .net_namespace = spr_rng_below(rng, 2),
        .uid = (uint32_t)spr_rng_below(rng, 2),
    };
    info->boot_id[0] = (uint8_t)spr_rng_below(rng, 2);
    for (int id = 0; id < SPR_T_COUNT; id++) {
        struct spr_tcp_address a = {.family = SPR_TCP_IPV4, .port = 1};
        a.loopback = spr_rng_below(rng, 4) == 0;
        if (id == SPR_T_SHM || !kind_of(id))
            info->transports &= id == SPR_T_SHM ? UINT32_MAX : ~(1u << id);
        else
            memcpy(info->address[id], &a, sizeof a);
    }
}

static bool is_tcp(const struct spr_transport_kind *k)
{
    return k && (k->id == SPR_T_URING || k->id == SPR_T_EPOLL);
}

static void both_ends_come_to_the_same_answer(void **state)
{
    struct spr_rng rng = {seed, 1};
    int linked = 0;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        const char *why_here[SPR_T_COUNT] = {0}, *why_there[SPR_T_COUNT] = {0};
        const struct spr_transport_kind *here, *there;
        struct spr_peer_info a, b;
        draw_rank(&rng, &a);
        draw_rank(&rng, &b);
        here = spr_transport_choose(&a, &b, why_here);
        there = spr_transport_choose(&b, &a, why_there);
        /* The TCP twins reach each other. */
        assert_true(here == there || (is_tcp(here) && is_tcp(there)));
        linked += here != NULL;
        for (size_t k = 0; k < spr_transport_kinds_count; k++) {
            bool passed_over = !here || &spr_transport_kinds[k] < here;
            assert_true((why_here[k] != NULL) == passed_over);
        }
        assert_ptr_equal(spr_transport_choose(&a, &b, NULL), here);
        if (here)
            assert_true(a.transports >> here->id & 1);
    }
    assert_in_range(linked, 1000, 19000);
}

struct told {
    int count, chosen;
    struct spr_tcp_interface last;
};

static void take(void *ctx, const struct spr_tcp_interface *i, bool up, bool chosen)
{
    struct told *t = ctx;

    t->count++;
    assert_non_null(i->why);
    assert_true(i->name[0] != '\0');
    if (!chosen)
        return;
    assert_true(up);
    t->chosen++;
    t->last = *i;
}

static void the_survey_of_interfaces_tells_of_the_one_that_is_chosen(void **state)
{
    static const char *const wanted[] = {"", "lo", "127.0.0.1", "nix0,lo"};

    (void)state;
    for (size_t w = 0; w < SPR_ARRAY_LEN(wanted); w++) {
        for (int loopback_only = 0; loopback_only < 2; loopback_only++) {
            struct spr_tcp_interface chosen;
            struct told told = {0};
            assert_int_equal(spr_tcp_interface_choose(wanted[w], loopback_only, &chosen, NULL),
                             SPR_OK);
            assert_int_equal(spr_tcp_interface_survey(wanted[w], loopback_only, take, &told, NULL),
                             SPR_OK);
            assert_int_equal(told.chosen, 1);
            assert_string_equal(told.last.name, chosen.name);
            assert_string_equal(told.last.why, chosen.why);
            assert_true(spr_tcp_address_same_host(&told.last.address, &chosen.address));
            assert_int_equal(told.last.asked, chosen.asked);
        }
    }
}

static void a_survey_without_a_choice_tells_why(void **state)
{
    struct spr_error error = {0};
    struct told told = {0};

    (void)state;
    assert_int_equal(spr_tcp_interface_survey("nix0", false, take, &told, &error), SPR_ERR_INVALID);
    assert_non_null(strstr(error.text, "nix0"));
    assert_true(told.count > 0);
    assert_int_equal(told.chosen, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_come_to_the_same_answer),
        cmocka_unit_test(the_survey_of_interfaces_tells_of_the_one_that_is_chosen),
        cmocka_unit_test(a_survey_without_a_choice_tells_why),
    };

    seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
