/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Frame headers: what is sealed passes, and nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "base/util.h"
#include "transport/frame.h"

static struct spr_frame a_frame(void)
{
    return (struct spr_frame){.type = SPR_FRAME_DATA,
                              .flags = SPR_FRAME_CRC,
                              .epoch = 3,
                              .sequence = 9,
                              .operation = 12,
                              .step = 4,
                              .descriptor = 0x1122334455667788,
                              .bytes = 1000,
                              .payload_crc = 77,
                              .consumed = 5,
                              .arg = 6,
                              .arg64 = 7};
}

static void a_sealed_header_passes(void **state)
{
    struct spr_frame f = a_frame();
    const char *why = NULL;

    (void)state;
    spr_frame_seal(&f);
    assert_int_equal(spr_frame_check(&f, &why), SPR_OK);
    assert_null(why);
    assert_int_equal(f.header_crc, spr_crc32c_scalar(0, &f, 60));
    assert_memory_equal(&f, "SPR1\x01\x01", 6); /* as docs and other implementations see it */
}

static void each_flipped_bit_is_found(void **state)
{
    (void)state;
    for (size_t bit = 0; bit < 8 * SPR_FRAME_BYTES; bit++) {
        struct spr_frame f = a_frame();
        const char *why = NULL;
        unsigned char *bytes = (unsigned char *)&f;

        spr_frame_seal(&f);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_true(spr_frame_check(&f, &why) < 0);
        assert_non_null(why);
    }
}

/* With a checksum that matches. */
static void what_a_header_may_not_say_is_refused(void **state)
{
    static const struct {
        const char *what;
        size_t offset;
        uint32_t value;
        size_t bytes;
        spr_status status;
    } cases[] = {
        {"type 0", 5, 0, 1, SPR_ERR_PROTO},
        {"type past the last", 5, SPR_FRAME_TYPES, 1, SPR_ERR_PROTO},
        {"unknown flag", 6, 2, 2, SPR_ERR_PROTO},
        {"reserved field", 56, 1, 4, SPR_ERR_PROTO},
        {"payload too long", 32, SPR_FRAME_MAX_PAYLOAD + 1, 4, SPR_ERR_PROTO},
        {"payload much too long", 32, UINT32_MAX, 4, SPR_ERR_PROTO},
        {"longest payload", 32, SPR_FRAME_MAX_PAYLOAD, 4, SPR_OK},
        {"no payload", 32, 0, 4, SPR_OK},
        {"payload checksum without its flag", 6, 0, 2, SPR_ERR_PROTO},
        {"last type", 5, SPR_FRAME_TYPES - 1, 1, SPR_OK},
        {"other version", 4, SPR_FRAME_VERSION + 1, 1, SPR_ERR_PROTO},
        {"other magic", 0, 0x20544547, 4, SPR_ERR_PROTO},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        struct spr_frame f = a_frame();
        const char *why = NULL;

        spr_frame_seal(&f);
        memcpy((unsigned char *)&f + cases[i].offset, &cases[i].value, cases[i].bytes);
        f.header_crc = spr_crc32c(0, &f, 60);
        if (spr_frame_check(&f, &why) != cases[i].status)
            fail_msg("%s", cases[i].what);
        assert_int_equal(why == NULL, cases[i].status == SPR_OK);
    }
}

static void zeroes_are_no_header(void **state)
{
    struct spr_frame f = {0};
    const char *why = NULL;

    (void)state;
    assert_int_equal(spr_frame_check(&f, &why), SPR_ERR_PROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sealed_header_passes),
        cmocka_unit_test(each_flipped_bit_is_found),
        cmocka_unit_test(what_a_header_may_not_say_is_refused),
        cmocka_unit_test(zeroes_are_no_header),
    };

    return cmocka_run_group_tests_name("transport/frame", tests, NULL, NULL);
}
