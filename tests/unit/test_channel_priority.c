/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The order in which a channel hands data to its transport, by their priority.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "transport/channel.h"
#include "transport/channel_private.h"

#define BYTES ((size_t)64 << 10)

/* A transport that keeps what it gets. */
static struct spr_tx *handed[20];
static size_t handed_count;
static int limits;

static void take(struct spr_link *link, struct spr_tx *tx)
{
    (void)link;
    assert_true(handed_count < SPR_ARRAY_LEN(handed));
    handed[handed_count++] = tx;
}

static void limit(struct spr_link *link, size_t bytes)
{
    (void)link;
    assert_int_equal(bytes, 2 * BYTES);
    limits++;
}

static const struct spr_transport_ops ops = {.name = "kept", .send = take, .limit_unsent = limit};

static int done_count;
static spr_status done_status;

static void done(struct spr_send *send, spr_status status)
{
    (void)send;
    done_count++;
    done_status = status;
}

struct fixture {
    struct spr_options options;
    struct spr_counters counters;
    struct spr_trace *trace;
    struct spr_transport transport;
    struct spr_link link;
    struct spr_channel channel;
    struct spr_send sends[10];
    char data[BYTES];
};
static struct fixture f;

static int set_up(void **state)
{
    struct spr_error error = {0};

    (void)state;
    memset(&f, 0, sizeof f);
    handed_count = 0;
    limits = done_count = 0;
    spr_opt_defaults(spr_options_table, spr_options_count, &f.options, &error);
    f.options.priority_bytes = 2 * BYTES;
    f.trace = spr_trace_new(0, 2);
    f.transport.ops = &ops;
    f.link = (struct spr_link){.transport = &f.transport, .peer = 1, .state = SPR_LINK_UP};
    assert_int_equal(spr_channel_init(&f.channel, 0, 2, 1, &f.options, &spr_clock_monotonic,
                                      &f.counters, f.trace),
                     SPR_OK);
    spr_channel_attach(&f.channel, &f.link, false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(f.channel.held, 0);
    spr_channel_destroy(&f.channel);
    spr_trace_free(f.trace);
    spr_opt_free(spr_options_table, spr_options_count, &f.options);
    return 0;
}

static void grant(uint32_t operation)
{
    const struct spr_frame frame = {.type = SPR_FRAME_GRANT, .operation = operation};

    spr_channel_grant(&f.channel.peers[1], &frame, NULL);
}

/* Of BYTES, as operation `operation`; it waits for its grant. */
static void post(uint32_t operation, int priority, bool eager)
{
    f.sends[operation] = (struct spr_send){.peer = 1,
                                           .priority = priority,
                                           .operation = operation,
                                           .data = f.data,
                                           .bytes = eager ? 1000 : BYTES,
                                           .eager = eager,
                                           .done = done};
    spr_channel_send(&f.channel, &f.sends[operation]);
}

static void sent(size_t i) { spr_channel_link_events.sent(&f.link, handed[i]); }

/* Operations in the order of their frames. */
static void expect_handed(const uint32_t *operations, size_t count)
{
    assert_int_equal(handed_count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(handed[i]->header.operation, operations[i]);
}

static void post_granted(uint32_t operation, int priority)
{
    post(operation, priority, false);
    grant(operation);
}

static void the_most_urgent_goes_first(void **state)
{
    (void)state;
    spr_channel_set_urgent(&f.channel, 3);
    post_granted(0, 0); /* room for two */
    post_granted(1, 0);
    post_granted(2, 0);
    post_granted(3, 1);
    post_granted(4, 2);
    post_granted(5, 1);
    post_granted(6, 3); /* whatever is under way */
    expect_handed((const uint32_t[]){0, 1, 6}, 3);
    assert_int_equal(limits, 1);
    for (size_t i = 0; i < 7; i++) {
        sent(i);
        spr_channel_send_held(&f.channel);
    }
    expect_handed((const uint32_t[]){0, 1, 6, 4, 3, 5, 2}, 7);
    assert_int_equal(done_count, 7);
    assert_int_equal(f.channel.peers[1].data_out, 0);
}

/* Between what was sent and spr_channel_send_held() other messages are granted. */
static void what_is_granted_later_passes_nothing_as_urgent(void **state)
{
    (void)state;
    spr_channel_set_urgent(&f.channel, 3);
    post_granted(0, 3);
    post_granted(1, 3);
    post_granted(2, 1);
    sent(0);
    post_granted(3, 0);
    post_granted(4, 1);
    post_granted(5, 2); /* more urgent than what is held: it may */
    expect_handed((const uint32_t[]){0, 1, 5}, 3);
    for (size_t i = 1; i < 6; i++) {
        sent(i);
        spr_channel_send_held(&f.channel);
    }
    expect_handed((const uint32_t[]){0, 1, 5, 2, 4, 3}, 6);
}

static void when_nothing_is_more_urgent_all_go(void **state)
{
    (void)state;
    spr_channel_set_urgent(&f.channel, 1);
    for (uint32_t k = 0; k < 4; k++)
        post_granted(k, 0);
    assert_int_equal(f.channel.held, 2);
    assert_true(spr_channel_waits_for(&f.channel, 1, 3));
    spr_channel_set_urgent(&f.channel, 0);
    spr_channel_send_held(&f.channel);
    assert_false(spr_channel_waits_for(&f.channel, 1, 3));
    expect_handed((const uint32_t[]){0, 1, 2, 3}, 4);
    for (size_t i = 0; i < 4; i++)
        sent(i);
}

/* The window of eager messages is not filled by some that are held. */
static void eager_messages_are_not_held(void **state)
{
    (void)state;
    spr_channel_set_urgent(&f.channel, 1);
    post_granted(0, 0);
    post_granted(1, 0);
    post(2, 0, true);
    expect_handed((const uint32_t[]){0, 1, 2}, 3);
    for (size_t i = 0; i < 3; i++)
        sent(i);
}

static void what_is_held_of_a_rejected_operation_is_dropped(void **state)
{
    (void)state;
    spr_channel_set_urgent(&f.channel, 1);
    for (uint32_t k = 0; k < 4; k++)
        post_granted(k, 0);
    spr_channel_reject(&f.channel, 2, SPR_ERR_MISMATCH);
    assert_int_equal(done_count, 1);
    assert_int_equal(done_status, SPR_ERR_MISMATCH);
    sent(0);
    spr_channel_send_held(&f.channel);
    expect_handed((const uint32_t[]){0, 1, 3}, 3);
    sent(1);
    sent(2);
}

/* The answer to a recall says that nothing comes behind it. */
static void what_is_held_goes_before_the_answer_to_a_recall(void **state)
{
    const struct spr_frame recall = {.type = SPR_FRAME_RECALL, .operation = 3};

    (void)state;
    spr_channel_set_urgent(&f.channel, 1);
    for (uint32_t k = 0; k < 4; k++)
        post_granted(k, 0);
    spr_channel_on_recall(&f.channel.peers[1], &recall);
    expect_handed((const uint32_t[]){0, 1, 3, 3}, 4);
    assert_int_equal(handed[2]->header.type, SPR_FRAME_DATA);
    assert_int_equal(handed[3]->header.type, SPR_FRAME_RECALL);
    spr_channel_set_urgent(&f.channel, 0);
    spr_channel_send_held(&f.channel);
    for (size_t i = 0; i < 5; i++)
        sent(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_most_urgent_goes_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_granted_later_passes_nothing_as_urgent, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(when_nothing_is_more_urgent_all_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(eager_messages_are_not_held, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_held_of_a_rejected_operation_is_dropped, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_is_held_goes_before_the_answer_to_a_recall, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
