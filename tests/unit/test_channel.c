/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The channel alone, on a link whose frames are made here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "transport/channel.h"

static void failed(void *ctx, spr_status status, int rank, int told_by, const char *text)
{
    (void)told_by;
    spr_channel_stop(ctx, status, rank, text);
}

static void note(void *ctx, int peer, const struct spr_frame *f, const void *data)
{
    (void)ctx, (void)peer, (void)data;
    fail_msg("a frame of type %d was taken", f->type);
}

static void mismatch(void *ctx, int peer, uint32_t operation)
{
    (void)ctx;
    fail_msg("rank %d disagrees on operation %u", peer, operation);
}

static enum spr_operation_state state_of(void *ctx, uint32_t operation, uint64_t *descriptor)
{
    (void)ctx, (void)operation, (void)descriptor;
    return SPR_OPERATION_FUTURE;
}

/* What is sent leaves at once. */
static void send_frame(struct spr_link *link, struct spr_tx *tx)
{
    spr_channel_link_events.sent(link, tx);
}

static void release(struct spr_link *link, void *token) { (void)link, (void)token; }
static void kill_link(struct spr_link *link) { link->state = SPR_LINK_DOWN; }
static bool delivered(struct spr_link *link)
{
    (void)link;
    return true;
}

static const struct spr_transport_ops ops = {.name = "hand",
                                             .send = send_frame,
                                             .release = release,
                                             .kill = kill_link,
                                             .delivered = delivered};

struct scene {
    struct spr_options options;
    struct spr_counters counters;
    struct spr_trace *trace;
    struct spr_transport transport;
    struct spr_link link;
    struct spr_channel channel;
};

/* Rank 0, with a link to rank 1. */
static void begin(struct scene *s, int size)
{
    struct spr_error error = {0};

    memset(s, 0, sizeof *s);
    assert_int_equal(spr_opt_defaults(spr_options_table, spr_options_count, &s->options, &error),
                     SPR_OK);
    s->trace = spr_trace_new(0, size);
    assert_non_null(s->trace);
    assert_int_equal(spr_channel_init(&s->channel, 0, size, 1, &s->options, &spr_clock_monotonic,
                                      &s->counters, s->trace),
                     SPR_OK);
    s->channel.events = (struct spr_channel_events){.failed = failed,
                                                    .note = note,
                                                    .mismatch = mismatch,
                                                    .state = state_of,
                                                    .ctx = &s->channel};
    s->transport.ops = &ops;
    s->link = (struct spr_link){&s->transport, 1, SPR_LINK_UP, NULL};
    spr_channel_attach(&s->channel, &s->link, true);
}

static void end(struct scene *s)
{
    spr_channel_destroy(&s->channel);
    spr_trace_free(s->trace);
    spr_opt_free(spr_options_table, spr_options_count, &s->options);
}

/* A header comes in one piece, its text in another, and in between a third rank says that the next
 * epoch has begun. */
static void half_a_frame_of_the_last_epoch_has_no_effect_in_the_next(void **state)
{
    static const uint8_t types[] = {SPR_FRAME_ABORT, SPR_FRAME_REJECT, SPR_FRAME_DESCRIBE};
    static const char text[] = "rank 1 was lost";
    static const int rank_of[] = {0, 1};

    (void)state;
    for (size_t i = 0; i < sizeof types; i++) {
        struct scene s;
        struct spr_frame f = {.type = types[i],
                              .epoch = 1,
                              .bytes = sizeof text,
                              .arg = 1,
                              .arg64 = (uint32_t)SPR_ERR_RANK_LOST};
        struct spr_rx rx;
        begin(&s, 2);
        spr_frame_seal_payload(&f, text);
        spr_channel_stop(&s.channel, SPR_ERR_RANK_LOST, 1, "seen here, too");
        assert_int_equal(spr_channel_link_events.header(&s.link, &f, &rx), SPR_OK);
        spr_channel_new_epoch(&s.channel, 2, rank_of, 1);
        spr_channel_link_events.payload(&s.link, &f, text, NULL);
        assert_int_equal(s.channel.status, SPR_OK);
        assert_false(s.channel.peers[1].left);
        end(&s);
    }
}

/* A rank is ahead, and dies in the middle of what it sends; whether its link has ended by itself or
 * is cut, the next epoch's operation of that number is another one. */
static void half_a_message_of_a_dead_rank_disagrees_with_nobody(void **state)
{
    static const int rank_of[] = {0, -1};

    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        struct spr_frame f = {
            .type = SPR_FRAME_DATA, .epoch = 1, .bytes = 8, .operation = 5, .descriptor = 77};
        struct spr_rx rx;
        struct scene s;

        f.arg = 1; /* without a grant */
        spr_frame_seal(&f);
        begin(&s, 2);
        assert_int_equal(spr_channel_link_events.header(&s.link, &f, &rx), SPR_OK);
        assert_non_null(s.channel.peers[1].arriving);
        spr_channel_stop(&s.channel, SPR_ERR_RANK_LOST, 1, "a guardian said so");
        if (cut)
            spr_channel_cut(&s.channel, 1);
        else
            spr_channel_link_events.down(&s.link, SPR_ERR_RANK_LOST, "end of file");
        spr_channel_new_epoch(&s.channel, 2, rank_of, 5);
        spr_channel_begin(&s.channel, 5, 78);
        end(&s);
    }
}

static void ranks_that_are_waited_for_are_named_as_a_whole(void **state)
{
    enum { SIZE = 300 };
    static struct spr_recv receives[SIZE];
    char all[2000], text[128];
    struct scene s;
    size_t length;
    int first;

    (void)state;
    begin(&s, SIZE);
    for (int r = 101; r < SIZE; r += 2) {
        receives[r] = (struct spr_recv){.peer = r, .operation = 5, .eager = true};
        spr_channel_receive(&s.channel, &receives[r]);
    }
    spr_channel_waiting_for(&s.channel, 5, all, sizeof all, &first);
    assert_int_equal(first, 101);
    assert_string_equal(all + strlen(all) - 10, ", 297, 299");
    spr_channel_waiting_for(&s.channel, 5, text, sizeof text, &first);
    assert_int_equal(first, 101);
    length = strlen(text) - strlen(", ...");
    assert_string_equal(text + length, ", ...");
    assert_memory_equal(text, all, length);
    assert_int_equal(all[length], ',');
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_a_frame_of_the_last_epoch_has_no_effect_in_the_next),
        cmocka_unit_test(half_a_message_of_a_dead_rank_disagrees_with_nobody),
        cmocka_unit_test(ranks_that_are_waited_for_are_named_as_a_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
