/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Where values come from: table, file, environment; and the warning about unknown variables.
 */
#include "base/opt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"

struct fields {
    int count;
    double time_out;
    char *text;
};

#define FIELD(member) .offset = offsetof(struct fields, member)
static const struct spr_opt table[] = {
    {"count", "3", "a number", SPR_OPT_INT, FIELD(count), .min = 1, .max = 10},
    {"time-out.io", "1s", "a time", SPR_OPT_TIME, FIELD(time_out)},
    {"text", NULL, "a text", SPR_OPT_STRING, FIELD(text)},
};
#define NOBODY 65534
#define OPTIONS SPR_ARRAY_LEN(table)

static char folder[] = "/tmp/test_base_opt.XXXXXX";
static char conf[64];

static void write_conf(const char *text)
{
    FILE *file = fopen(conf, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* A clean environment, with an empty home so that nobody's own file is read. */
static int clean(void **state)
{
    (void)state;
    unsetenv("SPARRING_COUNT");
    unsetenv("SPARRING_TIME_OUT_IO");
    unsetenv("SPARRING_TEXT");
    setenv("SPARRING_CONF_FILE", conf, 1);
    setenv("HOME", folder, 1);
    write_conf("");
    return 0;
}

static void the_environment_overrides_the_file_overrides_the_table(void **state)
{
    struct fields f = {0};

    (void)state;
    write_conf("# a comment\n\n  COUNT = 5 \nTIME_OUT_IO=250ms\r\nOTHER=of another table\n");
    setenv("SPARRING_COUNT", "7", 1);
    assert_int_equal(spr_opt_load(table, OPTIONS, &f, NULL), SPR_OK);
    assert_int_equal(f.count, 7);
    assert_true(f.time_out == 0.25);
    assert_null(f.text);
    unsetenv("SPARRING_COUNT");
    assert_int_equal(spr_opt_load(table, OPTIONS, &f, NULL), SPR_OK);
    assert_int_equal(f.count, 5);
    write_conf("");
    assert_int_equal(spr_opt_load(table, OPTIONS, &f, NULL), SPR_OK);
    assert_int_equal(f.count, 3);
    spr_opt_free(table, OPTIONS, &f);
}

static void a_line_of_a_shell_script_works_in_the_file(void **state)
{
    struct fields f = {0};

    (void)state;
    write_conf("SPARRING_TEXT=a = b # no comment\nSPARRING_COUNT=4");
    assert_int_equal(spr_opt_load(table, OPTIONS, &f, NULL), SPR_OK);
    assert_string_equal(f.text, "a = b # no comment");
    assert_int_equal(f.count, 4);
    spr_opt_free(table, OPTIONS, &f);
    assert_int_equal(spr_mem_live(), 0);
}

static void expect_error(const char *expected)
{
    struct spr_error error = {0};
    struct fields f = {0};

    assert_int_equal(spr_opt_load(table, OPTIONS, &f, &error), SPR_ERR_INVALID);
    assert_non_null(strstr(error.text, expected));
    spr_opt_free(table, OPTIONS, &f);
}

static void an_error_names_the_variable_or_the_line(void **state)
{
    static char long_line[6000];
    char expected[160];

    (void)state;
    setenv("SPARRING_COUNT", "11", 1);
    expect_error("SPARRING_COUNT: count='11' is out of range: 1 to 10");
    unsetenv("SPARRING_COUNT");
    write_conf("\nCOUNT=x\n");
    snprintf(expected, sizeof(expected), "%s:2: count='x' is not valid", conf);
    expect_error(expected);
    write_conf("COUNT 4\n");
    snprintf(expected, sizeof(expected), "%s:1: not a line NAME=value", conf);
    expect_error(expected);
    memset(long_line, 'A', sizeof(long_line) - 1);
    write_conf(long_line);
    expect_error(":1: the line is too long");
}

static void what_is_no_text_is_refused(void **state)
{
    FILE *file = fopen(conf, "w");
    char expected[160];

    (void)state;
    assert_non_null(file);
    fwrite("COUNT=4\nTEXT=a\0b\n", 1, 17, file);
    fclose(file);
    snprintf(expected, sizeof(expected), "%s:2: there is a NUL in the line", conf);
    expect_error(expected);
    setenv("SPARRING_CONF_FILE", "/dev/zero", 1);
    expect_error("/dev/zero:1: there is a NUL in the line");
}

/* Such as a pipe whose other end writes for ever. */
static void a_file_without_an_end_is_refused(void **state)
{
    FILE *file = fopen(conf, "w");

    (void)state;
    assert_non_null(file);
    for (int i = 0; i <= 100000; i++)
        fputs("#\n", file);
    fclose(file);
    expect_error(":100001: there are too many lines");
}

static void a_named_file_must_exist(void **state)
{
    struct fields f = {0};

    (void)state;
    setenv("SPARRING_CONF_FILE", "/nonexistent/sparring.conf", 1);
    expect_error("SPARRING_CONF_FILE='/nonexistent/sparring.conf': No such file or directory");
    setenv("SPARRING_CONF_FILE", folder, 1);
    expect_error("cannot read");
    setenv("SPARRING_CONF_FILE", "", 1);
    assert_int_equal(spr_opt_load(table, OPTIONS, &f, NULL), SPR_OK);
    assert_int_equal(f.count, 3);
    spr_opt_free(table, OPTIONS, &f);
}

static void the_file_in_the_home_directory_is_read(void **state)
{
    struct fields f = {0};
    char path[96];
    FILE *file;

    (void)state;
    unsetenv("SPARRING_CONF_FILE");
    snprintf(path, sizeof(path), "%s/.config", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/.config/sparring.conf", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs("COUNT=9\n", file);
    fclose(file);
    assert_int_equal(spr_opt_load(table, OPTIONS, &f, NULL), SPR_OK);
    assert_int_equal(f.count, 9);
    spr_opt_free(table, OPTIONS, &f);
    unlink(path);
    snprintf(path, sizeof(path), "%s/.config", folder);
    rmdir(path);
}

/* Only one that is not there is passed over. */
static void a_file_that_cannot_be_opened_is_an_error(void **state)
{
    uid_t user = geteuid();
    struct fields f = {0};
    char config[64], path[96], expected[160];

    (void)state;
    unsetenv("SPARRING_CONF_FILE");
    snprintf(config, sizeof(config), "%s/.config", folder);
    snprintf(path, sizeof(path), "%s/sparring.conf", config);
    mkdir(config, 0755);
    assert_int_equal(symlink("sparring.conf", path), 0);
    snprintf(expected, sizeof(expected), "cannot read %s: Too many", path);
    expect_error(expected);
    unlink(path);
    assert_int_equal(mknod(path, S_IFREG, 0), 0);
    chmod(folder, 0755);
    assert_true(user != 0 || seteuid(NOBODY) == 0); /* root may read all */
    snprintf(expected, sizeof(expected), "cannot read %s: Permission denied", path);
    expect_error(expected);
    assert_int_equal(seteuid(user), 0);
    chmod(config, 0);
    assert_true(user != 0 || seteuid(NOBODY) == 0);
    assert_int_equal(spr_opt_load(table, OPTIONS, &f, NULL), SPR_OK);
    spr_opt_free(table, OPTIONS, &f);
    assert_int_equal(seteuid(user), 0);
    chmod(config, 0700);
    unlink(path);
    rmdir(config);
}

static void every_allocation_may_fail(void **state)
{
    struct fields f = {0};
    spr_status status;

    (void)state;
    write_conf("TEXT=from the file\n");
    setenv("SPARRING_TEXT", "from the environment", 1);
    for (uint64_t nth = 1;; nth++) {
        spr_mem_fail_nth(nth);
        status = spr_opt_load(table, OPTIONS, &f, NULL);
        spr_mem_fail_nth(0);
        spr_opt_free(table, OPTIONS, &f);
        assert_int_equal(spr_mem_live(), 0);
        if (status == SPR_OK)
            break;
        assert_int_equal(status, SPR_ERR_NOMEM);
    }
}

static void keep_warnings(void *ctx, enum spr_log_level level, const char *line)
{
    char *text = ctx;

    if (level == SPR_LOG_WARN)
        snprintf(text + strlen(text), 2048 - strlen(text), "%s\n", strstr(line, "unknown"));
}

/* One test for all cases: the check runs once per process. */
static void unknown_variables_are_named_once(void **state)
{
    static const char *const extra[] = {"SPARRING_PERF_SIZE", "demo-mode", NULL};
    char text[2048] = "";

    (void)state;
    spr_opt_register(table, OPTIONS);
    spr_opt_register(table, OPTIONS);
    setenv("SPARRING_COUNT", "4", 1);
    setenv("SPARRING_TIME_OUT_IO", "4", 1);
    setenv("SPARRING_RANK", "0", 1);
    setenv("SPARRING_DEMO_MODE", "1", 1);
    setenv("SPARRING_PERF_SIZE", "1", 1);
    setenv("SPARRING_CUONT", "4", 1);
    setenv("SPARRING_LOGFILE", "x", 1);
    setenv("SPARRING_QQQQQQQQQ", "x", 1);
    setenv("SPARRINGX", "x", 1);
    assert_true(spr_log_configure("warn"));
    spr_log_set_sink(keep_warnings, text);
    spr_opt_warn_unknown_env(extra);
    assert_non_null(
        strstr(text, "unknown variable SPARRING_CUONT, did you mean SPARRING_COUNT?\n"));
    assert_non_null(
        strstr(text, "unknown variable SPARRING_LOGFILE, did you mean SPARRING_LOG_FILE?\n"));
    assert_non_null(strstr(text, "unknown variable SPARRING_QQQQQQQQQ\n"));
    assert_null(strstr(text, "SPARRINGX"));
    assert_null(strstr(text, "variable SPARRING_COUNT"));
    assert_null(strstr(text, "variable SPARRING_RANK"));
    assert_null(strstr(text, "variable SPARRING_DEMO"));
    assert_null(strstr(text, "variable SPARRING_PERF"));
    text[0] = '\0';
    spr_opt_warn_unknown_env(extra);
    assert_string_equal(text, "");
    spr_log_set_sink(NULL, NULL);
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(conf, sizeof(conf), "%s/conf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(conf);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_environment_overrides_the_file_overrides_the_table, clean),
        cmocka_unit_test_setup(a_line_of_a_shell_script_works_in_the_file, clean),
        cmocka_unit_test_setup(an_error_names_the_variable_or_the_line, clean),
        cmocka_unit_test_setup(what_is_no_text_is_refused, clean),
        cmocka_unit_test_setup(a_file_without_an_end_is_refused, clean),
        cmocka_unit_test_setup(a_named_file_must_exist, clean),
        cmocka_unit_test_setup(the_file_in_the_home_directory_is_read, clean),
        cmocka_unit_test_setup(a_file_that_cannot_be_opened_is_an_error, clean),
        cmocka_unit_test_setup(every_allocation_may_fail, clean),
        cmocka_unit_test_setup(unknown_variables_are_named_once, clean),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
