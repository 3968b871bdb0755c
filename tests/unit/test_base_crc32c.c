/* SPDX-License-Identifier: BSD-2-Clause
 *
 * CRC-32C: published values and the definition for the version without instructions for CRCs, and
 * that one as the oracle for hardware.
 */
#include "base/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "base/util.h"

#define BUFFER_BYTES 40000

typedef uint32_t (*crc_fn)(uint32_t crc, const void *data, size_t bytes);

static unsigned char buffer[BUFFER_BYTES];

/* Bit by bit, from the definition. */
static uint32_t definition(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *p = data;

    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* RFC 3720 (iSCSI), appendix B.4, and the check value of the CRC catalogue. */
static void check_published(crc_fn crc)
{
    unsigned char data[32];

    assert_int_equal(crc(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(crc(0, "", 0), 0);
    assert_int_equal(crc(0x1234u, NULL, 0), 0x1234u);
    memset(data, 0, sizeof(data));
    assert_int_equal(crc(0, data, sizeof(data)), 0x8a9136aau);
    memset(data, 0xff, sizeof(data));
    assert_int_equal(crc(0, data, sizeof(data)), 0x62a8ab43u);
    for (unsigned i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)i;
    assert_int_equal(crc(0, data, sizeof(data)), 0x46dd794eu);
    for (unsigned i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(31 - i);
    assert_int_equal(crc(0, data, sizeof(data)), 0x113fdb5cu);
}

static void published_values_come_out(void **state)
{
    (void)state;
    check_published(definition);
    check_published(spr_crc32c_scalar);
    check_published(spr_crc32c);
    check_published(spr_crc32c_cold);
}

static void folds_and_tables_follow_the_definition(void **state)
{
    (void)state;
    for (size_t n = 0; n < 600; n++)
        assert_int_equal(spr_crc32c_scalar((uint32_t)n, buffer, n),
                         definition((uint32_t)n, buffer, n));
}

static void check_around(size_t bytes)
{
    for (size_t n = bytes - 9; n <= bytes + 9; n++) {
        assert_int_equal(spr_crc32c(1, buffer + 3, n), spr_crc32c_scalar(1, buffer + 3, n));
        assert_int_equal(spr_crc32c_cold(1, buffer + 3, n), spr_crc32c_scalar(1, buffer + 3, n));
    }
}

/* Lengths around the sizes of the streams and blocks, at all alignments. */
static void check_against_scalar(uint64_t seed)
{
    struct spr_rng rng = {.seed = seed};

    for (size_t n = 0; n < 2000; n++)
        assert_int_equal(spr_crc32c(0, buffer, n), spr_crc32c_scalar(0, buffer, n));
    for (size_t i = 1; i <= 4; i++) {
        check_around(i * 6144);
        check_around(i * 4352);
    }
    for (int i = 0; i < 2000; i++) {
        size_t start = (size_t)spr_rng_below(&rng, 64);
        size_t n = (size_t)spr_rng_below(&rng, BUFFER_BYTES - start);
        uint32_t crc = (uint32_t)spr_rng_next(&rng);

        assert_int_equal(spr_crc32c(crc, buffer + start, n),
                         spr_crc32c_scalar(crc, buffer + start, n));
        assert_int_equal(spr_crc32c_cold(crc, buffer + start, n),
                         spr_crc32c_scalar(crc, buffer + start, n));
    }
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    static const uint32_t sets[] = {0, SPR_CPU_SSE42, SPR_CPU_SSE42 | SPR_CPU_PCLMUL, UINT32_MAX};
    uint64_t seed = spr_rng_test_seed();

    (void)state;
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < BUFFER_BYTES; i++)
        buffer[i] = (unsigned char)spr_rng_u64(seed, i);
    for (size_t i = 0; i < SPR_ARRAY_LEN(sets); i++) {
        uint32_t usable;

        spr_cpu_override(UINT32_MAX);
        usable = spr_cpu_features();
        if (sets[i] != UINT32_MAX)
            spr_cpu_override(sets[i] & usable);
        check_against_scalar(seed + i);
    }
    spr_cpu_override(UINT32_MAX);
}

static void a_checksum_may_be_continued_at_any_byte(void **state)
{
    uint32_t whole = spr_crc32c(0, buffer, 13000);

    (void)state;
    for (size_t cut = 0; cut <= 13000; cut += 61)
        assert_int_equal(spr_crc32c(spr_crc32c(0, buffer, cut), buffer + cut, 13000 - cut), whole);
}

static void a_flipped_bit_is_seen(void **state)
{
    uint32_t good = spr_crc32c(0, buffer, 8192);

    (void)state;
    for (size_t bit = 0; bit < 8192 * 8; bit += 37) {
        buffer[bit / 8] ^= (unsigned char)(1 << (bit % 8));
        assert_int_not_equal(spr_crc32c(0, buffer, 8192), good);
        buffer[bit / 8] ^= (unsigned char)(1 << (bit % 8));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_values_come_out),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(folds_and_tables_follow_the_definition),
        cmocka_unit_test(a_checksum_may_be_continued_at_any_byte),
        cmocka_unit_test(a_flipped_bit_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
