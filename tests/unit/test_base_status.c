/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Names of codes and types, and error texts.
 */
#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <sparring/types.h>

static const spr_status all_codes[] = {
    SPR_OK,          SPR_IN_PROGRESS,  SPR_ERR_INVALID,   SPR_ERR_UNSUPPORTED, SPR_ERR_NOMEM,
    SPR_ERR_TIMEOUT, SPR_ERR_CANCELED, SPR_ERR_MISMATCH,  SPR_ERR_NOT_FOUND,   SPR_ERR_TOO_SMALL,
    SPR_ERR_LINK,    SPR_ERR_PROTO,    SPR_ERR_CORRUPT,   SPR_ERR_RANK_LOST,   SPR_ERR_EXPELLED,
    SPR_ERR_REVOKED, SPR_ERR_DEADLINE, SPR_ERR_BOOTSTRAP, SPR_ERR_AUTH,        SPR_ERR_SYSTEM,
    SPR_ERR_FORKED,
};

static void every_code_has_its_own_name_and_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(all_codes); i++) {
        const char *name = spr_status_name(all_codes[i]), *text = spr_status_string(all_codes[i]);

        assert_int_equal(strncmp(name, "SPR_", 4), 0);
        assert_string_not_equal(name, "SPR_ERR_UNKNOWN");
        assert_string_not_equal(text, "unknown status");
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(name, spr_status_name(all_codes[j]));
            assert_string_not_equal(text, spr_status_string(all_codes[j]));
        }
    }
    assert_string_equal(spr_status_name(SPR_ERR_RANK_LOST), "SPR_ERR_RANK_LOST");
}

static void an_unknown_code_has_a_name_too(void **state)
{
    (void)state;
    assert_string_equal(spr_status_name(-12345), "SPR_ERR_UNKNOWN");
    assert_string_equal(spr_status_string(77), "unknown status");
}

static void a_type_is_found_by_the_name_that_is_printed(void **state)
{
    static const size_t sizes[SPR_DTYPE_COUNT] = {4, 8, 2, 2, 4, 8};

    (void)state;
    for (int d = 0; d < SPR_DTYPE_COUNT; d++) {
        spr_dtype found = -1;

        assert_int_equal(spr_dtype_parse(spr_dtype_name(d), &found), SPR_OK);
        assert_int_equal(found, d);
        assert_int_equal(spr_dtype_size(d), sizes[d]);
    }
    for (int op = 0; op < SPR_OP_COUNT; op++) {
        spr_op found = -1;

        assert_int_equal(spr_op_parse(spr_op_name(op), &found), SPR_OK);
        assert_int_equal(found, op);
    }
}

static void common_aliases_of_types_are_accepted(void **state)
{
    static const struct {
        const char *name;
        spr_dtype dtype;
    } cases[] = {
        {"float", SPR_FP32},    {"double", SPR_FP64}, {"half", SPR_FP16},
        {"bfloat16", SPR_BF16}, {"int", SPR_INT32},   {"i64", SPR_INT64},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        spr_dtype found = -1;

        assert_int_equal(spr_dtype_parse(cases[i].name, &found), SPR_OK);
        assert_int_equal(found, cases[i].dtype);
    }
}

static void wrong_types_and_reductions_change_nothing(void **state)
{
    spr_dtype dtype = 42;
    spr_op op = 43;

    (void)state;
    assert_int_equal(spr_dtype_parse("fp33", &dtype), SPR_ERR_INVALID);
    assert_int_equal(spr_dtype_parse("", &dtype), SPR_ERR_INVALID);
    assert_int_equal(spr_dtype_parse(NULL, &dtype), SPR_ERR_INVALID);
    assert_int_equal(spr_op_parse("product", &op), SPR_ERR_INVALID);
    assert_int_equal(spr_op_parse(NULL, &op), SPR_ERR_INVALID);
    assert_int_equal(dtype, 42);
    assert_int_equal(op, 43);
    assert_int_equal(spr_dtype_size(-1), 0);
    assert_int_equal(spr_dtype_size(SPR_DTYPE_COUNT), 0);
    assert_string_equal(spr_dtype_name(-1), "unknown");
    assert_string_equal(spr_op_name(SPR_OP_COUNT), "unknown");
}

static void the_first_cause_of_an_error_is_kept(void **state)
{
    struct spr_error error = {0};

    (void)state;
    assert_int_equal(spr_error_set(&error, SPR_ERR_LINK, 3, "rank %d is gone", 3), SPR_ERR_LINK);
    assert_int_equal(spr_error_set(&error, SPR_ERR_PROTO, 4, "later"), SPR_ERR_PROTO);
    assert_int_equal(spr_error_errno(&error, SPR_ERR_SYSTEM, 5, EPIPE, "later"), SPR_ERR_SYSTEM);
    assert_int_equal(error.status, SPR_ERR_LINK);
    assert_int_equal(error.rank, 3);
    assert_string_equal(error.text, "rank 3 is gone");
    spr_error_clear(&error);
    assert_int_equal(error.status, SPR_OK);
    assert_string_equal(error.text, "");
    spr_error_set(&error, SPR_ERR_PROTO, 4, "now");
    assert_string_equal(error.text, "now");
}

static void an_error_text_ends_with_the_text_of_errno(void **state)
{
    struct spr_error error = {0};

    (void)state;
    spr_error_errno(&error, SPR_ERR_SYSTEM, -1, ECONNREFUSED, "connect to %s", "h1:9");
    assert_string_equal(error.text, "connect to h1:9: Connection refused");
}

static void a_long_error_text_is_cut(void **state)
{
    struct spr_error error = {0};
    char text[2 * SPR_ERROR_TEXT_BYTES];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    spr_error_errno(&error, SPR_ERR_SYSTEM, -1, EIO, "%s", text);
    assert_int_equal(strlen(error.text), SPR_ERROR_TEXT_BYTES - 1);
}

static void no_place_for_an_error_is_fine(void **state)
{
    (void)state;
    assert_int_equal(spr_error_set(NULL, SPR_ERR_NOMEM, 0, "x"), SPR_ERR_NOMEM);
    assert_int_equal(spr_error_errno(NULL, SPR_ERR_NOMEM, 0, ENOMEM, "x"), SPR_ERR_NOMEM);
    spr_error_clear(NULL);
}

static void *set_own_error(void *main_error)
{
    struct spr_error *own = spr_thread_error();

    assert_ptr_not_equal(own, main_error);
    assert_int_equal(own->status, SPR_OK);
    spr_error_set(own, SPR_ERR_AUTH, 1, "thread");
    return NULL;
}

static void each_thread_has_its_own_error(void **state)
{
    pthread_t thread;

    (void)state;
    spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "main");
    assert_int_equal(pthread_create(&thread, NULL, set_own_error, spr_thread_error()), 0);
    pthread_join(thread, NULL);
    assert_string_equal(spr_thread_error()->text, "main");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_own_name_and_sentence),
        cmocka_unit_test(an_unknown_code_has_a_name_too),
        cmocka_unit_test(a_type_is_found_by_the_name_that_is_printed),
        cmocka_unit_test(common_aliases_of_types_are_accepted),
        cmocka_unit_test(wrong_types_and_reductions_change_nothing),
        cmocka_unit_test(the_first_cause_of_an_error_is_kept),
        cmocka_unit_test(an_error_text_ends_with_the_text_of_errno),
        cmocka_unit_test(a_long_error_text_is_cut),
        cmocka_unit_test(no_place_for_an_error_is_fine),
        cmocka_unit_test(each_thread_has_its_own_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
