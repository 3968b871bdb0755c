/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Decisions of real processes: what `auto` took is written, another run follows it although it
 * would choose otherwise, and what cannot be followed is refused or warned of.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/multi/job.h"

#define SECONDS 60
enum { RANKS = 3, STEPS = 4, SHORT = 500, LONG = 30000 };

static char directory[] = "/tmp/sparring-decisions-XXXXXX";

struct setting {
    const char *name, *value;
};
static struct setting settings[2]; /* of each rank */
static const char *of_rank_1;      /* its SPARRING_DECISIONS; NULL: as all have it */
static const char *says;           /* what rank 0 says goes into this file; NULL: to the terminal */

static void prepare(struct job *job, int rank)
{
    (void)job;
    for (size_t i = 0; i < SPR_ARRAY_LEN(settings); i++)
        if (settings[i].name)
            setenv(settings[i].name, settings[i].value, 1);
    if (rank == 1 && of_rank_1)
        setenv("SPARRING_DECISIONS", of_rank_1, 1);
    if (rank == 0 && says)
        RANK_CHECK(freopen(says, "we", stderr));
}

static const char *path_of(const char *name)
{
    static char paths[8][64];
    static unsigned next;
    char *path = paths[next++ % SPR_ARRAY_LEN(paths)];

    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static const char *write_file(const char *name, const char *text)
{
    const char *path = path_of(name);
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* Without the line that names the version, if there is one. */
static const char *read_file(const char *name, char *text, size_t bytes)
{
    FILE *file = fopen(path_of(name), "re");
    size_t n;

    assert_non_null(file);
    n = fread(text, 1, bytes - 1, file);
    text[n] = '\0';
    fclose(file);
    return strncmp(text, "# Decisions of sparring ", 24) ? text : strchr(text, '\n') + 1;
}

static void sum(spr_comm *comm, size_t n, const char *algorithm)
{
    static float vector[LONG];
    spr_call_options options = SPR_CALL_OPTIONS_INIT;

    options.algorithm = algorithm;
    for (size_t i = 0; i < n; i++)
        vector[i] = (float)(spr_comm_rank(comm) + 1);
    RANK_CHECK(spr_allreduce(comm, vector, vector, n, SPR_FP32, SPR_SUM, &options) == SPR_OK);
    for (size_t i = 0; i < n; i++)
        RANK_CHECK(vector[i] == RANKS * (RANKS + 1) / 2);
}

/* Operations 0 .. 14, some of which name their algorithm. */
static void run_steps(struct job *job, int rank, spr_comm *comm)
{
    static float gradient[LONG];
    static uint16_t halves[SHORT];
    const spr_layout layout = {1, "w", 0, LONG, 1};
    spr_codec *codec;

    (void)job;
    (void)rank;
    for (int step = 0; step < STEPS; step++) {
        sum(comm, SHORT, NULL);
        sum(comm, SHORT, "direct");
    }
    sum(comm, LONG, "auto");
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    RANK_CHECK(spr_codec_create("topk:ratio=1%+fp16", &layout, 1, &codec) == SPR_OK);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < LONG; i++)
            gradient[i] = (float)((i * 7919) % 101 + step);
        RANK_CHECK(spr_compressed_allreduce(comm, codec, gradient, SPR_SUM, NULL) == SPR_OK);
    }
    spr_codec_destroy(codec);
    RANK_CHECK(spr_allreduce(comm, halves, halves, SHORT, SPR_FP16, SPR_SUM, NULL) == SPR_OK);
}

/* With these settings, count of them. */
static void run(void (*run_rank)(struct job *job, int rank, spr_comm *comm),
                const struct setting *with, size_t count)
{
    struct job job;

    memset(settings, 0, sizeof settings);
    memcpy(settings, with, count * sizeof *with);
    job_prepare = prepare;
    job_start(&job, RANKS, "auto", run_rank, NULL);
    job_expect_success(&job, SECONDS);
}

/* What rank 0 writes when all follow `path`, or for NULL have `trials`. */
static const char *log_of(void (*run_rank)(struct job *job, int rank, spr_comm *comm),
                          const char *path, const char *trials)
{
    static char text[1024];

    run(run_rank,
        (struct setting[]){{path ? "SPARRING_DECISIONS" : "SPARRING_TRIALS", path ? path : trials},
                           {"SPARRING_DECISIONS_LOG", path_of("log")}},
        2);
    return read_file("log", text, sizeof text);
}

static void another_run_takes_what_one_has_taken(void **state)
{
    static const char trials[] = "allreduce:3/1:500x4=tree@1e-6,allreduce:3/1:30000x4=halving@1e-6,"
                                 "sparse_allreduce:3/1:30000x4:300:fp16/fp16=ring@1e-6";
    const char *first;

    (void)state;
    first = log_of(run_steps, NULL, trials);
    assert_string_equal(first, "0 0 allreduce:3/1:500x4=tree # trials\n"
                               "0 8 allreduce:3/1:30000x4=halving # trials\n"
                               "0 9 barrier:3/1:0x4=dissemination # rules\n"
                               "0 10 sparse_allreduce:3/1:30000x4:300:fp16/fp16=ring # trials\n"
                               "0 14 allreduce:3/1:500x2=flat # rules\n");
    assert_int_equal(rename(path_of("log"), path_of("first")), 0);
    assert_string_equal(log_of(run_steps, path_of("first"), NULL),
                        "0 0 allreduce:3/1:500x4=tree # file\n"
                        "0 8 allreduce:3/1:30000x4=halving # file\n"
                        "0 9 barrier:3/1:0x4=dissemination # file\n"
                        "0 10 sparse_allreduce:3/1:30000x4:300:fp16/fp16=ring # file\n"
                        "0 14 allreduce:3/1:500x2=flat # file\n");
}

/* In mid-course. What is for other ranks, for another communicator, or by an algorithm that cannot
 * do it, is not followed, and warned of. */
static void a_change_is_followed_from_its_number_on(void **state)
{
    const char *path =
        write_file("changed", "# by hand\n\n"
                              "0 0 allreduce:3/1:500x4=tree\r\n"
                              "0 2 allreduce:3/1:500x4=doubling # model\n"
                              "0 4 allreduce:3/1:500x4=tree\n"
                              "1 0 allreduce:3/1:30000x4=tree\n"
                              "0 0 allreduce:4/1:30000x4=tree\n"
                              "0 9 barrier:3/1:0x4=dissemination\n"
                              "0 10 sparse_allreduce:3/1:30000x4:300:fp16/fp16=dense\n"
                              "0 14 allreduce:3/1:500x2=ring\n"
                              "  0 11 sparse_allreduce:3/1:30000x4:300:fp16/fp16=hosts");
    const char *log;
    char said[2048];

    (void)state;
    says = path_of("said");
    log = log_of(run_steps, path, NULL);
    says = NULL;
    assert_string_equal(log, "0 0 allreduce:3/1:500x4=tree # file\n"
                             "0 2 allreduce:3/1:500x4=doubling # file\n"
                             "0 4 allreduce:3/1:500x4=tree # file\n"
                             "0 8 allreduce:3/1:30000x4=direct # rules\n"
                             "0 9 barrier:3/1:0x4=dissemination # file\n"
                             "0 10 sparse_allreduce:3/1:30000x4:300:fp16/fp16=dense # file\n"
                             "0 10 allreduce:3/1:30000x4:fp16/fp16=direct # rules\n"
                             "0 11 sparse_allreduce:3/1:30000x4:300:fp16/fp16=hosts # file\n"
                             "0 14 allreduce:3/1:500x2=flat # rules\n");
    read_file("said", said, sizeof said);
    assert_non_null(strstr(said, "nothing usable for allreduce:3/1:30000x4, operation 8 of "
                                 "communicator 0: rules take direct"));
    assert_non_null(strstr(said, "nothing usable for allreduce:3/1:500x2, operation 14 of "
                                 "communicator 0: rules take flat"));
    assert_null(strstr(said, "barrier"));
}

static void expect_refusal(const char *with, const char *name, const char *text)
{
    spr_comm_options options = SPR_COMM_OPTIONS_INIT;
    spr_comm *comm = NULL;
    const char *path = text ? write_file(name, text) : path_of(name);
    char wanted[128];

    snprintf(wanted, sizeof wanted, with, path);
    setenv("SPARRING_DECISIONS", path, 1);
    options.size = 1;
    assert_int_equal(spr_comm_create(&options, &comm), SPR_ERR_INVALID);
    if (!strstr(spr_last_error(NULL), wanted))
        fail_msg("'%s' without '%s'", spr_last_error(NULL), wanted);
    unsetenv("SPARRING_DECISIONS");
}

static void what_is_no_decision_is_refused(void **state)
{
    static const char *const wrong[] = {"0 0 allreduce:3/1:500x4=none\n",
                                        "0 0 allreduce:3/1:500x4=tree@1e-6\n",
                                        "0 0 allreduce:3/1:500x4\n",
                                        "0 0 gather:3/1:500x4=tree\n",
                                        "0 allreduce:3/1:500x4=tree\n",
                                        "-1 0 allreduce:3/1:500x4=tree\n",
                                        "0 0\n",
                                        "0 99999999999999999999 allreduce:3/1:500x4=tree\n"};
    char comment[2000];

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(wrong); i++)
        expect_refusal("%s:1: '", "wrong", wrong[i]);
    expect_refusal("%s:3: '0 1 x' is no decision such as 0 7 allreduce:8/4:1024x4=flat", "wrong",
                   "# one\n0 0 allreduce:3/1:500x4=tree\n0 1 x # what\n");
    memset(comment, 'x', sizeof comment - 4);
    memcpy(comment, "# ", 2);
    memcpy(comment + sizeof comment - 4, "\ny\n", 4);
    expect_refusal("%s:2: 'y' is no decision", "wrong", comment);
    expect_refusal("SPARRING_DECISIONS=%s: No such file or directory", "nothing", NULL);
    expect_refusal("SPARRING_DECISIONS=%s: Is a directory", ".", NULL);
}

static void ranks_that_follow_other_files_are_refused(void **state)
{
    struct job job;

    (void)state;
    settings[0] =
        (struct setting){"SPARRING_DECISIONS", write_file("all", "0 0 allreduce:3/1:500x4=tree\n")};
    settings[1] = (struct setting){0};
    job_prepare = prepare;
    of_rank_1 = write_file("one", "0 0 allreduce:3/1:500x4=direct\n");
    job_start(&job, RANKS, "auto", run_steps, NULL);
    assert_true(job_wait(&job, SECONDS));
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(job.codes[r], 98); /* no communicator */
    /* The same text in another place is the same. */
    of_rank_1 = write_file("one", "0 0 allreduce:3/1:500x4=tree\n");
    run(run_steps, (struct setting[]){{"SPARRING_DECISIONS", path_of("all")}}, 1);
    of_rank_1 = NULL;
}

static void a_log_that_cannot_be_written_fails_at_once(void **state)
{
    spr_comm_options options = SPR_COMM_OPTIONS_INIT;
    spr_comm *comm = NULL;

    (void)state;
    options.size = 1;
    setenv("SPARRING_DECISIONS_LOG", path_of("nowhere/log"), 1);
    assert_int_equal(spr_comm_create(&options, &comm), SPR_ERR_SYSTEM);
    assert_non_null(strstr(spr_last_error(NULL), "nowhere/log: No such file or directory"));
    unsetenv("SPARRING_DECISIONS_LOG");
}

/* A call that fails on one rank before it is posted is no decision: the others do not count it. */
static void run_refused(struct job *job, int rank, spr_comm *comm)
{
    static float dense[LONG];
    uint32_t position = 7, outside = LONG;
    float value = 1;
    const spr_sparse good = {&position, &value, 1, 1}, bad = {&outside, &value, 1, 1};

    (void)job;
    if (rank == 1)
        RANK_CHECK(spr_sparse_allreduce(comm, &bad, LONG, dense, NULL, SPR_SUM, NULL) ==
                   SPR_ERR_INVALID);
    for (int i = 0; i < 3; i++) {
        RANK_CHECK(spr_sparse_allreduce(comm, &good, LONG, dense, NULL, SPR_SUM, NULL) == SPR_OK);
        RANK_CHECK(dense[7] == RANKS);
    }
}

static void a_call_that_was_not_posted_is_no_decision(void **state)
{
    const char *path = write_file("given", "0 0 sparse_allreduce:3/1:30000x4=dense\n"
                                           "0 0 allreduce:3/1:30000x4=tree\n"
                                           "0 2 sparse_allreduce:3/1:30000x4=doubling\n");

    (void)state;
    assert_string_equal(log_of(run_refused, path, NULL),
                        "0 0 sparse_allreduce:3/1:30000x4=dense # file\n"
                        "0 0 allreduce:3/1:30000x4=tree # file\n"
                        "0 2 sparse_allreduce:3/1:30000x4=doubling # file\n");
}

/* Coders of other widths may go other ways, each of them its own. */
static void run_coders(struct job *job, int rank, spr_comm *comm)
{
    static const char *const specs[] = {"int8", "int4"};
    static float gradient[LONG];
    const spr_layout layout = {1, "w", 0, LONG, 1};
    spr_codec *codec[SPR_ARRAY_LEN(specs)];

    (void)job;
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++)
        RANK_CHECK(spr_codec_create(specs[c], &layout, 1, &codec[c]) == SPR_OK);
    for (size_t step = 0; step < STEPS; step++) {
        spr_codec *now = codec[step % SPR_ARRAY_LEN(specs)];
        for (int i = 0; i < LONG; i++)
            gradient[i] = (float)((i * 31 + rank) % 17 - 8);
        RANK_CHECK(spr_compressed_allreduce(comm, now, gradient, SPR_SUM, NULL) == SPR_OK);
    }
    for (size_t c = 0; c < SPR_ARRAY_LEN(specs); c++)
        spr_codec_destroy(codec[c]);
}

static void coders_are_told_apart(void **state)
{
#define CODED "sparse_allreduce:3/1:30000x4:"
    const char *path = write_file("coders", "0 0 " CODED "coded8/coded8=direct\n"
                                            "0 0 " CODED "coded4/coded4=hosts\n");

    (void)state;
    assert_string_equal(log_of(run_coders, path, NULL),
                        "0 0 " CODED "coded8/coded8=direct # file\n"
                        "0 1 " CODED "coded4/coded4=hosts # file\n");
#undef CODED
}

/* Their second rounds are posted whenever the first are over, on each rank in another order. */
static void run_at_once(struct job *job, int rank, spr_comm *comm)
{
    enum { BUCKETS = 8, ROWS = 60, COLUMNS = 50, EACH = ROWS * COLUMNS };
    static float gradient[BUCKETS][EACH];
    const spr_layout layout = {1, "w", 0, ROWS, COLUMNS};
    spr_codec *codec[BUCKETS];
    spr_request *request[BUCKETS];

    (void)job;
    for (int b = 0; b < BUCKETS; b++)
        RANK_CHECK(spr_codec_create("powersgd:rank=2", &layout, 1, &codec[b]) == SPR_OK);
    for (int step = 0; step < 5; step++) {
        for (int b = 0; b < BUCKETS; b++) {
            for (int i = 0; i < EACH; i++)
                gradient[b][i] = (float)((i * 31 + b * rank) % 17 - 8);
            RANK_CHECK(spr_icompressed_allreduce(comm, codec[b], gradient[b], SPR_SUM, NULL,
                                                 &request[b]) == SPR_OK);
            if ((b + step) % RANKS == rank)
                job_pause_ms(3);
        }
        for (int b = 0; b < BUCKETS; b++)
            RANK_CHECK(spr_wait(&request[b], -1.0) == SPR_OK);
    }
    for (int b = 0; b < BUCKETS; b++)
        spr_codec_destroy(codec[b]);
}

static void second_rounds_are_numbered_alike_on_all_ranks(void **state)
{
    static const char *const algorithms[] = {"flat", "direct", "tree"};
    const char *met = log_of(run_at_once, NULL, ""), *path = path_of("turns");
    FILE *file = fopen(path, "we");
    char line[128];

    (void)state;
    assert_non_null(file);
    for (const char *at = met; *at; at += strcspn(at, "\n"), at += *at != '\0') {
        assert_int_equal(sscanf(at, "0 %*u %127[^=]", line), 1);
        for (int n = 0; n < 40; n++)
            fprintf(file, "0 %d %s=%s\n", n, line, algorithms[n % 3]);
    }
    assert_int_equal(fclose(file), 0);
    run(run_at_once, (struct setting[]){{"SPARRING_DECISIONS", path}}, 1);
}

static void the_file_that_is_followed_is_not_written(void **state)
{
    spr_comm_options options = SPR_COMM_OPTIONS_INIT;
    spr_comm *comm = NULL;
    const char *path = write_file("same", "0 0 allreduce:3/1:500x4=tree\n");
    char text[64];

    (void)state;
    options.size = 1;
    setenv("SPARRING_DECISIONS", path, 1);
    setenv("SPARRING_DECISIONS_LOG", path, 1);
    assert_int_equal(spr_comm_create(&options, &comm), SPR_ERR_INVALID);
    assert_non_null(strstr(spr_last_error(NULL), "is the file that is followed"));
    unsetenv("SPARRING_DECISIONS");
    unsetenv("SPARRING_DECISIONS_LOG");
    assert_string_equal(read_file("same", text, sizeof text), "0 0 allreduce:3/1:500x4=tree\n");
}

/* Of several communicators of a process each has its number; the first begins the file anew. */
static void run_two(struct job *job, int rank, spr_comm *comm)
{
    spr_comm_options options;
    spr_bootstrap bootstrap;
    spr_comm *second = NULL;

    sum(comm, SHORT, NULL);
    if (rank == 0)
        job_renew(job);
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    job_options(job, rank, &options, &bootstrap);
    RANK_CHECK(spr_comm_create(&options, &second) == SPR_OK);
    sum(second, LONG, NULL);
    sum(second, SHORT, NULL);
    spr_comm_destroy(second);
}

static void each_communicator_has_its_number(void **state)
{
    const char *path = write_file("both", "0 0 allreduce:3/1:500x4=tree\n"
                                          "1 0 allreduce:3/1:30000x4=doubling\n"
                                          "1 0 allreduce:3/1:500x4=halving\n");

    (void)state;
    write_file("log", "what was there\n");
    assert_string_equal(log_of(run_two, path, NULL), "0 0 allreduce:3/1:500x4=tree # file\n"
                                                     "0 1 barrier:3/1:0x4=dissemination # rules\n"
                                                     "1 0 allreduce:3/1:30000x4=doubling # file\n"
                                                     "1 1 allreduce:3/1:500x4=halving # file\n");
}

int main(void)
{
    static const char *const files[] = {"log",  "first", "changed", "wrong", "all",  "one",
                                        "both", "given", "turns",   "same",  "said", "coders"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_decision_is_refused),
        cmocka_unit_test(another_run_takes_what_one_has_taken),
        cmocka_unit_test(a_change_is_followed_from_its_number_on),
        cmocka_unit_test(ranks_that_follow_other_files_are_refused),
        cmocka_unit_test(a_call_that_was_not_posted_is_no_decision),
        cmocka_unit_test(coders_are_told_apart),
        cmocka_unit_test(second_rounds_are_numbered_alike_on_all_ranks),
        cmocka_unit_test(the_file_that_is_followed_is_not_written),
        cmocka_unit_test(each_communicator_has_its_number),
        /* This makes one, and those that are forked from here count it. */
        cmocka_unit_test(a_log_that_cannot_be_written_fails_at_once),
    };
    int failed;

    if (!mkdtemp(directory))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < SPR_ARRAY_LEN(files); i++)
        (void)unlink(path_of(files[i]));
    return rmdir(directory) != 0 || failed;
}
