/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-perf compressed_allreduce: every kind of codec, chunks that are compressed, and
 * --buckets.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cli/perf_line.h"

static void what_a_codec_sends_is_summed_exactly(void **state)
{
    static const char *const codecs[] = {"topk", "topk:ratio=5%+fp16", "topk+bf16", "none", "fp16",
                                         "topk:ratio=1%,feedback=off",
                                         "threshold:low=0,high=2+bf16", "sampled+int8",
                                         /* Not close to one gradient, nor meant to be. */
                                         "random+int8", "random:ratio=5%", "random+bf16", "dgc",
                                         "topk:bytes=2%+int8", "topk:count=70"};
    const size_t close = 8;
    (void)state;
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        char line[160];
        snprintf(line, sizeof line,
                 "$RUN -n 3 -- $PERF compressed_allreduce -b 40K -e 80K -f 2 -n 4 --codec %s",
                 codecs[i]);
        measure(line);
        assert_int_equal(row_count, 2);
        assert_string_equal(rows[0].op, "avg");
        assert_string_equal(rows[1].wrong, "0");
        assert_true(i >= close || strtod(rows[1].relerr, NULL) < 0.5);
    }
}

#ifdef HAVE_ZSTD
/* Over real TCP; in shared memory nothing is compressed. */
static void compressed_chunks_are_right_and_shorter(void **state)
{
    static const char *const codecs[] = {"topk:ratio=5%+fp16", "none+int8"};

    (void)state;
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        double ratio[2][2]; /* [shared memory, TCP][without, with] */
        for (int k = 0; k < 4; k++) {
            char line[200];
            snprintf(line, sizeof line,
                     "SPARRING_TRANSPORTS=%s SPARRING_ZSTD=%d $RUN -n 2 -- $PERF "
                     "compressed_allreduce -b 1M -e 1M -n 2 --codec %s",
                     k < 2 ? "shm" : "epoll", k % 2, codecs[i]);
            measure(line);
            assert_int_equal(row_count, 1);
            assert_string_equal(rows[0].wrong, "0");
            ratio[k / 2][k % 2] = strtod(rows[0].ratio, NULL);
        }
        /* But for messages about the step. */
        assert_true(fabs(ratio[0][1] / ratio[0][0] - 1) < 0.005);
        assert_true(ratio[1][1] > 1.05 * ratio[1][0]);
    }
}
#endif

static void buckets_are_summed_exactly(void **state)
{
    static const char *const codecs[] = {
        "topk:ratio=1%", "topk:ratio=5%+fp16", "none", "fp16",     "threshold:low=0,high=2+bf16",
        "sampled+int8",  "random+int8",        "dgc",  "powersgd", "int8",
    };
    (void)state;
    for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
        char line[200];
        snprintf(line, sizeof line,
                 "$RUN -n %d -- $PERF compressed_allreduce --elements 40001 -n 3 --codec %s "
                 "--buckets %d",
                 2 + (int)i % 2, codecs[i], 1 + 3 * (int)i);
        measure(line);
        assert_int_equal(row_count, 1);
        assert_int_equal(rows[0].count, 40001);
        assert_string_equal(rows[0].wrong, "0");
        assert_has(result.output, ", one at a time ");
    }
    /* One element in each; alone there is nothing to hide. */
    measure("$PERF compressed_allreduce --elements 8 --buckets 8 --density 100%");
    assert_string_equal(rows[0].wrong, "0");
    assert_has(result.output, "overlap - of ");
    /* Beside the dense baseline, and for every algorithm: one row of buckets each. */
    measure("$RUN -n 2 -- $PERF compressed_allreduce -b 64K -e 64K -n 3 --buckets 4 --codec none "
            "--algo all --baseline");
    assert_true(row_count > 0 && row_count % 2 == 0);
    assert_string_equal(rows[row_count / 2].algorithm, rows[0].algorithm);
    assert_int_equal(count(result.output, "# 4 buckets: "), (int)row_count / 2);
    assert_int_equal(count(result.output, "# compressed "), (int)row_count / 2);
}

/* Of the last step, whatever the codec goes by. */
static void what_was_sent_is_in_json(void **state)
{
    static const struct {
        const char *codec, *algorithm, *is;
    } cases[] = {
        {"topk:count=50", "direct", "e == 150 and d == 0.005 and 0 <= o <= 1"},
        {"topk:bytes=1%", "direct", "0 < d < 0.01 and abs(e - 30000 * d) <= 3 and 0 <= o <= 1"},
        {"dgc:warmup=10", "direct", "e == 7500 and 0 <= o <= 1"},
        {"topk:union=bounded", "direct", "e == 300 and d == 0.01 and o is None"},
        {"topk", "dense", "e == 300 and u is None and o is None"},
        {"random", "auto", "e is None and u is None and o is None and d == 0.01"},
    };

    (void)state;
    run("$PERF --json - -b 4 -e 4 -n 1");
    if (strstr(result.error, "libjansson") != NULL)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[640];
        snprintf(line, sizeof line,
                 "$RUN -n 3 -- $PERF compressed_allreduce --json - --elements 10000 -n 3 --codec "
                 "%s --algo %s | python3 -c '"
                 "import json, sys\n"
                 "row, = json.load(sys.stdin)[\"rows\"]\n"
                 "e, u, o, d = (row[n] for n in (\"entries\", \"union_entries\", \"overlap\", "
                 "\"density\"))\n"
                 "print(\"good\" if %s else row)'",
                 cases[i].codec, cases[i].algorithm, cases[i].is);
        run(line);
        if (strcmp(result.output, "good\n") != 0)
            fail_msg("%s: %s%s", cases[i].codec, result.output, result.error);
    }
}

static void what_is_hidden_is_in_json(void **state)
{
    (void)state;
    run("$PERF --json - -b 4 -e 4 -n 1");
    if (strstr(result.error, "libjansson") != NULL)
        skip();
    run("$RUN -n 3 -- $PERF --json - --elements 300K -n 5 compressed_allreduce --buckets 4 "
        "--baseline | python3 -c '"
        "import json, sys\n"
        "row, dense = json.load(sys.stdin)[\"rows\"]\n"
        "b = row[\"buckets\"]\n"
        "assert set(b) == {\"count\", \"in_turn_us\", \"gain\", \"wire_us\", \"compute_us\"}\n"
        "assert b[\"count\"] == 4 and \"buckets\" not in dense\n"
        "total, turn = row[\"time_us\"][\"p50\"], b[\"in_turn_us\"][\"p50\"]\n"
        "w, c = b[\"wire_us\"], b[\"compute_us\"]\n"
        "assert min(w, c) > 0 and abs(b[\"gain\"] - turn / total) < 1e-6\n"
        "assert abs(row[\"overlap\"] - (1 - (total - max(w, c)) / min(w, c))) < 1e-6\n"
        "assert c < turn and row[\"wrong\"] == 0\n"
        "assert row[\"phase_us\"][\"allgather\"] is None\n"
        "print(\"good\")'");
    if (strcmp(result.output, "good\n") != 0)
        fail_msg("%s%s", result.output, result.error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_codec_sends_is_summed_exactly),
#ifdef HAVE_ZSTD
        cmocka_unit_test(compressed_chunks_are_right_and_shorter),
#endif
        cmocka_unit_test(buckets_are_summed_exactly),
        cmocka_unit_test(what_was_sent_is_in_json),
        cmocka_unit_test(what_is_hidden_is_in_json),
    };
    int failed;

    perf_line_setup();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    shell_line_end();
    return failed;
}
