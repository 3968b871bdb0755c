/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The second stage of index coders: what it makes shorter comes back, and nothing is decompressed
 * that is longer than indices can be.
 */
#include "compress/indices/zstd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/unit/index_lists.h"

#define UNIVERSE 300000u
#define ROOM (8 * UNIVERSE)

static struct spr_rng rng;
static uint32_t list[UNIVERSE], again[UNIVERSE + SPR_INDEX_SLACK];
static uint8_t plain[ROOM], packed[ROOM];

#ifdef HAVE_ZSTD
#include <zstd.h>

static struct spr_index_zstd *z;

static int setup(void **state)
{
    (void)state;
    return spr_index_zstd_create(ROOM, &z);
}

static int teardown(void **state)
{
    (void)state;
    spr_index_zstd_free(z);
    assert_int_equal(spr_mem_live(), 0);
    return 0;
}

static spr_status decode(const uint8_t *bytes, size_t size, size_t n, const char **why)
{
    const void *inner;
    size_t inner_size;
    spr_status status =
        spr_index_zstd_decode(z, bytes, size, UNIVERSE, n, &inner, &inner_size, why);

    if (status == SPR_OK)
        status = spr_index_decode(inner, inner_size, UNIVERSE, n, again, why);
    return status;
}

static void lists_with_a_pattern_get_shorter_and_come_back(void **state)
{
    static const struct spr_index_options options = {.rate = 1e8};
    const struct spr_index_coder *coder;
    const char *why = NULL;
    unsigned shorter = 0;

    (void)state;
    for (int kind = 0; kind < LIST_KINDS; kind++) {
        size_t n = list_fill((enum list)kind, UNIVERSE, 20000, spr_rng_next(&rng), list);

        for (size_t i = 0; (coder = spr_index_coder_at(i)) != NULL; i++) {
            size_t size = spr_index_encode(coder, &options, list, n, UNIVERSE, plain);
            size_t less = spr_index_zstd_encode(z, 1 + 6 * (kind % 2), plain, size, packed);

            assert_false(spr_index_is_zstd(plain, size));
            if (less == 0)
                continue;
            shorter++;
            assert_true(less < size && spr_index_is_zstd(packed, less));
            assert_int_equal(decode(packed, less, n, &why), SPR_OK);
            assert_memory_equal(again, list, 4 * n);
            /* Without the second stage it is not taken for anything. */
            assert_int_equal(spr_index_decode(packed, less, UNIVERSE, n, again, &why),
                             SPR_ERR_PROTO);
        }
    }
    assert_true(shorter > 2 * LIST_KINDS);
}

static void what_does_not_get_shorter_stays_as_it_is(void **state)
{
    (void)state;
    for (size_t n = 0; n < 2000; n += 1 + n / 8) {
        for (size_t i = 0; i < n; i++)
            plain[i] = (uint8_t)spr_rng_next(&rng);
        memset(packed, 0x5a, n + 8);
        assert_int_equal(spr_index_zstd_encode(z, 3, plain, n, packed), 0);
        for (size_t i = n > 0 ? n - 1 : 0; i < n + 8; i++)
            assert_int_equal(packed[i], 0x5a);
    }
}

static void damaged_and_truncated_frames_are_refused(void **state)
{
    const struct spr_index_coder *coder = spr_index_coder_find("u32");
    size_t n = list_fill(LIST_RUNS, UNIVERSE, 3000, 1, list), accepted = 0;
    size_t size = spr_index_encode(coder, NULL, list, n, UNIVERSE, plain);
    size_t less = spr_index_zstd_encode(z, 1, plain, size, packed);
    const char *why;

    (void)state;
    assert_true(less > 0);
    for (size_t cut = 0; cut < less; cut++) {
        uint8_t *copy = malloc(cut + 1);
        assert_non_null(copy);
        memcpy(copy, packed, cut);
        assert_int_equal(decode(copy, cut, n, &why), SPR_ERR_PROTO);
        free(copy);
    }
    packed[less] = 0;
    assert_int_equal(decode(packed, less + 1, n, &why), SPR_ERR_PROTO);
    for (int round = 0; round < 2000; round++) {
        size_t at = spr_rng_below(&rng, less);
        uint8_t old = packed[at];

        packed[at] ^= (uint8_t)(1u << spr_rng_below(&rng, 8));
        accepted += decode(packed, less, n, &why) == SPR_OK;
        packed[at] = old;
    }
    /* Frames have no checksum here: some changes make another list. */
    assert_true(accepted < 1000);
}

/* A frame by libzstd around `bytes`, behind a first byte. */
static size_t frame(uint8_t first, const void *bytes, size_t size, uint8_t *out)
{
    *out = first;
    size_t n = ZSTD_compress(out + 1, ROOM - 1, bytes, size, 1);
    assert_false(ZSTD_isError(n));
    return n + 1;
}

static void refused(const uint8_t *bytes, size_t size, size_t n, const char *want)
{
    const char *why = "nothing";

    if (decode(bytes, size, n, &why) != SPR_ERR_PROTO || !strstr(why, want))
        fail_msg("\"%s\" instead of \"%s\"", why, want);
}

static void bombs_and_strange_frames_are_refused(void **state)
{
    static uint8_t zeros[1 << 22];
    size_t size;

    (void)state;
    /* 4 MiB in 200 bytes: more than this state has room for, than 5 indices can take. */
    size = frame(SPR_INDEX_ZSTD | SPR_INDEX_U32, zeros, sizeof(zeros), packed);
    assert_true(size < 2000);
    refused(packed, size, UNIVERSE, "more content");
    size = frame(SPR_INDEX_ZSTD | SPR_INDEX_U32, zeros, 21, packed);
    refused(packed, size, 5, "more content");
    size = frame(SPR_INDEX_ZSTD | SPR_INDEX_U32, zeros, 20, packed);
    refused(packed, size, 5, "not ascending");
    refused(packed, size, 0, "of none");
    refused(packed, size, UNIVERSE + 1, "more than there are");
    size = frame(SPR_INDEX_ZSTD | SPR_INDEX_IDS, zeros, 20, packed);
    refused(packed, size, 5, "unknown coder");
    size = frame(SPR_INDEX_U32, zeros, 20, packed);
    refused(packed, size, 5, "unknown coder");
    /* Two frames; one to be skipped; one that does not tell its size. */
    size = frame(SPR_INDEX_ZSTD | SPR_INDEX_U32, zeros, 4, packed);
    memcpy(packed + size, packed + 1, size - 1);
    refused(packed, 2 * size - 1, 1, "not one whole");
    memcpy(packed + 1, "\x50\x2a\x4d\x18\4\0\0\0abcd", 12);
    refused(packed, 13, 1, "no frame");
    ZSTD_CCtx *c = ZSTD_createCCtx();
    assert_non_null(c);
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0)));
    size_t n = ZSTD_compress2(c, packed + 1, ROOM - 1, zeros, 4);
    assert_false(ZSTD_isError(n));
    refused(packed, 1 + n, 1, "no content size");
    ZSTD_freeCCtx(c);
}

static void each_allocation_can_fail(void **state)
{
    struct spr_index_zstd *none = NULL;

    (void)state;
    spr_mem_fail_nth(1);
    assert_int_equal(spr_index_zstd_create(100, &none), SPR_ERR_NOMEM);
    assert_null(none);
    spr_index_zstd_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_with_a_pattern_get_shorter_and_come_back),
        cmocka_unit_test(what_does_not_get_shorter_stays_as_it_is),
        cmocka_unit_test(damaged_and_truncated_frames_are_refused),
        cmocka_unit_test(bombs_and_strange_frames_are_refused),
        cmocka_unit_test(each_allocation_can_fail),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    return cmocka_run_group_tests(tests, setup, teardown);
}

#else

static void without_libzstd_it_says_so(void **state)
{
    struct spr_index_zstd *z = NULL;
    const void *inner;
    const char *why = NULL;
    size_t n;

    (void)state;
    assert_int_equal(spr_index_zstd_create(100, &z), SPR_ERR_UNSUPPORTED);
    assert_int_equal(spr_index_zstd_encode(NULL, 1, plain, 100, packed), 0);
    assert_int_equal(spr_index_zstd_decode(NULL, packed, 100, UNIVERSE, 1, &inner, &n, &why),
                     SPR_ERR_UNSUPPORTED);
    assert_non_null(why);
    spr_index_zstd_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_libzstd_it_says_so)};

    rng.seed = spr_rng_test_seed();
    list[0] = again[0] = 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
