/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Logging. The environment is read once per process, so each case runs in a child of its own whose
 * standard error is caught in a file.
 */
#include "base/log.h"

#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT_BYTES (1 << 20)

static char folder[] = "/tmp/test_base_log.XXXXXX";
static char caught[TEXT_BYTES];

static void read_file(const char *path, char *text)
{
    FILE *file = fopen(path, "r");
    size_t n = 0;

    if (file) {
        n = fread(text, 1, TEXT_BYTES - 1, file);
        fclose(file);
    }
    text[n] = '\0';
}

/* Run a function with SPARRING_LOG and SPARRING_LOG_FILE set (NULL = unset); `caught` gets its
 * standard error. The function returns 0 when it is content. */
static void run(const char *level, const char *file, int (*body)(void))
{
    char path[64];
    int status = -1;
    pid_t child;

    snprintf(path, sizeof(path), "%s/stderr", folder);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen(path, "w", stderr))
            _exit(90);
        unsetenv("SPARRING_LOG");
        unsetenv("SPARRING_LOG_FILE");
        if (level)
            setenv("SPARRING_LOG", level, 1);
        if (file)
            setenv("SPARRING_LOG_FILE", file, 1);
        _exit(body());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    read_file(path, caught);
}

static size_t count_lines(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static int one_of_each_level(void)
{
    spr_err(SPR_SUB_NET, "an error");
    spr_warn(SPR_SUB_NET, "a warning");
    spr_info(SPR_SUB_NET, "an information");
    spr_debug(SPR_SUB_SHM, "a detail");
    spr_trace(SPR_SUB_NET, "a step");
    return 0;
}

static void warnings_are_shown_unless_asked_otherwise(void **state)
{
    (void)state;
    run(NULL, NULL, one_of_each_level);
    assert_int_equal(count_lines(caught), 2);
    assert_non_null(strstr(caught, " ERROR net: an error\n"));
    assert_non_null(strstr(caught, " WARN net: a warning\n"));
    run("", NULL, one_of_each_level);
    assert_int_equal(count_lines(caught), 2);
}

static void the_environment_sets_levels_per_subsystem(void **state)
{
    (void)state;
    run("info", NULL, one_of_each_level);
    assert_int_equal(count_lines(caught), 3);
    run("off", NULL, one_of_each_level);
    assert_int_equal(count_lines(caught), 0);
    run("error,shm=debug", NULL, one_of_each_level);
    assert_int_equal(count_lines(caught), 2);
    assert_non_null(strstr(caught, " DEBUG shm: a detail\n"));
    run("net=trace", NULL, one_of_each_level);
    assert_int_equal(count_lines(caught), 4);
}

static void a_wrong_level_is_reported_once_and_the_default_used(void **state)
{
    (void)state;
    run("loud", NULL, one_of_each_level);
    assert_int_equal(count_lines(caught), 3);
    assert_non_null(strstr(caught, "SPARRING_LOG='loud' not understood"));
}

static int configure_by_program(void)
{
    if (!spr_log_configure("error,net=info"))
        return 1;
    if (spr_log_enabled(SPR_SUB_SHM, SPR_LOG_WARN) || !spr_log_enabled(SPR_SUB_NET, SPR_LOG_INFO))
        return 2;
    if (spr_log_configure("nothing=info") || spr_log_configure("net=") || spr_log_configure("") ||
        spr_log_configure("info,") || spr_log_configure("=info"))
        return 3;
    if (spr_log_enabled(SPR_SUB_SHM, SPR_LOG_WARN) || !spr_log_enabled(SPR_SUB_NET, SPR_LOG_INFO))
        return 4;
    return one_of_each_level();
}

static void the_program_overrides_the_environment(void **state)
{
    (void)state;
    run("trace", NULL, configure_by_program);
    assert_int_equal(count_lines(caught), 3);
}

static int line_format(void)
{
    spr_warn(SPR_SUB_COLL, "early");
    spr_log_set_rank(7);
    errno = ENOENT;
    spr_warn(SPR_SUB_COLL, "cannot open: %m");
    return errno == ENOENT ? 0 : 1;
}

static void a_line_names_time_host_process_and_rank(void **state)
{
    long long seconds;
    char host[64], level[16], sub[16];
    int used = 0, process, rank;
    long micros;
    char *second;

    (void)state;
    run(NULL, NULL, line_format);
    assert_int_equal(count_lines(caught), 2);
    assert_non_null(strstr(caught, ":- WARN coll: early\n"));
    second = strchr(caught, '\n') + 1;
    assert_int_equal(sscanf(second, "[%lld.%6ld] %63[^:]:%d:%d %15s %15s %n", &seconds, &micros,
                            host, &process, &rank, level, sub, &used),
                     7);
    assert_true(seconds > 1600000000);
    assert_int_equal(rank, 7);
    assert_string_equal(level, "WARN");
    assert_string_equal(sub, "coll:");
    assert_string_equal(second + used, "cannot open: No such file or directory\n");
}

static int nasty_lines(void)
{
    char text[5000];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    spr_warn(SPR_SUB_NET, "%s", text);
    spr_warn(SPR_SUB_NET, "peer says 'a\n[1.0] h:1:0 ERROR net: forged\r\x1b[2J'");
    spr_warn(SPR_SUB_NET, "%s", "");
    return 0;
}

static void a_message_stays_one_line(void **state)
{
    char *end;

    (void)state;
    run(NULL, NULL, nasty_lines);
    assert_int_equal(count_lines(caught), 3);
    assert_null(strchr(caught, '\x1b'));
    assert_null(strchr(caught, '\r'));
    end = strchr(caught, '\n');
    assert_true(end - caught < 2048);
    assert_memory_equal(end - 3, "...", 3);
}

static int three_names(void)
{
    spr_warn(SPR_SUB_NET, "before the rank is known");
    spr_log_set_rank(3);
    spr_warn(SPR_SUB_NET, "as rank three");
    spr_log_set_rank(1);
    spr_warn(SPR_SUB_NET, "as rank one");
    return 0;
}

static void a_file_per_rank_begins_when_the_rank_is_known(void **state)
{
    static char text[TEXT_BYTES];
    char pattern[64], path[64];

    (void)state;
    snprintf(pattern, sizeof(pattern), "%s/rank%%r.log", folder);
    run(NULL, pattern, three_names);
    assert_int_equal(count_lines(caught), 1);
    assert_non_null(strstr(caught, "before the rank is known"));
    snprintf(path, sizeof(path), "%s/rank3.log", folder);
    read_file(path, text);
    assert_int_equal(count_lines(text), 1);
    assert_non_null(strstr(text, ":3 WARN net: as rank three\n"));
    unlink(path);
    snprintf(path, sizeof(path), "%s/rank1.log", folder);
    read_file(path, text);
    assert_int_equal(count_lines(text), 1);
    unlink(path);
}

static int log_from_two_processes(void)
{
    int status = 0;
    pid_t child;

    spr_warn(SPR_SUB_NET, "parent");
    child = fork();
    if (child == 0) {
        spr_warn(SPR_SUB_NET, "child");
        _exit(0);
    }
    waitpid(child, &status, 0);
    return status;
}

static void a_forked_child_gets_a_file_of_its_own(void **state)
{
    static char text[TEXT_BYTES];
    char pattern[64];
    glob_t found;

    (void)state;
    snprintf(pattern, sizeof(pattern), "%s/process%%p.log", folder);
    run(NULL, pattern, log_from_two_processes);
    assert_int_equal(count_lines(caught), 0);
    snprintf(pattern, sizeof(pattern), "%s/process*.log", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 2);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        read_file(found.gl_pathv[i], text);
        assert_int_equal(count_lines(text), 1);
        unlink(found.gl_pathv[i]);
    }
    globfree(&found);
}

static void a_file_that_cannot_be_written_falls_back_to_standard_error(void **state)
{
    (void)state;
    run(NULL, "/nonexistent/folder/log", one_of_each_level);
    assert_int_equal(count_lines(caught), 3);
    assert_non_null(strstr(caught, "cannot write SPARRING_LOG_FILE='/nonexistent/folder/log'"));
}

#define THREADS 8
#define LINES_PER_THREAD 50

static void *log_lines(void *barrier)
{
    pthread_barrier_wait(barrier);
    for (int i = 0; i < LINES_PER_THREAD; i++) {
        spr_warn(SPR_SUB_NET, "line %d of a thread that is as long as a line of a real program", i);
        spr_debug(SPR_SUB_NET, "not shown");
    }
    return NULL;
}

static int threads_start_together(void)
{
    pthread_barrier_t barrier;
    pthread_t threads[THREADS];

    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, log_lines, &barrier) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    return 0;
}

static void lines_of_threads_do_not_mix(void **state)
{
    (void)state;
    run(NULL, NULL, threads_start_together);
    assert_int_equal(count_lines(caught), THREADS * LINES_PER_THREAD);
    for (char *line = caught; *line; line = strchr(line, '\n') + 1) {
        assert_int_equal(*line, '[');
        assert_memory_equal(strchr(line, '\n') - 7, "program", 7);
    }
}

static void keep_line(void *ctx, enum spr_log_level level, const char *line)
{
    snprintf(ctx, 256, "%d %s", (int)level, strstr(line, "net: "));
}

static int to_a_sink(void)
{
    char line[256] = "";

    spr_log_set_sink(keep_line, line);
    spr_warn(SPR_SUB_NET, "into the sink");
    if (strcmp(line, "1 net: into the sink") != 0)
        return 1;
    spr_log_set_sink(NULL, NULL);
    spr_warn(SPR_SUB_NET, "back");
    return strcmp(line, "1 net: into the sink") != 0;
}

static void a_sink_takes_the_lines(void **state)
{
    (void)state;
    run(NULL, NULL, to_a_sink);
    assert_int_equal(count_lines(caught), 1);
    assert_non_null(strstr(caught, "back"));
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "%s/stderr", folder);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warnings_are_shown_unless_asked_otherwise),
        cmocka_unit_test(the_environment_sets_levels_per_subsystem),
        cmocka_unit_test(a_wrong_level_is_reported_once_and_the_default_used),
        cmocka_unit_test(the_program_overrides_the_environment),
        cmocka_unit_test(a_line_names_time_host_process_and_rank),
        cmocka_unit_test(a_message_stays_one_line),
        cmocka_unit_test(a_file_per_rank_begins_when_the_rank_is_known),
        cmocka_unit_test(a_forked_child_gets_a_file_of_its_own),
        cmocka_unit_test(a_file_that_cannot_be_written_falls_back_to_standard_error),
        cmocka_unit_test(lines_of_threads_do_not_mix),
        cmocka_unit_test(a_sink_takes_the_lines),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
