/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Faults over simulated links, and whom the flight recorders of the ranks blame. And recorders with
 * bytes that nobody wrote.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/util.h"
#include "collectives/collective.h"
#include "collectives/watch.h"
#include "tests/sim/world.h"
#include "tools/trace/trace.h"

#define LIMIT_NS 3600000000000ull
#define MOST 500000
#define RANKS_MAX 6

enum fault { KILL, LATE, MISMATCH, SLOW_PORT, SLOW_OUT, SLOW_IN, ABORT, EXPEL, FAULTS };
static const struct {
    const char *name;
    const char *phase;
} faults[FAULTS] = {
    {"killed", ": dead "},
    {"late", ": late in compute: "},
    {"mismatched", ": mismatched "},
    {"slow port", ": slow link in "},
    {"slow to send", ": slow link in "},
    {"slow to receive", ": slow link in "},
    {"aborted", ": gave up "},
    {"expelled", ": expelled "},
};

static uint64_t seed;
static float *in[RANKS_MAX], *out[RANKS_MAX];
static const char *algorithm; /* of all calls; NULL: auto */

/* The traces of all ranks, as they are now. */
static bool take(const struct world *w, struct trace_set *set)
{
    struct trace *traces[WORLD_MAX];
    char error[128];

    for (int r = 0; r < w->ranks; r++) {
        const struct spr_trace *t = w->comms[r]->trace;
        traces[r] = trace_parse((const char *)t->header, error, sizeof error);
        if (!traces[r])
            fail_msg("%s", error);
    }
    return trace_set_make(set, traces, (size_t)w->ranks);
}

static spr_status post(struct world *w, int rank, size_t count)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = algorithm;
    return spr_iallreduce(w->comms[rank], in[rank], out[rank], count, SPR_FP32, SPR_SUM, &options,
                          &w->requests[rank]);
}

/* A few operations that go well, then one with the fault. Returns its number. */
static uint32_t run_fault(struct world *w, enum fault fault, int victim, uint64_t random)
{
    static const size_t counts[] = {1, 1000, 100000, MOST};
    const struct spr_clock *clock = spr_sim_clock(w->sim);
    uint32_t before = (uint32_t)(random >> 8) % 4;
    bool slow = fault == SLOW_PORT || fault == SLOW_OUT || fault == SLOW_IN;
    size_t count = slow ? MOST : counts[(random >> 16) % SPR_ARRAY_LEN(counts)];

    for (uint32_t i = 0; i < before; i++) {
        for (int r = 0; r < w->ranks; r++)
            assert_int_equal(post(w, r, counts[(random + i) % SPR_ARRAY_LEN(counts)]), SPR_OK);
        assert_true(world_run(w, LIMIT_NS));
    }
    if (fault == SLOW_PORT)
        spr_sim_slow(w->sim, victim, 5e5, 0);
    if (fault == SLOW_OUT)
        spr_sim_slow_out(w->sim, victim, 5e5, 0);
    if (fault == SLOW_IN)
        spr_sim_slow_in(w->sim, victim, 5e5, 0);
    if (fault == KILL)
        spr_sim_kill(w->sim, victim, spr_now_ns(clock));
    if (fault == ABORT)
        spr_comm_abort(w->comms[victim], "loss is NaN");
    for (int r = 0; r < w->ranks; r++)
        if (r != victim || fault == MISMATCH || slow)
            (void)post(w, r, r == victim && fault == MISMATCH ? count + 1 : count);
    for (int r = 0; r < w->ranks && fault == EXPEL; r++)
        if (r != victim)
            spr_comm_note_loss(w->comms[r], victim, "expelled: no heartbeat for 10 s", false);
    assert_true(world_run(w, 2 * LIMIT_NS));
    return before + 1;
}

/* How the line has to begin. In a ring nothing tells a slow sender from a slow receiver. */
static void expect(enum fault fault, int ranks, int victim, bool ring, char *who, size_t bytes,
                   char *pair, size_t pair_bytes)
{
    int from = fault == SLOW_OUT ? victim : (victim + ranks - 1) % ranks, to = (from + 1) % ranks;

    *pair = '\0';
    snprintf(who, bytes, "rank %d: ", victim);
    if (!ring || (fault != SLOW_OUT && fault != SLOW_IN))
        return;
    snprintf(who, bytes, "rank ");
    snprintf(pair, pair_bytes, ": rank %d to rank %d made ", from, to);
}

/* Is the verdict on this fault right? Prints what is wrong. */
static bool is_right(enum fault fault, int ranks, int victim, uint64_t random)
{
    struct spr_sim_options options = {
        .ranks = ranks, .seed = random, .latency_s = 10e-6, .jitter_s = 50e-6, .bandwidth = 10e9};
    char line[TRACE_TEXT_BYTES], who[32], number[16], pair[48];
    bool slow = fault == SLOW_PORT || fault == SLOW_OUT || fault == SLOW_IN;
    bool ring = slow && random >> 40 & 1;
    struct trace_set set;
    struct world w;
    uint32_t operation;
    bool right;

    world_create(&w, &options);
    algorithm = !slow ? NULL : ring ? "ring" : "direct";
    for (int r = 0; r < ranks; r++)
        w.comms[r]->options.timeout_s = 20;
    operation = run_fault(&w, fault, victim, random);
    assert_true(take(&w, &set));
    if (fault == KILL) /* what sparring-run would have seen */
        set.processes[victim] = (struct process){PROCESS_KILLED, 9};
    if (fault == EXPEL) /* it woke up, was told, and ended */
        set.processes[victim] = (struct process){PROCESS_EXITED, 1};
    trace_verdict(&set, line, NULL);
    expect(fault, ranks, victim, ring, who, sizeof who, pair, sizeof pair);
    snprintf(number, sizeof number, "#%u", operation);
    right = strncmp(line, who, strlen(who)) == 0 && strstr(line, faults[fault].phase) &&
            strstr(line, number) && strstr(line, pair) && !*pair == !strstr(line, " or rank ");
    if (!right)
        print_message("rank %d of %d %s in #%u: %s\n", victim, ranks, faults[fault].name, operation,
                      line);
    trace_set_free(&set);
    world_destroy(&w);
    return right;
}

static void the_rank_with_the_fault_is_named(void **state)
{
    const char *scale = getenv("SPARRING_TEST_SCALE");
    int trials = scale ? (int)(500 * strtod(scale, NULL)) : 500, wrong = 0;

    (void)state;
    for (int i = 0; i < trials; i++) {
        uint64_t random = spr_rng_u64(seed, (uint64_t)i);
        enum fault fault = (enum fault)(i % FAULTS);
        int ranks = 3 + (int)(random % (RANKS_MAX - 2));
        int victim = (int)((random >> 32) % (uint64_t)ranks);
        wrong += !is_right(fault, ranks, victim, random);
    }
    print_message("%d of %d verdicts are right\n", trials - wrong, trials);
    assert_int_equal(wrong, 0);
}

/* Any bytes: no crash, and nothing but text comes out. */
static void hostile_bytes_do_no_harm(void **state)
{
    struct spr_sim_options options = {.ranks = 3, .seed = seed, .bandwidth = 10e9};
    static char bytes[3][SPR_TRACE_FILE_BYTES];
    uint64_t n = 0;
    struct world w;

    (void)state;
    world_create(&w, &options);
    run_fault(&w, LATE, 1, 0x10200);
    for (int trial = 0; trial < 150; trial++) {
        struct trace *traces[3];
        struct trace_set set;
        char line[TRACE_TEXT_BYTES], *text = NULL;
        size_t count = 0, length;
        FILE *stream = open_memstream(&text, &length);
        assert_non_null(stream);
        for (int r = 0; r < 3; r++) {
            uint64_t changes = spr_rng_u64(seed, n++) % 2000;
            memcpy(bytes[r], (const void *)w.comms[r]->trace->header, SPR_TRACE_FILE_BYTES);
            for (uint64_t i = 0; i < changes; i++) {
                uint64_t random = spr_rng_u64(seed, n++);
                /* Half of them where the first events and the numbers are. */
                size_t room = random & 1 ? sizeof bytes[r] : SPR_TRACE_HEADER_BYTES + 8192;
                size_t at = (size_t)(random >> 16) % room;
                if (at >= 64) /* the part that is refused has tests of its own */
                    bytes[r][at] = (char)(random >> 8);
            }
            traces[count] = trace_parse(bytes[r], line, sizeof line);
            count += traces[count] != NULL;
        }
        assert_true(count > 0 && trace_set_make(&set, traces, count));
        trace_verdict(&set, line, stream);
        trace_dump(&set, -1, SIZE_MAX, stream);
        trace_json(&set, stream);
        fclose(stream);
        for (const char *c = line; *c; c++)
            assert_true(*c >= ' ' && *c < 0x7f);
        for (size_t i = 0; i < length; i++)
            assert_true(text[i] == '\n' || (text[i] >= ' ' && text[i] < 0x7f));
        free(text);
        trace_set_free(&set);
    }
    world_destroy(&w);
}

static void a_header_that_does_not_fit_is_refused(void **state)
{
    static char bytes[SPR_TRACE_FILE_BYTES];
    struct spr_trace_header *h = (struct spr_trace_header *)(void *)bytes;
    struct spr_trace *good = spr_trace_new(1, 3);
    char error[128];
    static const struct {
        int32_t rank, size;
    } wrong[] = {{-1, 3}, {3, 3}, {0, 0}, {0, -1}, {70000, 80000}, {INT32_MAX, INT32_MAX}};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(wrong); i++) {
        memcpy(bytes, (const void *)good->header, sizeof bytes);
        h->rank = wrong[i].rank;
        h->size = wrong[i].size;
        assert_null(trace_parse(bytes, error, sizeof error));
        assert_string_equal(error, "damaged: no such rank can be");
    }
    memcpy(bytes, (const void *)good->header, sizeof bytes);
    h->events = 1u << 31;
    assert_null(trace_parse(bytes, error, sizeof error));
    assert_non_null(strstr(error, "another version"));
    spr_trace_free(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rank_with_the_fault_is_named),
        cmocka_unit_test(hostile_bytes_do_no_harm),
        cmocka_unit_test(a_header_that_does_not_fit_is_refused),
    };
    int code;

    seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    for (int r = 0; r < RANKS_MAX; r++) {
        in[r] = calloc(MOST + 1, sizeof *in[r]);
        out[r] = calloc(MOST + 1, sizeof *out[r]);
    }
    code = cmocka_run_group_tests(tests, NULL, NULL);
    for (int r = 0; r < RANKS_MAX; r++) {
        free(in[r]);
        free(out[r]);
    }
    return code;
}
