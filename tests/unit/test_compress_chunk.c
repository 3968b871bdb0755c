/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Chunks: what is written is read back in every format, the cheapest format is chosen, and bytes
 * that no writer wrote are refused without reading beyond them.
 */
#include "compress/chunk.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/util.h"
#include "compress/value.h"
#include "tools/codec/data.h"

#define MAX_WINDOWS 4
#define MUTATIONS 100000

static struct spr_rng rng;

/* The entries of an owner as a plain map: the model. */
struct model {
    struct spr_blocks blocks;
    uint32_t owner, first, windows;
    bool set[MAX_WINDOWS][SPR_WINDOW];
    float value[MAX_WINDOWS][SPR_WINDOW];
    size_t count, positions, words;
};

static struct model model;
static struct spr_chunk_writer writer;
static void *scratch;

enum fill {
    FILL_NOTHING,
    FILL_ONE,
    FILL_SPARSE,
    FILL_SOME,
    FILL_MANY,
    FILL_CLUSTERS,
    FILL_FULL,
    FILL_KINDS
};

static bool take(enum fill fill, uint32_t w, uint32_t p, uint32_t len)
{
    switch (fill) {
    case FILL_NOTHING:
        return false;
    case FILL_ONE:
        return w == 0 && p == len - 1;
    case FILL_SPARSE: /* empty windows too */
        return w != 1 && spr_rng_below(&rng, 300) == 0;
    case FILL_SOME:
        return spr_rng_below(&rng, 9) == 0;
    case FILL_MANY:
        return spr_rng_below(&rng, 3) != 0;
    case FILL_CLUSTERS:
        return p % 5000 < 200 && spr_rng_below(&rng, 3) == 0;
    default:
        return true;
    }
}

/* What a value of this type becomes on the wire: finite values stay finite. */
static float rounded(float x, enum spr_vtype v)
{
    if (v == SPR_V_FP16)
        return spr_fp16_to_float(spr_fp16_from_float(fmaxf(-65504, fminf(x, 65504))));
    return v == SPR_V_BF16 ? spr_bf16_to_float(spr_bf16_from_float(x)) : x;
}

static void model_fill(enum fill fill, uint32_t windows, enum spr_vtype v)
{
    spr_chunk_writer_init(&writer, &model.blocks, model.owner, MAX_WINDOWS,
                          (size_t)MAX_WINDOWS * SPR_WINDOW, scratch);
    spr_chunk_writer_begin(&writer, model.first);
    model.windows = windows;
    model.count = model.positions = model.words = 0;
    for (uint32_t w = 0; w < windows; w++) {
        uint32_t len = spr_blocks_window_len(&model.blocks, model.owner, model.first + w);
        size_t n = 0;

        assert_true(spr_chunk_writer_room(&writer, len));
        for (uint32_t p = 0; p < len; p++) {
            float x = (float)((double)spr_hash_u32(spr_rng_next(&rng)) * 1e-3 - 2e6);

            model.set[w][p] = take(fill, w, p, len);
            if (!model.set[w][p])
                continue;
            writer.pos[writer.count + n] = (uint16_t)p;
            writer.val[writer.count + n] = x;
            model.value[w][p] = rounded(x, v);
            n++;
        }
        spr_chunk_writer_window(&writer, n);
        model.count += n;
        model.positions += len;
        model.words += (len + 63) / 64;
    }
}

static void check_add(struct spr_chunk c)
{
    static float acc[SPR_WINDOW], val[SPR_WINDOW + 16];
    static uint64_t touched[SPR_WINDOW / 64];
    static uint16_t pos[SPR_WINDOW + 16];
    struct spr_chunk some = c; /* visits some windows, and passes over the others */

    for (uint32_t w = 0; w < model.windows; w++) {
        uint32_t len = spr_blocks_window_len(&model.blocks, model.owner, model.first + w);
        struct spr_chunk again = some;
        size_t n = 0, entries = spr_chunk_add(&c, acc, touched);

        assert_int_equal(spr_chunk_add(&again, acc, touched), entries);
        if (spr_rng_below(&rng, 2))
            assert_int_equal(spr_chunk_skip(&some), entries);
        else
            some = again;
        size_t got = spr_window_harvest(acc, touched, len, pos, val);
        for (uint32_t p = 0; p < len; p++)
            if (model.set[w][p]) {
                assert_true(n < got && pos[n] == p);
                assert_true(val[n] == model.value[w][p] + model.value[w][p]);
                n++;
            }
        assert_int_equal(n, got);
        for (size_t p = 0; p < SPR_WINDOW; p++)
            assert_true(data_bits(acc[p]) == 0 && touched[p / 64] == 0);
    }
}

static void check_fill_and_list(struct spr_chunk c)
{
    static float value[SPR_WINDOW];
    static uint32_t index[SPR_WINDOW];
    float *dense = malloc(model.blocks.elements * sizeof(float));
    size_t untouched = 0;
    struct spr_chunk list = c;

    memset(dense, 0xff, model.blocks.elements * sizeof(float));
    for (uint32_t w = 0; w < model.windows; w++) {
        uint32_t len = spr_blocks_window_len(&model.blocks, model.owner, model.first + w);
        struct spr_chunk cut = list;
        size_t n = 0, got = spr_chunk_list(&list, index, value, SPR_WINDOW);

        spr_chunk_fill(&c, dense);
        for (uint32_t p = 0; p < len; p++) {
            uint64_t at = (uint64_t)(model.first + w) * SPR_WINDOW + p;
            uint64_t g = spr_blocks_global(&model.blocks, model.owner, at);
            float expected = model.value[w][p];

            assert_int_equal(data_bits(dense[g]), model.set[w][p] ? data_bits(expected) : 0);
            memset(&dense[g], 0xff, sizeof(dense[g]));
            if (model.set[w][p]) {
                assert_true(n < got && index[n] == g);
                assert_int_equal(data_bits(value[n]), data_bits(expected));
                n++;
            }
        }
        assert_int_equal(n, got);
        index[n / 2] = 77;
        assert_int_equal(spr_chunk_list(&cut, index, value, n / 2), n);
        assert_true(n == 0 || index[n / 2] == 77);
    }
    /* What is of other windows and owners is left alone. */
    for (uint64_t i = 0; i < model.blocks.elements; i++)
        untouched += data_bits(dense[i]) == UINT32_MAX;
    assert_int_equal(untouched, model.blocks.elements);
    free(dense);
}

static const char *open_error(const void *data, size_t bytes, struct spr_chunk *c)
{
    const char *why = NULL;
    spr_status status =
        spr_chunk_open(c, data, bytes, &model.blocks, model.owner, model.first, NULL, &why);

    assert_true(status == (why ? SPR_ERR_PROTO : SPR_OK));
    return why;
}

/* Bytes of the format with packed positions, as the coder says. */
static size_t packed_bytes(enum spr_vtype v, const struct spr_index_coder *indices)
{
    uint32_t *at = malloc((model.count + 1) * sizeof *at);
    uint64_t sizes[SPR_INDEX_IDS];
    size_t n = 0, id = 0;

    for (uint32_t w = 0; w < model.windows; w++)
        for (uint32_t p = 0; p < SPR_WINDOW; p++)
            if (model.set[w][p] &&
                p < spr_blocks_window_len(&model.blocks, model.owner, model.first + w))
                at[n++] = w * SPR_WINDOW + p;
    assert_int_equal(n, model.count);
    spr_index_sizes(at, n, model.positions, sizes);
    while (spr_index_coder_at(id) != indices)
        id++;
    free(at);
    if (4 * sizes[SPR_INDEX_ELIASFANO] <= 3 * sizes[id])
        id = SPR_INDEX_ELIASFANO;
    return spr_chunk_bytes(SPR_CHUNK_PACKED, v, model.windows, model.positions, model.words,
                           model.count) +
           spr_align_up(sizes[id], 4);
}

/* What the writer is to take, and the bytes of that. */
static enum spr_chunk_format expected_format(enum spr_vtype v, int force, size_t *bytes)
{
    enum spr_chunk_format best = SPR_CHUNK_FORMATS;

    *bytes = SIZE_MAX;
    for (unsigned f = 0; f < SPR_CHUNK_FORMATS; f++) {
        size_t takes = spr_chunk_bytes((enum spr_chunk_format)f, v, model.windows, model.positions,
                                       model.words, model.count);
        bool can = f != SPR_CHUNK_DENSE || model.count == model.positions;

        if (f == SPR_CHUNK_PACKED) {
            can = writer.indices && model.count > 0;
            if (can)
                takes = packed_bytes(v, writer.indices);
            can &= force == SPR_CHUNK_PACKED || 5 * model.count < model.positions;
        }
        if (can && ((int)f == force || takes < *bytes)) {
            *bytes = takes;
            best = (enum spr_chunk_format)f;
            if ((int)f == force)
                break;
        }
    }
    return best;
}

static void check_round_trip(enum spr_vtype v, int force)
{
    size_t plain, least, cap;
    enum spr_chunk_format format;
    const struct spr_index_coder *indices = writer.indices;
    struct spr_chunk c;

    writer.indices = NULL;
    expected_format(v, -1, &plain);
    assert_int_equal(spr_chunk_writer_bytes(&writer, v), plain);
    assert_true(plain <= spr_chunk_bound(v, model.windows));
    writer.indices = indices;
    format = expected_format(v, force, &least);
    cap = least;
    if (indices && model.count > 0)
        cap = spr_max_size(plain, packed_bytes(v, indices)) + 4 +
              spr_index_bound(indices, model.positions, model.count);

    char *room = malloc(cap);
    size_t bytes = spr_chunk_writer_finish(&writer, v, force, SPR_CHUNK_LAST, room, cap);
    assert_int_equal(bytes, least);
    /* A buffer of its own of the exact size, so that a sanitizer sees what is beyond. */
    char *out = malloc(bytes);
    memcpy(out, room, bytes);
    free(room);
    if (model.windows == 0) { /* can be written, but says nothing: refused */
        assert_non_null(open_error(out, bytes, &c));
        free(out);
        return;
    }
    assert_null(open_error(out, bytes, &c));
    assert_true(c.count == model.count && c.vtype == v && c.flags == SPR_CHUNK_LAST);
    assert_int_equal(c.format, format);
    for (int scalar = 0; scalar < 2; scalar++) {
        spr_cpu_override(scalar ? 0 : UINT32_MAX);
        check_add(c);
        check_fill_and_list(c);
    }
    spr_cpu_override(UINT32_MAX);
    free(out);
}

/* The owner's last window is short in all of them. */
static const struct {
    struct spr_blocks blocks;
    uint32_t owner, first, windows;
} shapes[] = {
    {{100, 1, 10}, 0, 0, 1},      {{1000, 3, 4}, 2, 0, 1},    {{65537, 1, 10}, 0, 0, 2},
    {{150001, 2, 12}, 1, 1, 1},   {{200000, 1, 16}, 0, 2, 2}, {{400007, 2, 10}, 0, 1, 3},
    {{65536 * 2, 1, 8}, 0, 0, 2}, {{200000, 1, 0}, 0, 1, 0},
};

static const struct spr_index_coder *coder_of_blocks(size_t i)
{
    static const char *const names[] = {"bitpack", "eliasfano", "golomb"};

    return spr_index_coder_find(names[i % SPR_ARRAY_LEN(names)]);
}

static void use_shape(size_t s)
{
    model.blocks = shapes[s].blocks;
    model.owner = shapes[s].owner;
    model.first = shapes[s].first;
}

static void entries_survive_every_format_and_value_type(void **state)
{
    (void)state;
    for (size_t s = 0; s < SPR_ARRAY_LEN(shapes); s++)
        for (int fill = 0; fill < FILL_KINDS; fill++)
            for (int v = 0; v < SPR_V_COUNT; v++) {
                use_shape(s);
                model_fill((enum fill)fill, shapes[s].windows, (enum spr_vtype)v);
                for (int force = -1; force < SPR_CHUNK_FORMATS; force++)
                    check_round_trip((enum spr_vtype)v, force);
                writer.indices = coder_of_blocks(s + (size_t)fill);
                check_round_trip((enum spr_vtype)v, -1);
                check_round_trip((enum spr_vtype)v, SPR_CHUNK_PACKED);
            }
}

/* That of a large vector is written by other means. */
static void a_result_that_no_cache_holds_is_the_same(void **state)
{
    static const enum fill fills[] = {FILL_ONE, FILL_SPARSE, FILL_MANY, FILL_FULL};

    (void)state;
    model.blocks = (struct spr_blocks){(4u << 20) + 4099, 2, 12};
    model.owner = 1;
    model.first = 31;
    for (size_t i = 0; i < SPR_ARRAY_LEN(fills); i++)
        for (int v = 0; v < SPR_V_COUNT; v++) {
            model_fill(fills[i], 2, (enum spr_vtype)v);
            check_round_trip((enum spr_vtype)v, -1);
        }
}

/* One position in `every` of a window, at any address; nothing beside the window is touched. */
static void check_window(float *dense, size_t elements, uint32_t window, uint32_t every)
{
    static uint16_t pos[SPR_WINDOW];
    static float val[SPR_WINDOW];
    size_t base = (size_t)window << SPR_WINDOW_LOG2, n = 0, next = 0;
    size_t end = spr_min_size(base + SPR_WINDOW, elements);

    for (size_t i = 0; i < elements; i++)
        dense[i] = 7;
    for (size_t i = base; i < end; i++)
        if (spr_rng_below(&rng, every) == 0) {
            pos[n] = (uint16_t)(i - base);
            val[n++] = 1 + (float)i;
        }
    spr_dense_fill(dense, elements, window, pos, val, n);
    for (size_t i = 0; i < elements; i++)
        if (i < base || i >= end)
            assert_true(dense[i] == 7);
        else
            assert_true(dense[i] == (next < n && pos[next] == i - base ? val[next++] : 0));
}

static void a_window_is_written_as_its_entries_say(void **state)
{
    static const size_t elements[] = {1, 63, SPR_WINDOW, SPR_WINDOW + 2049, (4u << 20) + 4099};
    static const uint32_t every[] = {1, 3, 1000, 1u << 30};

    (void)state;
    for (size_t e = 0; e < SPR_ARRAY_LEN(elements); e++) {
        float *memory = malloc((elements[e] + 16) * sizeof *memory);
        uint32_t last = (uint32_t)((elements[e] - 1) >> SPR_WINDOW_LOG2);

        for (size_t i = 0; i < SPR_ARRAY_LEN(every); i++) {
            size_t offset = spr_rng_below(&rng, 16);

            check_window(memory + offset, elements[e], 0, every[i]);
            check_window(memory + offset, elements[e], last, every[i]);
        }
        free(memory);
    }
}

/* A small valid chunk of a random kind, in a buffer of its own. */
static char *random_chunk(size_t *bytes)
{
    static const size_t small[] = {0, 1, 2};
    enum spr_vtype v = (enum spr_vtype)spr_rng_below(&rng, SPR_V_COUNT);
    int force = (int)spr_rng_below(&rng, SPR_CHUNK_FORMATS);
    enum fill fill = force == SPR_CHUNK_DENSE ? FILL_FULL : FILL_SPARSE;

    use_shape(small[spr_rng_below(&rng, SPR_ARRAY_LEN(small))]);
    model_fill(fill, 1, v);
    writer.indices = coder_of_blocks(spr_rng_below(&rng, 3));
    size_t cap = spr_chunk_bytes(SPR_CHUNK_U32, v, 1, model.positions, model.words, model.count) +
                 spr_chunk_bytes(SPR_CHUNK_BITMAP, v, 1, model.positions, model.words, model.count);
    char *out = malloc(cap);
    *bytes = spr_chunk_writer_finish(&writer, v, force, 0, out, cap);
    return out;
}

static void every_truncated_or_extended_chunk_is_refused(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        size_t bytes;
        char *whole = random_chunk(&bytes);
        struct spr_chunk c;

        assert_null(open_error(whole, bytes, &c));
        /* All short prefixes, and a part of the long ones. */
        for (size_t n = 0; n < bytes + 8; n += n < 4096 ? 1 : 13) {
            char *cut = calloc(1, n + 1);

            memcpy(cut, whole, spr_min_size(n, bytes));
            if (n != bytes)
                assert_non_null(open_error(cut, n, &c));
            free(cut);
        }
        free(whole);
    }
}

/* Visit a chunk that was accepted: every access must stay inside. */
static void visit(struct spr_chunk c)
{
    static float acc[SPR_WINDOW];
    static uint64_t touched[SPR_WINDOW / 64];
    static uint32_t index[SPR_WINDOW];
    static float value[SPR_WINDOW];
    size_t total = 0;
    struct spr_chunk list = c;

    for (uint32_t w = 0; w < c.windows; w++) {
        spr_chunk_add(&c, acc, touched);
        total += spr_chunk_list(&list, index, value, SPR_WINDOW);
    }
    assert_int_equal(total, c.count);
}

static void mutated_chunks_are_refused_or_harmless(void **state)
{
    int refused = 0;

    (void)state;
    for (int round = 0; round < MUTATIONS / 1000; round++) {
        size_t bytes;
        char *whole = random_chunk(&bytes), *copy = malloc(bytes);

        for (int m = 0; m < 1000; m++) {
            struct spr_chunk c;

            memcpy(copy, whole, bytes);
            for (uint64_t edits = 1 + spr_rng_below(&rng, 3); edits > 0; edits--) {
                /* Half of them in the header and the first words. */
                size_t span = spr_rng_below(&rng, 2) ? bytes : spr_min_size(bytes, 48);
                copy[spr_rng_below(&rng, span)] ^= (char)(1 << spr_rng_below(&rng, 8));
            }
            if (open_error(copy, bytes, &c))
                refused++;
            else
                visit(c);
        }
        free(whole);
        free(copy);
    }
    assert_true(refused > MUTATIONS / 4);
}

static void chunks_of_another_place_are_refused(void **state)
{
    size_t bytes;
    char *whole = random_chunk(&bytes);
    struct spr_chunk c;
    const char *why = NULL;

    (void)state;
    assert_int_equal(
        spr_chunk_open(&c, whole, bytes, &model.blocks, model.owner, model.first + 1, NULL, &why),
        SPR_ERR_PROTO);
    assert_string_equal(why, "not the expected window");
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_survive_every_format_and_value_type),
        cmocka_unit_test(a_result_that_no_cache_holds_is_the_same),
        cmocka_unit_test(a_window_is_written_as_its_entries_say),
        cmocka_unit_test(every_truncated_or_extended_chunk_is_refused),
        cmocka_unit_test(mutated_chunks_are_refused_or_harmless),
        cmocka_unit_test(chunks_of_another_place_are_refused),
    };

    rng.seed = spr_rng_test_seed();
    printf("SPARRING_SEED=%llu\n", (unsigned long long)rng.seed);
    scratch = aligned_alloc(
        64,
        spr_align_up(spr_chunk_writer_scratch(MAX_WINDOWS, (size_t)MAX_WINDOWS * SPR_WINDOW), 64));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    return failed;
}
