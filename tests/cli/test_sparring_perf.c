/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-perf as its users see it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cli/perf_line.h"

static void wrong_usage_is_one_line_and_code_2(void **state)
{
    static const struct {
        const char *arguments;
        const char *text;
    } cases[] = {
        {"-b", "a value is missing after -b"},
        {"--frobnicate", "unknown option --frobnicate"},
        {"-x", "unknown option -x"},
        {"--help=1", "--help takes no value"},
        {"frobnicate", "unknown collective 'frobnicate'; there is: allreduce, reduce_scatter, "},
        {"allreduce barrier", "one collective only"},
        {"-b 0", "--begin wants a size"},
        {"-b 1K -e 4", "-b is larger than -e"},
        {"-b 4 --elements 3", "excludes -b"},
        {"-f 1", "--factor wants"},
        {"-n 0", "--iterations wants"},
        {"-n 3x", "not '3x'"},
        {"-c 2", "--check wants 0 or 1"},
        {"-d fp8", "--datatype wants"},
        {"-o mean", "--op wants"},
        {"--algo quick", "there is: auto, all, flat"},
        {"--algo auto,rings", "no algorithm 'rings'; there is: auto, all, flat"},
        {"--algo ring,", "no algorithm ''"},
        {"--seed -1", "--seed wants"},
        {"--density 1%", "of sparse collectives"},
        {"--baseline", "of sparse collectives"},
        {"--codec fp16", "of compressed_allreduce"},
        {"sparse_allreduce --density 0", "--density wants"},
        {"sparse_allreduce --density 1%,,2%", "--density wants"},
        {"sparse_allreduce --density 101%", "--density wants"},
        {"sparse_allreduce -d fp64", "fp32"},
        {"sparse_allreduce -o max", "sum or avg"},
        {"sparse_allreduce --pattern stripes", "--pattern wants"},
        {"sparse_allreduce --overlap 101", "--overlap wants"},
        {"sparse_allreduce --result tree", "--result wants"},
        {"compressed_allreduce --result list", "of sparse_allreduce"},
        {"compressed_allreduce --codec topk:rate=1", "unknown option \"rate\""},
        {"compressed_allreduce --codec topk:ratio=1% --density 1%", "exclude each other"},
        {"compressed_allreduce --codec topk:bytes=1% --density 1%", "exclude each other"},
        {"compressed_allreduce --codec topk:count=9 --density 1%", "exclude each other"},
        {"--elastic -b 4K -e 4K --algo ring", "--elastic has no use for --algo"},
        {"--elastic -b 4K -e 4K -c 0", "--elastic has no use for --check"},
        {"--elastic -b 4K -e 8K -d fp32", "of one size"},
        {"sparse_allreduce --pattern trace:/ --overlap 5", "not of a trace"},
        {"compressed_allreduce --buckets 0", "--buckets wants"},
        {"compressed_allreduce --buckets 1025", "--buckets wants"},
        {"--buckets 8", "--buckets is of compressed_allreduce"},
        {"sparse_allreduce --buckets 8", "--buckets is of compressed_allreduce"},
        {"compressed_allreduce --elements 7 --buckets 8", "8 are more than the 7 elements"},
        {"compressed_allreduce -b 4 -e 64K --buckets 2", "2 are more than the 1 element of"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "$PERF %s", cases[i].arguments);
        run(line);
        if (result.code != 2)
            fail_msg("exit code %d of: %s\n%s", result.code, line, result.error);
        assert_has(result.error, cases[i].text);
        assert_int_equal(count(result.error, "\n"), 1);
        assert_string_equal(result.output, "");
    }
}

static void only_rank_0_complains_about_usage(void **state)
{
    (void)state;
    run("$RUN -n 3 -- $PERF -b zero");
    assert_int_equal(result.code, 2);
    assert_int_equal(count(result.error, "--begin wants"), 1);
    run("$RUN -n 3 -- $PERF --transport pigeon");
    assert_int_equal(result.code, 2);
    /* It is found out by all, who leave it to rank 0, unless that is late. */
    assert_in_range(count(result.error, "unknown transport 'pigeon'"), 1, 3);
}

static void help_goes_to_standard_output(void **state)
{
    (void)state;
    run("$PERF --help");
    assert_int_equal(result.code, 0);
    assert_has(result.output, "--density LIST");
    run("$PERF --version");
    assert_has(result.output, "sparring-perf ");
    run("$PERF --algo help");
    assert_has(result.output, "sparse_allreduce  auto");
    run("$PERF --codec help");
    assert_has(result.output, "topk");
    assert_string_equal(result.error, "");
}

static void one_rank_alone_works(void **state)
{
    static const char *const lines[] = {
        "$PERF -b 4 -e 64K -f 16 -n 2",
        "$PERF reduce_scatter -b 4 -e 4K -f 16 -n 2",
        "$PERF sendrecv -b 4 -e 64K -f 16 -n 2 --transport self",
        "$PERF barrier -n 2",
        "$PERF sparse_allreduce -b 4 -e 64K -f 16 -n 2 --result both",
        "$PERF compressed_allreduce -b 4 -e 64K -f 16 -n 2",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        measure(lines[i]);
        assert_true(row_count > 0);
        for (size_t k = 0; k < row_count; k++)
            assert_string_equal(rows[k].wrong, "0");
    }
}

static void every_algorithm_has_its_row(void **state)
{
    static const char *const names[] = {"flat",    "hierarchical", "ring", "direct",
                                        "halving", "doubling",     "tree"};
    const size_t count = sizeof names / sizeof names[0];

    (void)state;
    measure("$RUN -n 3 -- $PERF -b 64 -e 4K -f 8 -n 3 --algo all --transport shm");
    assert_int_equal(row_count, 3 * count); /* 64, 512, 4096 bytes */
    for (size_t i = 0; i < count; i++)
        assert_string_equal(rows[i].algorithm, names[i]);
    assert_int_equal(rows[row_count - 1].size, 4096);
    assert_int_equal(rows[row_count - 1].count, 1024);
    assert_string_equal(rows[row_count - 1].density, "-");
    assert_has(result.output, "3 ranks on 1 host, transport shm");
    assert_has(result.output, "Out of bounds values : 0 OK");
}

static void algorithms_of_a_list_have_their_rows_in_its_order(void **state)
{
    static const char *const names[] = {"ring", "auto", "tree"};

    (void)state;
    measure("$RUN -n 2 -- $PERF -b 4K -e 4K -n 3 --algo ring,auto,tree");
    assert_int_equal(row_count, 3);
    for (size_t i = 0; i < row_count; i++)
        assert_string_equal(rows[i].algorithm, names[i]);
    /* Those that add in another order are left out; the last row is the dense one. */
    measure("SPARRING_DETERMINISM=canonical $RUN -n 2 -- $PERF sparse_allreduce -b 4K -e 4K -n 3 "
            "--algo auto,all --baseline");
    assert_has(result.output, "algorithm ring is not for this");
    assert_true(row_count >= 5);
    assert_string_equal(rows[0].algorithm, "auto");
    for (size_t i = 1; i + 1 < row_count; i++) {
        assert_string_not_equal(rows[i].algorithm, "auto");
        assert_string_not_equal(rows[i].algorithm, "ring");
    }
    assert_string_equal(rows[row_count - 1].density, "-");
}

static void every_type_and_operation_is_right(void **state)
{
    static const char *const types[] = {"fp32", "fp64", "fp16", "bf16", "int32", "int64"};
    static const char *const ops[] = {"sum", "avg", "min", "max"};
    (void)state;
    for (size_t t = 0; t < 6; t++)
        for (size_t o = 0; o < 4; o++) {
            char line[160];
            snprintf(line, sizeof line,
                     "$RUN -n 3 -- $PERF %s -b 40 -e 40K -f 32 -n 1 -w 0 -d %s -o %s",
                     (t + o) % 2 == 0 ? "allreduce" : "reduce_scatter", types[t], ops[o]);
            measure(line);
            assert_true(row_count > 1);
            assert_string_equal(rows[0].type, types[t]);
            assert_string_equal(rows[0].op, ops[o]);
            for (size_t k = 0; k < row_count; k++)
                assert_string_equal(rows[k].wrong, "0");
        }
}

static void copies_are_of_parts_or_of_the_root(void **state)
{
    (void)state;
    measure("$RUN -n 3 -- $PERF allgather -b 1200 -e 1200 -n 2");
    assert_int_equal(row_count, 1);
    assert_int_equal(rows[0].size, 1200);
    assert_int_equal(rows[0].count, 100);
    assert_string_equal(rows[0].op, "none");
    assert_string_equal(rows[0].wrong, "0");
    measure("$RUN -n 3 -- $PERF broadcast -b 1200 -e 1200 -n 2");
    assert_int_equal(rows[0].count, 300);
    assert_string_equal(rows[0].wrong, "0");
}

static void a_sendrecv_is_of_the_rank_before(void **state)
{
    static const char *const types[] = {"fp32", "fp64", "fp16", "bf16", "int32", "int64"};
    (void)state;
    for (size_t t = 0; t < 6; t++) {
        char line[160];
        snprintf(line, sizeof line, "$RUN -n 3 -- $PERF sendrecv -b 8 -e 512K -f 256 -n 2 -d %s",
                 types[t]);
        measure(line);
        assert_int_equal(row_count, 3);
        for (size_t k = 0; k < row_count; k++) {
            assert_string_equal(rows[k].op, "none");
            assert_string_equal(rows[k].wrong, "0");
            assert_string_equal(rows[k].busbw, rows[k].algbw);
        }
    }
}

static void a_sparse_sum_is_exact_for_every_pattern(void **state)
{
    static const char *const patterns[] = {"uniform", "layers", "cluster", "zipf"};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char line[200];
        snprintf(line, sizeof line,
                 "$RUN -n 3 -- $PERF sparse_allreduce --elements 100001 -n 1 -w 0 --pattern %s "
                 "--density 0.1%%,0.05,100%% --overlap %d --result both -o avg",
                 patterns[i], (int)i * 30);
        measure(line);
        assert_int_equal(row_count, 3);
        assert_string_equal(rows[0].density, "0.1%");
        assert_string_equal(rows[2].density, "100%");
        for (size_t k = 0; k < row_count; k++) {
            assert_string_equal(rows[k].wrong, "0");
            assert_string_equal(rows[k].relerr, "0.00e+00");
        }
        /* A hundred times fewer elements are many times fewer bytes. */
        assert_true(strtod(rows[0].ratio, NULL) > 10 * strtod(rows[2].ratio, NULL));
    }
}

static void the_best_dense_row_stands_beside(void **state)
{
    size_t sparse = 0;

    (void)state;
    measure("$RUN -n 2 -- $PERF sparse_allreduce -b 64K -e 64K -n 3 --baseline --algo all");
    while (sparse < row_count && !strcmp(rows[sparse].density, "1%"))
        sparse++;
    assert_true(sparse >= 5 && row_count >= sparse + 2);
    for (size_t k = sparse; k < row_count; k++)
        assert_string_equal(rows[k].density, "-");
    assert_int_equal(count(result.output, "# sparse "), (int)sparse);
    measure(
        "$RUN -n 2 -- $PERF compressed_allreduce -b 64K -e 64K -n 3 --baseline --density 1%,10%");
    assert_int_equal(row_count, 4);
    assert_int_equal(count(result.output, "# compressed "), 2);
    assert_int_equal(count(result.output, ", lossy (relerr"), 2);
}

static void settings_that_differ_are_named(void **state)
{
    (void)state;
    run("$RUN -n 2 -- sh -c 'SPARRING_EAGER=$((4096 + SPARRING_RANK)) exec $PERF -b 4K -e 4K'");
    assert_int_not_equal(result.code, 0);
    assert_has(result.error, "settings differ");
    assert_has(result.error, "SPARRING_EAGER");
    run("$RUN -n 2 -- sh -c 'SPARRING_TRIALS=allreduce:2/1:${SPARRING_RANK}x4=ring@1 "
        "exec $PERF -b 4K -e 4K'");
    assert_int_not_equal(result.code, 0);
    assert_has(result.error, "settings differ");
    assert_has(result.error, "SPARRING_TRIALS");
}

static void json_is_json(void **state)
{
    (void)state;
    run("$PERF --json - -b 4 -e 4 -n 1");
    if (strstr(result.error, "libjansson") != NULL)
        skip();
    run("$RUN -n 2 -- $PERF --json - -b 1K -e 1K -n 3 sparse_allreduce --baseline | python3 -c '"
        "import json, sys\n"
        "j = json.load(sys.stdin)\n"
        "assert j[\"schema\"] == 1 and j[\"ranks\"] == 2 and j[\"hosts\"] == 1\n"
        "assert j[\"command\"][1:3] == [\"--json\", \"-\"]\n"
        "sparse, dense = j[\"rows\"]\n"
        "assert sparse[\"collective\"] == \"sparse_allreduce\"\n"
        "assert dense[\"collective\"] == \"allreduce\"\n"
        "assert sparse[\"density\"] == 0.01 and dense[\"density\"] is None\n"
        "assert sparse[\"elements\"] == 256 and sparse[\"bytes\"] == 1024\n"
        "assert sparse[\"iterations\"] == 3 and sparse[\"wrong\"] == 0\n"
        "assert dense[\"sent_bytes\"] >= 1024 and dense[\"recv_bytes\"] >= 1024\n"
        "t = sparse[\"time_us\"]\n"
        "assert 0 < t[\"min\"] <= t[\"p50\"] <= t[\"p99\"] <= t[\"max\"]\n"
        "assert 0 < sparse[\"cpu_us\"] <= sparse[\"cpu_sum_us\"] <= 2.001 * sparse[\"cpu_us\"]\n"
        "k, u = sparse[\"entries\"], sparse[\"union_entries\"]\n"
        "assert 0 < u <= k and abs(sparse[\"overlap\"] - (k - u) / (k / 2)) < 1e-6\n"
        "assert dense[\"entries\"] is None and dense[\"union_entries\"] is None\n"
        "assert set(sparse) - set(dense) == {\"phase_us\"}\n"
        "assert set(sparse[\"phase_us\"]) == "
        "{\"select\", \"encode\", \"reduce_scatter\", \"merge\", \"allgather\", \"decode\"}\n"
        "print(\"good\")'");
    assert_string_equal(result.output, "good\n");
    assert_has(result.error, "sparse_allreduce"); /* the table */
}

/* Skips the test where there can be none. */
static void need_emulated_hosts(void)
{
    run("$RUN -n 2 --emulate 1gbit -- true");
    if (result.code == 0)
        return;
    print_message("no emulated network here: %s", result.error);
    skip();
}

/* A meter of its own: retransmissions only add to it, and loopback is not in it. Of many
 * iterations, as a busy machine sends a few of them half again. */
static void interfaces_count_what_the_transport_counts(void **state)
{
    (void)state;
    run("$PERF --json - -b 4 -e 4 -n 1");
    if (strstr(result.error, "libjansson") != NULL)
        skip();
    need_emulated_hosts();
    run("$RUN -n 2 --emulate 1gbit -- $PERF --json - -b 1M -e 1M -n 20 | python3 -c '"
        "import json, sys\n"
        "row = json.load(sys.stdin)[\"rows\"][0]\n"
        "for way in (\"sent_bytes\", \"recv_bytes\"):\n"
        "    ratio = row[\"link_\" + way] / row[way]\n"
        "    assert row[way] >= 1 << 20 and 0.9 < ratio < 2, (way, ratio)\n"
        "print(\"good\")'");
    if (strcmp(result.output, "good\n") != 0)
        fail_msg("%s%s", result.output, result.error);
    run("$RUN -n 2 --emulate 1gbit --ranks-per-host 2 -- "
        "$PERF --json - --transport epoll -b 1M -e 1M -n 20 | python3 -c '"
        "import json, sys\n"
        "row = json.load(sys.stdin)[\"rows\"][0]\n"
        "print(row[\"sent_bytes\"] >= 1 << 20, row[\"link_sent_bytes\"] < 1 << 20)'");
    assert_string_equal(result.output, "True True\n");
    /* Two hosts of two ranks: less goes over the link, with the same sums. */
    run("$RUN -n 4 --emulate 1gbit --ranks-per-host 2 -- $PERF sparse_allreduce --json - "
        "--elements 1M --density 5% --algo all -n 20 | python3 -c '"
        "import json, sys\n"
        "rows = {r[\"algorithm\"]: r for r in json.load(sys.stdin)[\"rows\"]}\n"
        "names = \"direct\", \"hierarchical\", \"hosts\"\n"
        "link = {a: rows[a][\"link_sent_bytes\"] for a in names}\n"
        "ratio = max(link[a] / link[\"direct\"] for a in names[1:])\n"
        "print(sum(r[\"wrong\"] for r in rows.values()), \"good\" if ratio < 0.8 else ratio)'");
    assert_string_equal(result.output, "0 good\n");
    /* Sums of hosts are added in another order than that of ranks, and are right. */
    run("$RUN -n 4 --emulate 1gbit --ranks-per-host 2 -- $PERF sparse_allreduce --json - "
        "--elements 64K --density 50% --algo hosts -n 3 | python3 -c '"
        "import json, sys\n"
        "row, = json.load(sys.stdin)[\"rows\"]\n"
        "print(row[\"algorithm\"], row[\"wrong\"], row[\"relerr\"] > 0)'");
    assert_string_equal(result.output, "hosts 0 True\n");
}

/* Ranks that begin with `with` in front of the program: how many of two poll. */
static int polling(const char *options, const char *with)
{
    char line[256];

    snprintf(line, sizeof line,
             "SPARRING_LOG=info $RUN -n 2 %s -- %s $PERF -b 4K -e 4K -n 1 2>&1 | grep INFO",
             options, with);
    run(line);
    assert_int_equal(count(result.output, "(2 ranks here)"), 2);
    return count(result.output, ", spinning\n");
}

static void ranks_poll_where_each_has_a_cpu(void **state)
{
    (void)state;
    assert_int_equal(polling("", "taskset -c $(taskset -cp $$ | sed 's/.*: *//; s/[,-].*//')"), 0);
    if (polling("", "") == 0) /* a single CPU, or a quota */
        skip();
    assert_int_equal(polling("--cpu-bind rank", ""), 2);
}

/* Four hosts in two racks; and a model, which knows nothing of racks, is measured there. */
static void racks_of_a_topology_file_are_levels(void **state)
{
    (void)state;
    need_emulated_hosts();
    run("topology=$(mktemp) && echo 'a: h[01]' >$topology && echo 'b: h2 h3' >>$topology &&"
        " for what in allreduce 'sparse_allreduce --density 5%' 'compressed_allreduce --codec "
        "topk'; do"
        " SPARRING_LOG=info SPARRING_TOPOLOGY=$topology $RUN -n 4 --emulate 1gbit -- $PERF $what"
        " --elements 64K --algo hierarchical -n 3 -c 1 || exit; done;"
        " SPARRING_MODEL=measure SPARRING_TOPOLOGY=$topology $RUN -n 4 --emulate 1gbit -- $PERF"
        " --elements 64K -n 3 -c 1; code=$?; rm $topology; exit $code");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.error, "rank 3: 4 hosts in 2 racks"));
    run("SPARRING_TOPOLOGY=/no/such $RUN -n 2 -- $PERF -b 4 -e 4 -n 1");
    assert_non_null(strstr(result.error, "topology file /no/such: No such file or directory"));
    assert_int_not_equal(result.code, 0);
}

/* The emulator tells ranks what links can do; who says something else is believed. */
static void hosts_with_slower_links_own_less(void **state)
{
    (void)state;
    need_emulated_hosts();
    run("SPARRING_LOG=info $RUN -n 4 --emulate 1gbit,100mbit,1gbit -- $PERF --elements 256K --algo "
        "auto,hierarchical -n 3 -c 1");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.error, "links of hosts differ: h1 100 Mbit/s, h0 1000; "));
    run("SPARRING_LOG=info $RUN -n 6 --ranks-per-host 2 --emulate 40mbit+60mbit,1gbit+1gbit -- "
        "$PERF"
        " --elements 64K -n 3 -c 1");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.error, "links of hosts differ: h0 100 Mbit/s, h1 2000; "));
    run("SPARRING_LOG=info SPARRING_LINK_RATE=1gbit $RUN -n 4 --emulate 1gbit,100mbit -- $PERF -b 4"
        " -e 4 -n 1 && SPARRING_LOG=info $RUN -n 4 --emulate 100mbit -- $PERF -b 4 -e 4 -n 1");
    assert_int_equal(result.code, 0);
    assert_null(strstr(result.error, "links of hosts differ"));
    run("SPARRING_LINK_RATE=fast $RUN -n 2 -- $PERF -b 4 -e 4 -n 1");
    assert_int_not_equal(result.code, 0);
    assert_non_null(strstr(result.error, "SPARRING_LINK_RATE"));
}

/* One file of a trace; rank r has its large elements at r, r + 10, ... */
static void write_trace(const char *folder, uint32_t rank, uint32_t step, uint32_t ranks)
{
    struct {
        char magic[8];
        uint32_t version, rank, step, ranks;
        uint64_t elements;
    } header = {"SPRTRACE", 1, rank, step, ranks, 1000};
    float x[1000];
    char path[256];
    for (uint32_t i = 0; i < 1000; i++)
        x[i] = (float)(i % 10 == rank ? 100 : 1) + (float)(step + i % 7) / 8;
    memcpy(header.magic, "SPRTRACE", 8);
    snprintf(path, sizeof path, "%s/step%u.rank%u.f32", folder, step, rank);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(&header, sizeof header, 1, file), 1);
    assert_int_equal(fwrite(x, sizeof x, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

static void a_trace_is_replayed(void **state)
{
    char folder[] = "/tmp/sparring-trace-XXXXXX", line[512];
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (uint32_t step = 3; step < 12; step += 4)
        for (uint32_t rank = 0; rank < 2; rank++)
            write_trace(folder, rank, step, 2);
    static const char *const collectives[] = {"sparse_allreduce --result both",
                                              "compressed_allreduce"};
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "$RUN -n 2 -- $PERF %s --pattern trace:%s --density 10%% -n 7",
                 collectives[i], folder);
        measure(line);
        assert_int_equal(row_count, 1);
        assert_int_equal(rows[0].count, 1000);
        assert_string_equal(rows[0].wrong, "0");
    }
    snprintf(line, sizeof line,
             "$RUN -n 2 -- $PERF compressed_allreduce --pattern trace:%s --density 10%% -n 7 "
             "--buckets 3",
             folder);
    measure(line);
    assert_string_equal(rows[0].wrong, "0");
    snprintf(line, sizeof line,
             "$RUN -n 2 -- $PERF compressed_allreduce --pattern trace:%s --buckets 1001", folder);
    run(line);
    assert_int_equal(result.code, 1);
    assert_has(result.error, "1001 buckets of 1000 elements");
    snprintf(line, sizeof line, "$RUN -n 3 -- $PERF sparse_allreduce --pattern trace:%s", folder);
    run(line);
    assert_int_equal(result.code, 1);
    assert_has(result.error, "is a trace of 2 ranks, not of 3");
    snprintf(
        line, sizeof line,
        "truncate -s 99 %s/step7.rank1.f32; $RUN -n 2 -- $PERF sparse_allreduce --pattern trace:%s",
        folder, folder);
    run(line);
    assert_int_equal(result.code, 1);
    assert_has(result.error, "step7.rank1.f32 has another length than its header says");
    snprintf(line, sizeof line, "rm -r %s", folder);
    run(line);
}

static void a_seed_gives_the_same_bytes_again(void **state)
{
    struct row first;
    (void)state;
    measure("$RUN -n 2 -- $PERF sparse_allreduce -b 256K -e 256K -n 1 --seed 7");
    first = rows[0];
    measure("$RUN -n 2 -- $PERF sparse_allreduce -b 256K -e 256K -n 1 --seed 7");
    assert_string_equal(rows[0].ratio, first.ratio);
    measure("$RUN -n 2 -- $PERF sparse_allreduce -b 256K -e 256K -n 1 --seed 8");
    assert_string_not_equal(rows[0].ratio, first.ratio);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_usage_is_one_line_and_code_2),
        cmocka_unit_test(only_rank_0_complains_about_usage),
        cmocka_unit_test(help_goes_to_standard_output),
        cmocka_unit_test(one_rank_alone_works),
        cmocka_unit_test(every_algorithm_has_its_row),
        cmocka_unit_test(algorithms_of_a_list_have_their_rows_in_its_order),
        cmocka_unit_test(every_type_and_operation_is_right),
        cmocka_unit_test(copies_are_of_parts_or_of_the_root),
        cmocka_unit_test(a_sendrecv_is_of_the_rank_before),
        cmocka_unit_test(a_sparse_sum_is_exact_for_every_pattern),
        cmocka_unit_test(the_best_dense_row_stands_beside),
        cmocka_unit_test(settings_that_differ_are_named),
        cmocka_unit_test(json_is_json),
        cmocka_unit_test(interfaces_count_what_the_transport_counts),
        cmocka_unit_test(ranks_poll_where_each_has_a_cpu),
        cmocka_unit_test(racks_of_a_topology_file_are_levels),
        cmocka_unit_test(hosts_with_slower_links_own_less),
        cmocka_unit_test(a_trace_is_replayed),
        cmocka_unit_test(a_seed_gives_the_same_bytes_again),
    };
    int failed;

    perf_line_setup();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    shell_line_end();
    return failed;
}
