/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Jobs that fail on purpose, and what sparring-run and sparring-trace say of them. The ranks are
 * this program again, with the word "rank", a fault and who has it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sparring/sparring.h>

#include "base/trace.h"

enum { TEXT_BYTES = 256 * 1024, OPERATIONS = 20, FAULT_AT = 12, ELEMENTS = 1000 };

/* A rank --------------------------------------------------------------------------------------- */

static void suffer(const char *fault, const char *when, float *data, spr_comm *comm,
                   const spr_call_options *options)
{
    spr_request *request = NULL;

    if (strcmp(when, "in") == 0 &&
        spr_iallreduce(comm, data, data, ELEMENTS, SPR_FP32, SPR_SUM, options, &request) != SPR_OK)
        exit(3);
    if (strcmp(fault, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(fault, "nan") == 0)
        data[7] = (float)NAN;
    else if (strcmp(fault, "stop") == 0)
        raise(SIGSTOP);
    else if (strcmp(fault, "sleep") == 0)
        sleep(20);
    else if (strcmp(fault, "leave") == 0) {
        spr_comm_destroy(comm);
        exit(0);
    } else if (strcmp(fault, "exit") == 0)
        _exit(7);
    if (request && spr_wait(&request, -1) != SPR_OK)
        exit(4);
}

static int rank_main(const char *fault, const char *when, int victim)
{
    static float data[ELEMENTS];
    spr_comm *comm = NULL;
    spr_status status = spr_comm_create(NULL, &comm);

    for (int i = 1; status == SPR_OK && i <= OPERATIONS; i++) {
        spr_call_options options = SPR_CALL_OPTIONS_INIT;
        char name[32];
        bool mine = i == FAULT_AT && spr_comm_rank(comm) == victim;
        snprintf(name, sizeof name, "layer %d", i);
        options.name = name;
        if (i == FAULT_AT && strcmp(fault, "rest") == 0)
            sleep(20);
        else if (mine && strcmp(fault, "mismatch") != 0)
            suffer(fault, when, data, comm, &options);
        if (!mine || strcmp(when, "in") != 0 || strcmp(fault, "mismatch") == 0)
            status = spr_allreduce(comm, data, data,
                                   mine && strcmp(fault, "mismatch") == 0 ? ELEMENTS / 2 : ELEMENTS,
                                   SPR_FP32, SPR_SUM, &options);
    }
    if (status)
        fprintf(stderr, "rank: %s: %s\n", spr_status_name(status), spr_last_error(comm));
    spr_comm_destroy(comm);
    return status != SPR_OK;
}

/* The test ------------------------------------------------------------------------------------- */

static char output[TEXT_BYTES], error[TEXT_BYTES], kept[256], dir[64];

static void read_back(int fd, char *text)
{
    ssize_t got = pread(fd, text, TEXT_BYTES - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    close(fd);
}

/* Runs a shell line; $RUN, $TRACE, $SELF and $DIR are set. */
static int run(const char *line)
{
    int out = memfd_create("output", MFD_CLOEXEC), err = memfd_create("error", MFD_CLOEXEC);
    int status = 0;
    pid_t pid;

    /* Ranks write there at once; what the kernel does not append, one may write over another's. */
    assert_true(out >= 0 && err >= 0);
    assert_true(fcntl(out, F_SETFL, O_APPEND) == 0 && fcntl(err, F_SETFL, O_APPEND) == 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(99);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    read_back(out, output);
    read_back(err, error);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' is missing in:\n%s", part, text);
}

static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = -2; /* . and .. */

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* The directory that the last run named. */
static void find_kept(void)
{
    const char *at = strstr(error, "the last events of the ranks are in ");

    if (!at || sscanf(at, "the last events of the ranks are in %255[^,\n]", kept) != 1)
        fail_msg("no directory was named:\n%s", error);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_trace.XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    setenv("DIR", dir, 1);
    setenv("XDG_RUNTIME_DIR", dir, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return run("rm -rf \"$DIR\"");
}

static void a_clean_end_leaves_nothing(void **state)
{
    (void)state;
    if (run("$RUN -n 3 -- $SELF rank none at 0") != 0)
        fail_msg("%s", error);
    assert_string_equal(error, "");
    assert_int_equal(entries(dir), 0);
    /* Nor does a job that has no communicator. */
    assert_int_equal(run("$RUN -n 2 -- sh -c 'ls -ld $SPARRING_TRACE_DIR; exit 5'"), 5);
    assert_has(output, "drwx------");
    assert_int_equal(entries(dir), 0);
    /* Not even when its keeper, the child of the process that the user sees, is killed. */
    assert_int_equal(run("$RUN -n 2 -- sleep 50 & p=$!; c=/proc/$p/task/$p/children;"
                         " until kid=$(cat $c) && [ \"$kid\" ] &&"
                         " [ \"$(cat /proc/${kid% }/task/${kid% }/children)\" ];"
                         " do sleep 0.05; done; kill -9 $kid; wait $p"),
                     137);
    assert_has(error, "the keeper of the ranks (pid ");
    assert_int_equal(entries(dir), 0);
}

/* sparring-run says it, and sparring-trace says the same afterwards. `what`: for fnmatch(3). */
static void expect_verdict(const char *settings, const char *fault, const char *when, int victim,
                           const char *what)
{
    char line[512], pattern[256];
    const char *verdict;

    snprintf(line, sizeof line, "%s $RUN -n 4 -- $SELF rank %s %s %d", settings, fault, when,
             victim);
    assert_int_not_equal(run(line), 0);
    verdict = strstr(error, "verdict: ");
    if (!verdict)
        fail_msg("%s %s: no verdict in:\n%s", fault, when, error);
    verdict += strlen("verdict: ");
    snprintf(line, sizeof line, "%.*s", (int)strcspn(verdict, "\n"), verdict);
    snprintf(pattern, sizeof pattern, "rank %d (host *): %s*", victim, what);
    if (fnmatch(pattern, line, 0) != 0)
        fail_msg("%s %s: not '%s':\n%s", fault, when, pattern, error);
    find_kept();
    setenv("KEPT", kept, 1);
    assert_int_equal(run("$TRACE verdict $KEPT"), 0);
    if (strncmp(output, line, strlen(line)) != 0)
        fail_msg("first said:\n%s\nthen:\n%s", line, output);
    assert_has(output, "rank 3");
    assert_int_equal(run("rm -r $KEPT"), 0);
    assert_int_equal(entries(dir), 0);
}

/* Where the others have not come as far, the operation has no name yet. */
static void a_killed_rank_is_named(void **state)
{
    (void)state;
    expect_verdict("", "kill", "at", 2, "dead before * #12*: its process was killed by signal 9");
    expect_verdict("SPARRING_TRANSPORTS=epoll", "kill", "in", 0,
                   "dead *: its process was killed by signal 9");
    expect_verdict("", "exit", "at", 3, "dead before * #12*: its process exited with code 7");
}

static void a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    expect_verdict("", "leave", "at", 1, "left before * #12");
}

static void a_rank_with_a_nan_is_named(void **state)
{
    (void)state;
    expect_verdict(
        "SPARRING_CHECK_FINITE=yes", "nan", "at", 1,
        "gave up before * #12*: * element 7 of the input of allreduce 'layer 12' is *nan");
}

/* Nobody needed it: the process says more than its file. */
static void a_rank_that_never_came_in_is_named(void **state)
{
    (void)state;
    assert_int_not_equal(run("$RUN -n 2 -e SPARRING_TRANSPORTS=none -- $SELF rank sleep at 1"), 0);
    assert_has(error, "verdict: rank ");
    assert_has(error, "dead before operation #1: its process exited with code ");
    find_kept();
    assert_int_equal(run("rm -r $DIR/*"), 0);
}

static void a_late_rank_is_named(void **state)
{
    (void)state;
    expect_verdict("SPARRING_TIMEOUT=0.5", "sleep", "at", 1,
                   "late in compute: it had not posted allreduce #12 'layer 12'");
    expect_verdict("SPARRING_TRANSPORTS=epoll SPARRING_TIMEOUT=0.5", "sleep", "at", 0,
                   "late in compute: it had not posted allreduce #12 'layer 12'");
}

static void a_mismatched_rank_is_named(void **state)
{
    (void)state;
    expect_verdict("", "mismatch", "at", 2,
                   "mismatched in operation #12: it called allreduce of 500 fp32");
}

static void a_stopped_rank_is_named(void **state)
{
    (void)state;
    expect_verdict("SPARRING_TIMEOUT=0.5", "stop", "at", 2, "stopped before allreduce #12");
    expect_verdict("SPARRING_TIMEOUT=0.5", "stop", "in", 1, "stopped ");
}

/* Nobody reports anything: the time is over for the whole job, or somebody has enough. */
static void a_job_that_hangs_is_explained(void **state)
{
    static const char *const lines[] = {"$RUN -n 3 --timeout 4 -- $SELF rank sleep at 1",
                                        "timeout -s INT 4 $RUN -n 3 -- $SELF rank sleep at 1"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run(lines[i]), 124);
        assert_has(error, "verdict: rank 1 (host ");
        assert_has(error, "late in compute: it had not posted allreduce #12");
        assert_has(error, "in which 2 ranks waited ");
    }
    assert_int_equal(run("$RUN -n 2 --timeout 4 -- $SELF rank sleep at 1"), 124);
    assert_has(error, "in which 1 rank waited ");
    /* One that is well and is interrupted leaves nothing. */
    assert_int_equal(run("rm -r $DIR/*; timeout -s INT 2 $RUN -n 3 -- $SELF rank rest at 1"), 124);
    assert_int_equal(entries(dir), 0);
}

/* Failed jobs do not fill the memory. */
static void the_newest_directories_are_kept(void **state)
{
    (void)state;
    run("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do "
        "$RUN -n 1 -- $SELF rank kill at 0; done; mkdir $DIR/sparring-abcdef");
    assert_int_equal(entries(dir), 17);
    /* Without the file of their keepers, as if these had been killed. */
    run("rm $DIR/*/ranks; $RUN -n 1 -- $SELF rank kill at 0");
    assert_int_equal(entries(dir), 17);
    find_kept();
    assert_int_equal(entries(kept), 2);
}

static void a_named_directory_is_kept(void **state)
{
    (void)state;
    assert_int_equal(run("$RUN -n 3 --trace-dir $DIR/kept -- $SELF rank none at 0"), 0);
    assert_string_equal(error, "");
    assert_int_equal(run("$TRACE verdict $DIR/kept"), 0);
    assert_has(output, "no failure is recorded");
    assert_int_equal(run("$TRACE dump $DIR/kept --rank 1 --last 5"), 0);
    assert_has(output, "rank 1 complete  op=20 status=SPR_OK");
    assert_null(strstr(output, "rank 0"));
    assert_int_equal(run("$TRACE dump $DIR/kept/rank-2.trace"), 0);
    assert_has(output, "rank 2 post      op=20 allreduce elements=1000 dtype=fp32 reduction=sum");
    assert_has(output, "rank 2 name      'layer 20'");
    assert_int_equal(run("$TRACE json $DIR/kept | python3 -m json.tool >/dev/null"), 0);
    assert_int_equal(run("$RUN -n 2 --trace-dir none -- sh -c 'echo [$SPARRING_TRACE_DIR]'"), 0);
    assert_string_equal(output, "[]\n[]\n");
    /* The next job takes the files over; those of ranks that it has not are no part of it. */
    assert_int_equal(run("$RUN -n 2 --trace-dir $DIR/kept -- $SELF rank none at 0"), 0);
    assert_int_equal(run("$TRACE verdict $DIR/kept"), 0);
    assert_has(output, "1 file of other communicators left out");
    /* ... nor is any of them the reason why one failed that has none. */
    assert_int_equal(run("$RUN -n 2 --trace-dir $DIR/kept -- sh -c 'exit 3'"), 3);
    assert_null(strstr(error, "verdict"));
    /* A job in a rank of another one has a directory of its own. */
    assert_int_equal(run("$RUN -n 1 --trace-dir $DIR/kept -- $RUN -n 1 -- sh -c "
                         "'echo $SPARRING_TRACE_DIR'"),
                     0);
    assert_null(strstr(output, "/kept"));
    assert_has(output, "/sparring-");
}

static void bad_input_gets_one_line(void **state)
{
    static const struct {
        const char *line;
        int code;
        const char *text;
    } cases[] = {
        {"$TRACE", 2, "what to do? verdict, dump or json"},
        {"$TRACE look $DIR", 2, "unknown command look"},
        {"$TRACE verdict", 2, "one directory or file is wanted after verdict"},
        {"$TRACE dump --rank x $DIR", 2, "--rank wants a rank, not 'x'"},
        {"$TRACE -xy", 2, "unknown option -x"},
        {"$TRACE dump --last", 2, "a value is missing after --last"},
        {"$TRACE json --last 3 $DIR", 2, "--rank and --last are for dump, not for json"},
        {"$TRACE --frobnicate", 2, "unknown option --frobnicate"},
        {"$TRACE verdict $DIR/no", 1, "no: No such file or directory"},
        {"$TRACE verdict $DIR", 1, "there is no rank-R.trace in this directory"},
        {"$TRACE dump /dev/null", 1, "this is not a flight recorder of Sparring"},
        {"$TRACE dump /dev/zero", 1, "this is not a flight recorder of Sparring"},
        {"mkfifo $DIR/rank-0.trace; $TRACE dump $DIR", 1, "this is not a flight recorder"},
        {"rm $DIR/rank-0.trace; echo hello >$DIR/rank-0.trace; $TRACE verdict $DIR", 1,
         "rank-0.trace: this is not a flight recorder of Sparring"},
        {"$RUN -n 1 --trace-dir $DIR/t -- $SELF rank none at 0; "
         "head -c 9999 $DIR/t/rank-0.trace >$DIR/rank-0.trace; $TRACE dump $DIR",
         1, "cut off: 9999 of 167936 bytes"},
        {"$TRACE dump $DIR/t --rank 1", 1, "there is no file of rank 1"},
        {"cp $DIR/t/rank-0.trace $DIR; printf '\\2' | dd of=$DIR/rank-0.trace bs=1 seek=8 "
         "conv=notrunc status=none; $TRACE dump $DIR",
         1, "another version of Sparring (format 2, here 1)"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = run(cases[i].line);
        if (code != cases[i].code)
            fail_msg("%s: exit code %d\n%s", cases[i].line, code, error);
        assert_has(error, cases[i].text);
        if (strchr(error, '\n') != error + strlen(error) - 1)
            fail_msg("more than one line:\n%s", error);
    }
    if (getuid() != 0) {
        assert_int_equal(run("chmod 0 $DIR/rank-0.trace; $TRACE dump $DIR"), 1);
        assert_has(error, "Permission denied");
    }
}

/* The others are read all the same. */
static void a_file_that_cannot_be_used_is_named(void **state)
{
    static const char *const commands[] = {"verdict", "dump", "json"};
    char line[64];

    (void)state;
    run("$RUN -n 2 --trace-dir $DIR/t -- $SELF rank kill at 1; truncate -s 5000 "
        "$DIR/t/rank-1.trace");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        snprintf(line, sizeof line, "$TRACE %s $DIR/t", commands[i]);
        assert_int_equal(run(line), 0);
        assert_has(error, "/t/rank-1.trace: cut off: 5000 of 167936 bytes\n");
        assert_ptr_equal(strchr(error, '\n'), error + strlen(error) - 1);
    }
    assert_int_equal(run("ln -sf rank-1.trace $DIR/t/rank-1.trace; $TRACE verdict $DIR/t"), 0);
    assert_has(error, "/t/rank-1.trace: Too many levels of symbolic links\n");
    assert_has(output, "rank 1: dead without a usable file here: its process was killed");
    assert_has(output, "rank 1: no usable file");
}

/* Without sparring-run: a directory that cannot be used costs a line and nothing else. */
static void an_unusable_directory_is_a_warning(void **state)
{
    (void)state;
    assert_int_equal(run("SPARRING_TRACE_DIR=/dev/null $SELF rank none at 0"), 0);
    assert_has(error, "cannot keep the flight recorder in SPARRING_TRACE_DIR /dev/null: Not a "
                      "directory");
    assert_int_equal(run("SPARRING_TRACE_DIR=$DIR/new $SELF rank none at 0"), 0);
    assert_string_equal(error, "");
    assert_int_equal(run("$TRACE dump $DIR/new"), 0);
    assert_has(output, "rank 0 complete  op=20");
}

int main(int argc, char **argv)
{
    char path[4096];
    const char *build = getenv("top_builddir");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_clean_end_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_killed_rank_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rank_that_leaves_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rank_with_a_nan_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_rank_that_never_came_in_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_late_rank_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_mismatched_rank_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stopped_rank_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_job_that_hangs_is_explained, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_newest_directories_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_named_directory_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bad_input_gets_one_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_used_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unusable_directory_is_a_warning, set_up, tear_down),
    };

    if (argc == 5 && strcmp(argv[1], "rank") == 0)
        return rank_main(argv[2], argv[3], (int)strtol(argv[4], NULL, 10));
    build = build ? build : ".";
    snprintf(path, sizeof path, "%s/tools/sparring-run", build);
    setenv("RUN", path, 1);
    snprintf(path, sizeof path, "%s/tools/sparring-trace", build);
    setenv("TRACE", path, 1);
    if (readlink("/proc/self/exe", path, sizeof path - 1) > 0)
        setenv("SELF", realpath("/proc/self/exe", path), 1);
    unsetenv("SPARRING_TRACE_DIR");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
