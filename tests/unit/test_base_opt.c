/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One option at a time: parsing, ranges, printing, help.
 */
#include "base/opt.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

struct fields {
    bool flag;
    int count;
    size_t bytes;
    double time, rate, ratio, number;
    char *text;
    int choice;
};

enum { FLAG, COUNT, BYTES, TIME, RATE, RATIO, NUMBER, TEXT, CHOICE, OPTIONS };

static const char *const choices[] = {"auto", "ring", "direct", NULL};

#define FIELD(member) .offset = offsetof(struct fields, member)
static const struct spr_opt table[OPTIONS] = {
    [FLAG] = {"flag", "on", "a flag", SPR_OPT_BOOL, FIELD(flag)},
    [COUNT] = {"count", "3", "a number of things", SPR_OPT_INT, FIELD(count), .min = 1, .max = 10},
    [BYTES] = {"io.bytes", "64K", "a size", SPR_OPT_SIZE, FIELD(bytes)},
    [TIME] = {"time-out", "5ms", "a time", SPR_OPT_TIME, FIELD(time), .min = 0, .max = 60},
    [RATE] = {"rate", "10gbit", "a rate", SPR_OPT_RATE, FIELD(rate)},
    [RATIO] = {"ratio", "1%", "a ratio", SPR_OPT_RATIO, FIELD(ratio), .max = 1},
    [NUMBER] = {"number", "-2.5", "a number", SPR_OPT_DOUBLE, FIELD(number)},
    [TEXT] = {"text", "abc", "a text", SPR_OPT_STRING, FIELD(text)},
    [CHOICE] = {"a-long-name-for-choice", "ring", "an algorithm", SPR_OPT_ENUM, FIELD(choice),
                .choices = choices},
};

static void defaults_are_parsed_like_user_input(void **state)
{
    struct fields f = {0};

    (void)state;
    assert_int_equal(spr_opt_defaults(table, OPTIONS, &f, NULL), SPR_OK);
    assert_true(f.flag);
    assert_int_equal(f.count, 3);
    assert_int_equal(f.bytes, 65536);
    assert_true(f.time == 0.005);
    assert_true(f.rate == 1e10);
    assert_true(f.ratio == 0.01);
    assert_true(f.number == -2.5);
    assert_string_equal(f.text, "abc");
    assert_int_equal(f.choice, 1);
    assert_int_equal(spr_opt_defaults(table, OPTIONS, &f, NULL), SPR_OK);
    spr_opt_free(table, OPTIONS, &f);
    assert_null(f.text);
    spr_opt_free(table, OPTIONS, &f);
    assert_int_equal(spr_mem_live(), 0);
}

static void wrong_values_leave_the_field_and_say_what_is_allowed(void **state)
{
    static const struct {
        int option;
        const char *value, *text;
    } cases[] = {
        {FLAG, "maybe", "flag='maybe' is not valid: use on or off"},
        {FLAG, "", "flag='' is not valid: use on or off"},
        {COUNT, "0", "count='0' is out of range: 1 to 10"},
        {COUNT, "11", "count='11' is out of range: 1 to 10"},
        {COUNT, "3x", "count='3x' is not valid: use an integer"},
        {COUNT, "99999999999999999999",
         "count='99999999999999999999' is not valid: use an integer"},
        {BYTES, "-1", "io.bytes='-1' is not valid: use a size such as 4096, 64K, 1M or 2G"},
        {TIME, "2h", "time-out='2h' is out of range: 0 to 60"},
        {TIME, "5 ms", "time-out='5 ms' is not valid: use a time such as 10us, 5ms, 2s or 1m"},
        {RATE, "10gb", "rate='10gb' is not valid: use a rate such as 100mbit or 10gbit"},
        {RATIO, "101%", "ratio='101%' is out of range: 0 to 1"},
        {NUMBER, "nan", "number='nan' is not valid: use a number"},
        {CHOICE, "tree", "a-long-name-for-choice='tree' is not valid: use auto, ring or direct"},
    };
    struct fields f = {.text = NULL}, before;

    (void)state;
    spr_opt_defaults(table, OPTIONS, &f, NULL);
    before = f;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        struct spr_error error = {0};

        assert_int_equal(spr_opt_set(&table[cases[i].option], &f, cases[i].value, &error),
                         SPR_ERR_INVALID);
        assert_string_equal(error.text, cases[i].text);
        assert_memory_equal(&f, &before, sizeof(f));
        assert_int_equal(spr_opt_set(&table[cases[i].option], &f, cases[i].value, NULL),
                         SPR_ERR_INVALID);
    }
    spr_opt_free(table, OPTIONS, &f);
}

static void a_text_without_memory_stays_as_it_was(void **state)
{
    struct fields f = {0};

    (void)state;
    assert_int_equal(spr_opt_set(&table[TEXT], &f, "first", NULL), SPR_OK);
    spr_mem_fail_nth(1);
    assert_int_equal(spr_opt_set(&table[TEXT], &f, "second", NULL), SPR_ERR_NOMEM);
    assert_string_equal(f.text, "first");
    assert_int_equal(spr_opt_set(&table[TEXT], &f, "", NULL), SPR_OK);
    assert_string_equal(f.text, "");
    spr_opt_free(table, OPTIONS, &f);
    assert_int_equal(spr_mem_live(), 0);
}

static void flags_and_choices_ignore_case(void **state)
{
    static const char *const yes[] = {"y", "Yes", "ON", "true", "1"};
    static const char *const no[] = {"N", "no", "off", "FALSE", "0"};
    struct fields f = {0};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(yes); i++) {
        assert_int_equal(spr_opt_set(&table[FLAG], &f, yes[i], NULL), SPR_OK);
        assert_true(f.flag);
        assert_int_equal(spr_opt_set(&table[FLAG], &f, no[i], NULL), SPR_OK);
        assert_false(f.flag);
    }
    assert_int_equal(spr_opt_set(&table[CHOICE], &f, "Direct", NULL), SPR_OK);
    assert_int_equal(f.choice, 2);
}

static void sizes_are_binary(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"64K", 65536},
        {"64k", 65536},
        {"1M", 1u << 20},
        {"2G", 2ull << 30},
        {"1T", 1ull << 40},
        {"3KiB", 3072},
        {"3kb", 3072},
        {"7b", 7},
        {"inf", SIZE_MAX},
        {"16777215T", 16777215ull << 40},
        {"18446744073709551615", SIZE_MAX},
    };
    static const char *const bad[] = {
        "",     "K",   "-1", "+1",  " 1",       "1 K",       "1.5K",
        "0x10", "1KK", "1P", "1B8", "infinite", "16777216T", "18446744073709551616",
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(good); i++) {
        size_t bytes = 42;

        assert_true(spr_parse_size(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < SPR_ARRAY_LEN(bad); i++) {
        size_t bytes = 42;

        assert_false(spr_parse_size(bad[i], &bytes));
        assert_int_equal(bytes, 42);
    }
}

struct number_case {
    const char *text;
    double value; /* NAN: must be refused */
};

static void check_numbers(bool (*parse)(const char *, double *), const struct number_case *cases,
                          size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double value = 42;
        bool good = parse(cases[i].text, &value);

        if (isnan(cases[i].value)) {
            assert_false(good);
            assert_true(value == 42);
        } else {
            assert_true(good);
            assert_true(value == cases[i].value);
        }
    }
}

static void rates_are_decimal(void **state)
{
    static const struct number_case cases[] = {
        {"1", 1},         {"100kbit", 1e5},   {"1mbit", 1e6}, {"10gbit", 1e10}, {"2.5Gbit", 2.5e9},
        {"1tbit", 1e12},  {"0", 0},           {"8bit", 8},    {"10g", NAN},     {"-1mbit", NAN},
        {"1gbit ", NAN},  {"1e400", NAN},     {"inf", NAN},   {"", NAN},        {"mbit", NAN},
        {"0x10bit", NAN}, {"1e308gbit", NAN}, {"-0bit", NAN}, {"1gbyte", NAN},
    };

    (void)state;
    check_numbers(spr_parse_rate, cases, SPR_ARRAY_LEN(cases));
}

static void ratios_may_be_percent(void **state)
{
    static const struct number_case cases[] = {
        {"0.01", 0.01}, {"1%", 0.01},    {"0.1%", 0.001}, {"100%", 1},  {"0", 0},
        {"1e-3", 1e-3}, {"2.5%", 0.025}, {".5", 0.5},     {"1", 1},     {"%", NAN},
        {"1%%", NAN},   {"-1%", NAN},    {"0,01", NAN},   {"1 %", NAN},
    };

    (void)state;
    check_numbers(spr_parse_ratio, cases, SPR_ARRAY_LEN(cases));
}

static void times_are_seconds_or_have_a_unit(void **state)
{
    static const struct number_case cases[] = {
        {"2", 2},    {"2s", 2},    {"5ms", 0.005}, {"10us", 0.00001}, {"7ns", 0.000000007},
        {"1m", 60},  {"1min", 60}, {"2h", 7200},   {"0.5", 0.5},      {"-1", NAN},
        {"1d", NAN}, {"s", NAN},   {"1.5.5", NAN}, {"nan", NAN},      {"1msms", NAN},
    };

    (void)state;
    check_numbers(spr_parse_time, cases, SPR_ARRAY_LEN(cases));
}

static void numbers_do_not_depend_on_the_locale(void **state)
{
    static const char *const with_comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    char text[32];
    bool found = false;
    double value = 0;

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(with_comma) && !found; i++)
        found = setlocale(LC_ALL, with_comma[i]) != NULL;
    if (!found)
        skip();
    assert_true(spr_parse_double("0.25", &value));
    assert_string_equal(spr_print_double(0.25, text, sizeof(text)), "0.25");
    assert_string_equal(localeconv()->decimal_point, ",");
    setlocale(LC_ALL, "C");
    assert_true(value == 0.25);
}

static void a_printed_number_parses_back_to_its_bits(void **state)
{
    static const double values[] = {0,          1,     0.1,       1.0 / 3,
                                    -2.5,       1e300, 5e-324,    1e-10,
                                    123456.789, 2e10,  0.1 + 0.2, 1.7976931348623157e308};

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(values); i++) {
        double back = -1;
        char text[32];

        assert_true(spr_parse_double(spr_print_double(values[i], text, sizeof(text)), &back));
        assert_memory_equal(&back, &values[i], sizeof(back));
    }
}

static void a_printed_value_parses_back(void **state)
{
    static const struct {
        int option;
        const char *value, *printed;
    } cases[] = {
        {FLAG, "no", "off"},
        {FLAG, "1", "on"},
        {COUNT, "7", "7"},
        {BYTES, "65536", "64K"},
        {BYTES, "1025", "1025"},
        {BYTES, "0", "0"},
        {BYTES, "inf", "inf"},
        {BYTES, "1024G", "1T"},
        {TIME, "0.005", "5ms"},
        {TIME, "2", "2s"},
        {TIME, "1m", "60s"},
        {TIME, "0", "0"},
        {TIME, "1.5us", "1.5us"},
        {RATE, "10000mbit", "10gbit"},
        {RATE, "1500kbit", "1.5mbit"},
        {RATE, "7", "7bit"},
        {RATIO, "1%", "0.01"},
        {NUMBER, "1e-3", "0.001"},
        {TEXT, "a b", "a b"},
        {CHOICE, "DIRECT", "direct"},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        const struct spr_opt *opt = &table[cases[i].option];
        struct fields f = {0}, again = {0};
        char text[64], second[64];

        assert_int_equal(spr_opt_set(opt, &f, cases[i].value, NULL), SPR_OK);
        assert_string_equal(spr_opt_print(opt, &f, text, sizeof(text)), cases[i].printed);
        assert_int_equal(spr_opt_set(opt, &again, text, NULL), SPR_OK);
        assert_string_equal(spr_opt_print(opt, &again, second, sizeof(second)), text);
        assert_true(f.time == again.time && f.rate == again.rate);
        spr_opt_free(opt, 1, &f);
        spr_opt_free(opt, 1, &again);
    }
}

static void options_are_found_by_their_name(void **state)
{
    (void)state;
    assert_ptr_equal(spr_opt_find(table, OPTIONS, "time-out"), &table[TIME]);
    assert_null(spr_opt_find(table, OPTIONS, "timeout"));
    assert_null(spr_opt_find(table, 0, "time-out"));
}

static void help_shows_name_text_and_default(void **state)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    spr_opt_help(table, OPTIONS, out);
    fclose(out);
    assert_non_null(strstr(text, "  --count N                 a number of things [3]\n"));
    assert_non_null(strstr(text, "  --a-long-name-for-choice NAME\n"
                                 "                            an algorithm: auto, ring or direct "
                                 "[ring]\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_parsed_like_user_input),
        cmocka_unit_test(wrong_values_leave_the_field_and_say_what_is_allowed),
        cmocka_unit_test(a_text_without_memory_stays_as_it_was),
        cmocka_unit_test(flags_and_choices_ignore_case),
        cmocka_unit_test(sizes_are_binary),
        cmocka_unit_test(rates_are_decimal),
        cmocka_unit_test(ratios_may_be_percent),
        cmocka_unit_test(times_are_seconds_or_have_a_unit),
        cmocka_unit_test(numbers_do_not_depend_on_the_locale),
        cmocka_unit_test(a_printed_number_parses_back_to_its_bits),
        cmocka_unit_test(a_printed_value_parses_back),
        cmocka_unit_test(options_are_found_by_their_name),
        cmocka_unit_test(help_shows_name_text_and_default),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
