/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse chunks whose values are coded. Input: coder, number of positions, ranks, owner, expected
 * window, a byte each; the chunk, whose header gets the lengths that the bytes have.
 *
 * What is accepted is visited in all three ways, which give the same values.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "compress/chunk_layout.h"
#include "compress/codec_internal.h"
#include "tests/fuzz/fuzz.h"

#define MOST_POSITIONS 70000

static const char *const coders[] = {
    "int8:group=64",           "int4",     "sign:group=100",
    "sign:means=two",          "terngrad", "qsgd:levels=5,coding=elias",
    "qsgd:coding=sparse",      "natural",  "bounded:group=96",
    "bounded:group=96,bits=6",
};
static const uint32_t sizes[] = {1, 17, 64, 200, 1000, 5000, 65537, MOST_POSITIONS};

struct setup {
    spr_codec codec;
    struct spr_coding coding;
    struct spr_blocks blocks;
    uint32_t owner, first;
};

static struct setup *read_setup(struct fuzz_in *in)
{
    static float values[SPR_WINDOW + 16];
    static struct setup s;
    struct spr_error error = {0};

    FUZZ_CHECK(!spr_codec_parse(coders[fuzz_u8(in) % SPR_ARRAY_LEN(coders)], &s.codec, &error));
    s.coding = (struct spr_coding){
        .coder = s.codec.coder, .options = s.codec.coder_options, .seed = 7, .values = values};
    s.blocks.elements = sizes[fuzz_u8(in) % SPR_ARRAY_LEN(sizes)];
    s.blocks = spr_blocks_choose(s.blocks.elements, 1 + fuzz_u8(in) % 3u);
    s.owner = fuzz_u8(in) % s.blocks.ranks;
    s.first = fuzz_u8(in) % (spr_blocks_windows(&s.blocks, s.owner) + 1);
    return &s;
}

static bool same(float a, float b) { return a == b || (isnan(a) && isnan(b)); }

/* The next window of three copies of the chunk. */
static void visit(const struct setup *s, struct spr_chunk *adds, struct spr_chunk *fills,
                  struct spr_chunk *lists, float *dense)
{
    static float acc[SPR_WINDOW], value[SPR_WINDOW + 16];
    static uint32_t index[SPR_WINDOW + 16];
    static uint64_t touched[SPR_WINDOW / 64];
    uint32_t window = adds->next_window, len = spr_blocks_window_len(&s->blocks, s->owner, window);
    size_t n = spr_chunk_list(lists, index, value, SPR_WINDOW), at = 0;

    memset(acc, 0, sizeof acc);
    memset(touched, 0, sizeof touched);
    spr_chunk_add(adds, acc, touched);
    spr_chunk_fill(fills, dense);
    for (uint32_t i = 0; i < len; i++) {
        uint64_t g =
            spr_blocks_global(&s->blocks, s->owner, ((uint64_t)window << SPR_WINDOW_LOG2) + i);
        bool listed = at < n && index[at] == g;
        FUZZ_CHECK((touched[i / 64] >> i % 64 & 1) == listed);
        FUZZ_CHECK(same(dense[g], listed ? value[at] : 0) && same(acc[i], dense[g]));
        at += listed;
    }
    FUZZ_CHECK(at == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    const struct setup *s = read_setup(&in);
    struct spr_chunk_header h = {0};
    struct spr_chunk chunk, fills, lists;
    static float dense[MOST_POSITIONS];
    size_t bytes = in.left;
    uint8_t *copy = fuzz_rest(&in);
    const char *why = NULL;

    if (bytes >= sizeof h) {
        memcpy(&h, copy, sizeof h);
        h.vtype = SPR_V_CODED;
        h.payload_bytes = (uint32_t)(bytes - sizeof h);
        memcpy(copy, &h, sizeof h);
    }
    if (spr_chunk_open(&chunk, copy, bytes, &s->blocks, s->owner, s->first, &s->coding, &why)) {
        FUZZ_CHECK(why);
    } else {
        fills = lists = chunk;
        for (uint32_t i = 0; i < h.windows; i++)
            visit(s, &chunk, &fills, &lists, dense);
    }
    FUZZ_CHECK(spr_chunk_open(&chunk, copy, bytes, &s->blocks, s->owner, s->first, NULL, &why));
    free(copy);
    return 0;
}

/* ---- Seeds ---- */

static void seed(unsigned coder, unsigned size, unsigned ranks, unsigned every, int format)
{
    const uint8_t head[5] = {(uint8_t)coder, (uint8_t)size, (uint8_t)(ranks - 1), 0, 0};
    struct fuzz_in in = {head, sizeof head};
    const struct setup *s = read_setup(&in);
    static _Alignas(64) uint64_t scratch[(2 * SPR_WINDOW + 128) * 6 / 8 + 64], out[1 << 15];
    static struct fuzz_seed seed;
    struct spr_chunk_writer w;
    char name[64];
    size_t n = 0;

    spr_chunk_writer_init(&w, &s->blocks, 0, 1, SPR_WINDOW, scratch);
    w.coding = &s->coding;
    w.indices = spr_index_coder_find("eliasfano");
    spr_chunk_writer_begin(&w, 0);
    for (uint32_t p = every / 2; p < spr_blocks_window_len(&s->blocks, 0, 0); p += every, n++) {
        w.pos[n] = (uint16_t)p;
        w.val[n] = (float)p * 0.25f - 30;
    }
    spr_chunk_writer_window(&w, n);
    n = spr_chunk_writer_finish(&w, SPR_V_CODED, format, SPR_CHUNK_LAST, out, sizeof out);
    fuzz_put(&seed, head, sizeof head);
    fuzz_put(&seed, out, n);
    snprintf(name, sizeof name, "coder_%u_%u_of_%u_by_%u_%d", coder, every, size, ranks, format);
    fuzz_emit_seed(name, &seed);
}

void fuzz_seeds(void)
{
    for (unsigned coder = 0; coder < SPR_ARRAY_LEN(coders); coder++) {
        seed(coder, 3, 1, 3, SPR_CHUNK_U16);
        seed(coder, 4, 2, 2, SPR_CHUNK_BITMAP);
        seed(coder, 3, 3, 1, SPR_CHUNK_DENSE);
        seed(coder, 4, 1, 7, SPR_CHUNK_PACKED);
    }
    seed(0, 7, 1, 5000, SPR_CHUNK_U16);
}
