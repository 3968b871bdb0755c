/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/bootstrap/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

static bool is_x(const void *ctx, int rank) { return ((const char *)ctx)[rank] == 'x'; }
static bool even(const void *ctx, int rank)
{
    (void)ctx;
    return rank % 2 == 0;
}

static void sets_of_ranks_read_as_a_person_would_write_them(void **state)
{
    static const struct {
        const char *set, *text;
        int count;
    } cases[] = {
        {"", "", 0},
        {"....", "", 0},
        {"...x", "rank 3", 1},
        {"x..x", "ranks 0, 3", 2},
        {".xx.", "ranks 1, 2", 2},
        {"xxxx", "ranks 0-3", 4},
        {"...x.xxx", "ranks 3, 5-7", 4},
    };
    char text[64];

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        int n = spr_ranks_text(is_x, cases[i].set, (int)strlen(cases[i].set), text, sizeof(text));

        assert_string_equal(text, cases[i].text);
        assert_int_equal(n, cases[i].count);
    }
}

static void a_long_list_is_cut_but_counted(void **state)
{
    char small[16], nothing[4];

    (void)state;
    assert_int_equal(spr_ranks_text(even, NULL, 10000, small, sizeof(small)), 5000);
    assert_string_equal(small, "ranks 0, 2, ...");
    assert_int_equal(spr_ranks_text(even, NULL, 10000, nothing, sizeof(nothing)), 5000);
    assert_string_equal(nothing, "ran");
}

/* Half of a number names a rank that has nothing to do with it. */
static void no_number_is_cut(void **state)
{
    static const char dots[] = ", ...";
    char all[6000], text[700];

    (void)state;
    spr_ranks_text(even, NULL, 2000, all, sizeof(all));
    for (size_t bytes = 16; bytes <= sizeof(text); bytes++) {
        size_t length;

        memset(text, 'x', sizeof(text));
        spr_ranks_text(even, NULL, 2000, text, bytes);
        length = strnlen(text, sizeof(text));
        assert_true(length < bytes && length + strlen(", 1998") + strlen(dots) >= bytes);
        length -= strlen(dots);
        assert_string_equal(text + length, dots);
        assert_memory_equal(text, all, length);
        assert_int_equal(all[length], ',');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_of_ranks_read_as_a_person_would_write_them),
        cmocka_unit_test(a_long_list_is_cut_but_counted),
        cmocka_unit_test(no_number_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
