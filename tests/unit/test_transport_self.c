/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The link of a rank to itself: what is sent comes back, by the rules of transport/transport.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/util.h"
#include "transport/transport.h"

enum { ME = 3, SIZE = 5, FRAMES = 40, BYTES = 1000 };

/* What the layer above saw, and how it answers. */
static struct {
    struct spr_transport *transport;
    struct spr_link *link;
    struct spr_counters counters;
    struct spr_tx tx[FRAMES];
    char data[FRAMES][BYTES], into[BYTES];
    enum spr_sink sink;
    spr_status refuse; /* the answer to the next header */
    bool kill_in_header, kill_in_payload, answer;
    bool inside; /* progress() */
    int up, headers, payloads, sent, failed, down;
    spr_status why;
    uint32_t steps[FRAMES]; /* of payloads, in order */
    const void *payload[FRAMES];
    void *token[FRAMES];
} s;

static const struct spr_transport_ops *const ops = &spr_transport_self;

static void send_frame(int i, uint32_t bytes)
{
    s.tx[i].header =
        (struct spr_frame){.type = SPR_FRAME_DATA, .step = (uint32_t)i, .bytes = bytes};
    s.tx[i].data = s.data[i];
    memset(s.data[i], 'a' + i % 26, bytes);
    ops->send(s.link, &s.tx[i]);
}

static void on_up(struct spr_link *link)
{
    assert_true(s.inside && link == s.link && link->state == SPR_LINK_UP);
    s.up++;
}

static spr_status on_header(struct spr_link *link, const struct spr_frame *frame, struct spr_rx *rx)
{
    assert_true(s.inside && link == s.link && frame->step == (uint32_t)s.headers);
    s.headers++;
    rx->sink = s.sink;
    rx->into = s.into;
    if (s.kill_in_header)
        ops->kill(link);
    return s.refuse;
}

static void on_payload(struct spr_link *link, const struct spr_frame *frame, const void *data,
                       void *token)
{
    assert_true(s.inside && link == s.link && s.payloads < s.headers);
    s.steps[s.payloads] = frame->step;
    s.payload[s.payloads] = data;
    s.token[s.payloads++] = token;
    if (s.answer && frame->step == 0)
        send_frame(1, 0);
    if (s.kill_in_payload)
        ops->kill(link);
}

static void on_sent(struct spr_link *link, struct spr_tx *tx)
{
    assert_true(s.inside && link == s.link && s.down == 0);
    s.sent++;
    s.failed += tx->failed;
    memset(tx, 0xee, sizeof *tx); /* it is ours again */
}

static void on_down(struct spr_link *link, spr_status why, const char *text)
{
    assert_true(s.inside && link == s.link && text && *text);
    s.down++;
    s.why = why;
}

static const struct spr_link_events events = {on_up, on_header, on_payload, on_sent, on_down};

static int progress(void)
{
    int n;

    s.inside = true;
    n = ops->progress(s.transport);
    s.inside = false;
    return n;
}

static int64_t live;

static int setup(void **state)
{
    struct spr_transport_params params = {
        .rank = ME, .size = SIZE, .events = &events, .counters = &s.counters};
    struct spr_error error = {0};

    (void)state;
    live = spr_mem_live();
    memset(&s, 0, sizeof s);
    s.sink = SPR_SINK_INTO;
    assert_int_equal(ops->open(&params, &s.transport, &error), SPR_OK);
    assert_int_equal(ops->connect(s.transport, ME, NULL, &s.link, &error), SPR_OK);
    assert_true(s.link->peer == ME && s.link->state == SPR_LINK_CONNECTING);
    assert_int_equal(ops->arm(s.transport), SPR_IN_PROGRESS);
    assert_int_equal(progress(), 1);
    assert_int_equal(s.up, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ops->close(s.transport);
    assert_int_equal(spr_mem_live(), live);
    return 0;
}

static void it_links_a_rank_to_itself_and_once(void **state)
{
    struct spr_peer_info peers[2] = {0};
    struct spr_error error = {0};
    struct spr_link *link = NULL;
    char address[SPR_ADDRESS_BYTES];

    (void)state;
    assert_string_equal(ops->name, "self");
    assert_int_equal(ops->connect(s.transport, ME + 1, NULL, &link, &error), SPR_ERR_INVALID);
    assert_int_equal(ops->connect(s.transport, ME, NULL, &link, &error), SPR_ERR_INVALID);
    assert_null(link);
    assert_null(ops->unusable(&peers[0], &peers[0]));
    assert_non_null(ops->unusable(&peers[0], &peers[1]));
    ops->address(s.transport, address);
    for (size_t i = 0; i < sizeof address; i++)
        assert_int_equal(address[i], 0);
    assert_int_equal(ops->fd(s.transport), -1);
    assert_int_equal(ops->mem_register(s.transport, s.into, BYTES, true), SPR_OK);
    ops->mem_deregister(s.transport, s.into, BYTES);
}

static void what_is_sent_comes_back_in_order(void **state)
{
    (void)state;
    for (int i = 0; i < FRAMES; i++)
        send_frame(i, (uint32_t)(i * 7));
    assert_int_equal(s.headers, 0); /* not inside send() */
    for (int i = 0; i < 10; i++)
        progress();
    assert_true(s.payloads == FRAMES && s.sent == FRAMES && s.failed == 0);
    for (int i = 0; i < FRAMES; i++) {
        assert_int_equal(s.steps[i], i);
        assert_ptr_equal(s.payload[i], i == 0 ? NULL : s.into);
        assert_null(s.token[i]);
    }
    for (int i = 0; i < (FRAMES - 1) * 7; i++)
        assert_int_equal(s.into[i], 'a' + (FRAMES - 1) % 26);
    assert_int_equal(s.counters.sent_frames, FRAMES);
    assert_int_equal(s.counters.received_frames, FRAMES);
    assert_int_equal(s.counters.sent_bytes,
                     FRAMES * SPR_FRAME_BYTES + 7 * FRAMES * (FRAMES - 1) / 2);
    assert_int_equal(s.counters.received_bytes, s.counters.sent_bytes);
}

static void it_sleeps_only_when_nothing_waits(void **state)
{
    (void)state;
    assert_int_equal(ops->arm(s.transport), SPR_OK);
    assert_true(ops->idle(s.transport));
    assert_int_equal(progress(), 0);
    send_frame(0, 10);
    assert_int_equal(ops->arm(s.transport), SPR_IN_PROGRESS);
    assert_false(ops->idle(s.transport) || ops->delivered(s.link));
    assert_true(progress() > 0);
    assert_true(ops->delivered(s.link));
    assert_int_equal(ops->arm(s.transport), SPR_OK);
    assert_true(ops->idle(s.transport));
}

static void a_dropped_payload_is_not_touched(void **state)
{
    (void)state;
    s.sink = SPR_SINK_DROP;
    memset(s.into, '.', sizeof s.into);
    send_frame(0, 100);
    progress();
    assert_true(s.payloads == 1 && s.sent == 1 && s.failed == 0);
    assert_null(s.payload[0]);
    assert_null(s.token[0]);
    assert_int_equal(s.into[0], '.');
}

static void a_borrowed_payload_is_the_senders_own(void **state)
{
    (void)state;
    s.sink = SPR_SINK_BORROW;
    for (int i = 0; i < 3; i++)
        send_frame(i, i < 2 ? 100 : 0);
    progress();
    assert_true(s.payloads == 3 && s.sent == 1); /* the empty one */
    assert_ptr_equal(s.payload[0], s.data[0]);
    assert_ptr_equal(s.payload[1], s.data[1]);
    assert_true(s.token[0] && s.token[1] && !s.token[2]);
    assert_false(ops->idle(s.transport));
    assert_int_equal(ops->arm(s.transport), SPR_OK); /* only the borrower can go on */
    /* In any order; sent() comes later. */
    ops->release(s.link, s.token[1]);
    assert_int_equal(s.sent, 1);
    assert_int_equal(ops->arm(s.transport), SPR_IN_PROGRESS);
    progress();
    assert_int_equal(s.sent, 2);
    ops->release(s.link, s.token[0]);
    ops->release(s.link, NULL);
    progress();
    assert_true(s.sent == 3 && s.failed == 0 && ops->idle(s.transport));
}

static void an_upcall_may_send(void **state)
{
    (void)state;
    s.answer = true;
    send_frame(0, 5);
    for (int i = 0; i < 3; i++)
        progress();
    assert_true(s.payloads == 2 && s.sent == 2);
    assert_int_equal(s.steps[1], 1);
}

static void a_killed_link_returns_what_it_has(void **state)
{
    (void)state;
    s.sink = SPR_SINK_BORROW;
    send_frame(0, 100);
    progress();
    send_frame(1, 100);
    send_frame(2, 0);
    ops->kill(s.link);
    ops->kill(s.link);
    assert_int_equal(s.sent, 0);
    assert_int_equal(ops->arm(s.transport), SPR_IN_PROGRESS);
    progress();
    /* The one that is lent was delivered. */
    assert_true(s.sent == 3 && s.failed == 2 && s.headers == 1 && s.down == 0);
    assert_true(ops->idle(s.transport));
    ops->release(s.link, s.token[0]);
    send_frame(3, 100);
    progress();
    assert_true(s.sent == 4 && s.failed == 3 && s.headers == 1);
}

static void killed_in(bool header)
{
    s.kill_in_header = header;
    s.kill_in_payload = !header;
    send_frame(0, 100);
    send_frame(1, 100);
    progress();
    progress();
    assert_true(s.headers == 1 && s.payloads == s.kill_in_payload);
    assert_true(s.sent == 2 && s.failed == 2 - s.payloads && s.down == 0);
}

static void a_link_may_be_killed_in_header(void **state)
{
    (void)state;
    killed_in(true);
}

static void a_link_may_be_killed_in_payload(void **state)
{
    (void)state;
    killed_in(false);
}

static void a_refused_frame_takes_the_link_down(void **state)
{
    (void)state;
    s.refuse = SPR_ERR_PROTO;
    send_frame(0, 100);
    send_frame(1, 100);
    progress();
    assert_true(s.headers == 1 && s.payloads == 0 && s.sent == 2 && s.failed == 2);
    assert_true(s.down == 1 && s.why == SPR_ERR_PROTO && s.link->state == SPR_LINK_DOWN);
    progress();
    assert_int_equal(s.down, 1);
}

static void a_loan_without_memory_takes_the_link_down(void **state)
{
    (void)state;
    s.sink = SPR_SINK_BORROW;
    send_frame(0, 100);
    spr_mem_fail_nth(1);
    progress();
    spr_mem_fail_nth(0);
    assert_true(s.payloads == 0 && s.sent == 1 && s.failed == 1);
    assert_true(s.down == 1 && s.why == SPR_ERR_NOMEM);
}

static void opening_without_memory_fails(void **state)
{
    struct spr_transport_params params = {.rank = ME, .size = SIZE, .events = &events};
    struct spr_transport *transport = NULL;
    struct spr_error error = {0};

    (void)state;
    spr_mem_fail_nth(1);
    assert_int_equal(ops->open(&params, &transport, &error), SPR_ERR_NOMEM);
    spr_mem_fail_nth(0);
    assert_null(transport);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_links_a_rank_to_itself_and_once),        TEST(what_is_sent_comes_back_in_order),
        TEST(it_sleeps_only_when_nothing_waits),         TEST(a_dropped_payload_is_not_touched),
        TEST(a_borrowed_payload_is_the_senders_own),     TEST(an_upcall_may_send),
        TEST(a_killed_link_returns_what_it_has),         TEST(a_link_may_be_killed_in_header),
        TEST(a_link_may_be_killed_in_payload),           TEST(a_refused_frame_takes_the_link_down),
        TEST(a_loan_without_memory_takes_the_link_down), TEST(opening_without_memory_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
