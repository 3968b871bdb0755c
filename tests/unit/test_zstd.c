/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compressed chunks: what gets shorter comes back to the bit, what does not stays as it is, and
 * nothing is decompressed that is longer than its chunk can be.
 */
#include "compress/zstd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"

enum { ROOM = 1000000, HEAD = SPR_CHUNK_HEADER_BYTES };

static uint8_t plain[ROOM], packed[ROOM], again[ROOM];

#ifdef HAVE_ZSTD
#include <zstd.h>

#include "compress/chunk_layout.h"

enum { N = 200000, WINDOWS = 4 };

static struct spr_rng rng;
static struct spr_zstd *z;

static int setup(void **state)
{
    (void)state;
    return spr_zstd_create(3, &z);
}

static int teardown(void **state)
{
    (void)state;
    spr_zstd_free(z);
    assert_int_equal(spr_mem_live(), 0);
    return 0;
}

/* A chunk with one in `every` positions, of values whose magnitudes are near each other. */
static size_t make_chunk(enum spr_vtype v, unsigned every, bool patterned)
{
    static _Alignas(64) char scratch[8 * (N + 2 * SPR_WINDOW)];
    const struct spr_blocks blocks = {N, 1, 12};
    struct spr_chunk_writer w;

    assert_true(spr_chunk_writer_scratch(WINDOWS, N + SPR_WINDOW) <= sizeof scratch);
    spr_chunk_writer_init(&w, &blocks, 0, WINDOWS, N + SPR_WINDOW, scratch);
    w.indices = spr_index_coder_find("bitpack");
    spr_chunk_writer_begin(&w, 0);
    for (uint32_t i = 0; i < spr_blocks_windows(&blocks, 0); i++) {
        uint32_t len = spr_blocks_window_len(&blocks, 0, i), n = 0;
        for (uint32_t p = 0; p < len; p++) {
            if (spr_rng_below(&rng, every))
                continue;
            w.pos[w.count + n] = (uint16_t)p;
            w.val[w.count + n++] =
                patterned ? 0.5f : (float)(1 + spr_rng_below(&rng, 1000)) * 0x1p-12f;
        }
        spr_chunk_writer_window(&w, n);
    }
    return spr_chunk_writer_finish(&w, v, -1, SPR_CHUNK_LAST, plain, sizeof plain);
}

static void chunks_get_shorter_and_come_back(void **state)
{
    static const unsigned every[] = {1, 3, 30, 1000, 100000};
    size_t shorter = 0, back;
    const char *why;

    (void)state;
    for (int v = 0; v < SPR_V_COUNT; v++) {
        for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
            size_t size = make_chunk((enum spr_vtype)v, every[i], i & 1);
            size_t less = spr_zstd_pack(z, plain, size, packed);

            assert_false(spr_zstd_is(plain, size));
            if (less == 0)
                continue;
            shorter++;
            assert_true(less < size && spr_zstd_is(packed, less));
            /* In just enough room, and in no less. */
            assert_int_equal(spr_zstd_unpack(z, packed, less, again, size, &back, &why), SPR_OK);
            assert_int_equal(back, size);
            assert_memory_equal(again, plain, size);
            assert_int_equal(spr_zstd_unpack(z, packed, less, again, size - 1, &back, &why),
                             SPR_ERR_PROTO);
        }
    }
    assert_true(shorter >= 10);
}

static void a_compressed_chunk_is_no_chunk(void **state)
{
    const struct spr_blocks blocks = {N, 1, 12};
    size_t less = spr_zstd_pack(z, plain, make_chunk(SPR_V_FP32, 3, true), packed);
    struct spr_chunk c;
    const char *why = NULL;

    (void)state;
    assert_true(less > 0);
    assert_int_equal(spr_chunk_open(&c, packed, less, &blocks, 0, 0, NULL, &why), SPR_ERR_PROTO);
    assert_non_null(why);
}

static void what_does_not_get_shorter_stays_as_it_is(void **state)
{
    (void)state;
    for (size_t n = 0; n < 2000; n += 1 + n / 8) {
        for (size_t i = 0; i < n; i++)
            plain[i] = (uint8_t)spr_rng_next(&rng);
        memset(packed, 0x5a, n + 8);
        assert_int_equal(spr_zstd_pack(z, plain, n, packed), 0);
        for (size_t i = n > 0 ? n - 1 : 0; i < n + 8; i++)
            assert_int_equal(packed[i], 0x5a);
    }
}

static spr_status unpack(const uint8_t *bytes, size_t size, const char **why)
{
    struct spr_chunk_header h;
    size_t back = 0;
    spr_status status = spr_zstd_unpack(z, bytes, size, again, sizeof again, &back, why);

    if (status != SPR_OK)
        return status;
    memcpy(&h, bytes, HEAD);
    assert_int_equal(back, HEAD + h.payload_bytes);
    return SPR_OK;
}

static void damaged_and_truncated_chunks_are_refused(void **state)
{
    size_t less = spr_zstd_pack(z, plain, make_chunk(SPR_V_FP32, 100, true), packed);
    const char *why;

    (void)state;
    assert_true(less > 0);
    for (size_t cut = 0; cut < less; cut++) {
        uint8_t *copy = malloc(cut + 1); /* for ASan */
        assert_non_null(copy);
        memcpy(copy, packed, cut);
        assert_int_equal(unpack(copy, cut, &why), SPR_ERR_PROTO);
        free(copy);
    }
    packed[less] = 0;
    assert_int_equal(unpack(packed, less + 1, &why), SPR_ERR_PROTO);
    for (int round = 0; round < 2000; round++) {
        size_t at = HEAD + spr_rng_below(&rng, less - HEAD);
        uint8_t old = packed[at];

        packed[at] ^= (uint8_t)(1u << spr_rng_below(&rng, 8));
        /* Frames have no checksum, messages may: what passes is another chunk, as long. */
        if (unpack(packed, less, &why) != SPR_OK)
            assert_non_null(why);
        packed[at] = old;
    }
}

/* A frame by libzstd around zeros, behind a header that tells of `content`. */
static size_t frame(size_t content, size_t zeros, uint8_t *out)
{
    static uint8_t zero[1 << 22];
    struct spr_chunk_header h = {.format = SPR_CHUNK_ZSTD, .payload_bytes = (uint32_t)content};
    size_t n;

    assert_true(zeros <= sizeof zero);
    memcpy(out, &h, HEAD);
    n = ZSTD_compress(out + HEAD, ROOM - HEAD, zero, zeros, 1);
    assert_false(ZSTD_isError(n));
    return HEAD + n;
}

static void refused(const uint8_t *bytes, size_t size, const char *want)
{
    const char *why = "nothing";

    if (unpack(bytes, size, &why) != SPR_ERR_PROTO || !strstr(why, want))
        fail_msg("\"%s\" instead of \"%s\"", why, want);
}

static void bombs_and_strange_frames_are_refused(void **state)
{
    size_t size;

    (void)state;
    size = frame(1 << 22, 1 << 22, packed); /* 4 MiB in 400 bytes */
    assert_true(size < 2000);
    refused(packed, size, "more content");
    refused(packed, frame(ROOM - HEAD + 1, 20, packed), "more content");
    refused(packed, frame(20, 21, packed), "not as long");
    refused(packed, frame(20, 0, packed), "not as long");
    size = frame(20, 20, packed);
    packed[0] = SPR_CHUNK_U16;
    refused(packed, size, "not a compressed");
    /* Two frames; one to be skipped; one that does not tell its size. */
    size = frame(20, 20, packed);
    memcpy(packed + size, packed + HEAD, size - HEAD);
    refused(packed, 2 * size - HEAD, "not one whole");
    memcpy(packed + HEAD, "\x50\x2a\x4d\x18\4\0\0\0abcd", 12);
    refused(packed, HEAD + 12, "no frame");
    ZSTD_CCtx *c = ZSTD_createCCtx();
    assert_non_null(c);
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0)));
    (void)frame(4, 4, packed);
    size_t n = ZSTD_compress2(c, packed + HEAD, ROOM - HEAD, "abcd", 4);
    assert_false(ZSTD_isError(n));
    refused(packed, HEAD + n, "not as long");
    ZSTD_freeCCtx(c);
}

static void each_allocation_can_fail(void **state)
{
    struct spr_zstd *none = NULL;

    (void)state;
    spr_mem_fail_nth(1);
    assert_int_equal(spr_zstd_create(1, &none), SPR_ERR_NOMEM);
    assert_null(none);
    spr_zstd_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_get_shorter_and_come_back),
        cmocka_unit_test(a_compressed_chunk_is_no_chunk),
        cmocka_unit_test(what_does_not_get_shorter_stays_as_it_is),
        cmocka_unit_test(damaged_and_truncated_chunks_are_refused),
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
    struct spr_zstd *z = NULL;
    const char *why = NULL;
    size_t n;

    (void)state;
    assert_false(spr_zstd_is_built_in());
    assert_int_equal(spr_zstd_create(1, &z), SPR_ERR_UNSUPPORTED);
    assert_int_equal(spr_zstd_pack(NULL, plain, 100, packed), 0);
    assert_int_equal(spr_zstd_unpack(NULL, packed, 100, again, 100, &n, &why), SPR_ERR_UNSUPPORTED);
    assert_non_null(why);
    spr_zstd_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_libzstd_it_says_so)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
