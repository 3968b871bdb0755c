/* SPDX-License-Identifier: BSD-2-Clause
 *
 * MNIST's files (examples/digits_idx.c). Input: mode (bit 0: right headers), which images, the
 * labels (a length and as many bytes), the images.
 */
#include <stdlib.h>

#include "examples/digits.h"
#include "tests/fuzz/files.h"
#include "tests/fuzz/fuzz.h"

static void fix(uint8_t *file, uint8_t dimensions, size_t items)
{
    const uint8_t start[8] = {
        0, 0, 8, dimensions, 0, 0, (uint8_t)(items >> 8), (uint8_t)items,
    };

    memcpy(file, start, sizeof start);
    if (dimensions == 3)
        memcpy(file + 8, "\0\0\0\34\0\0\0\34", 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t images[16 + 8 * DIGITS_PIXELS];
    struct fuzz_in in = {data, size};
    uint8_t mode = fuzz_u8(&in), which = fuzz_u8(&in), labels[8 + 255];
    char error[256] = "";
    digits_shard shard = {which & 3, 1 + (which >> 2 & 3), which >> 4};
    digits_set set = {0};
    size_t label_bytes = fuzz_u8(&in), items;

    fuzz_take(&in, labels, label_bytes);
    size_t image_bytes = in.left < sizeof images ? in.left : sizeof images;
    fuzz_take(&in, images, image_bytes);
    items = label_bytes > 8 ? (label_bytes - 8) % 9 : 0;
    if (mode & 1) {
        fix(labels, 1, items);
        fix(images, 3, items);
        label_bytes = 8 + items;
        image_bytes = 16 + items * DIGITS_PIXELS;
    }
    fuzz_file("t10k-labels-idx1-ubyte", labels, label_bytes);
    fuzz_file("t10k-images-idx3-ubyte", images, image_bytes);
    if (digits_set_read(&set, fuzz_folder(), "t10k", &shard, error, sizeof error)) {
        FUZZ_CHECK(*error && !set.pixels && !set.labels && set.count == 0);
        return 0;
    }
    FUZZ_CHECK(image_bytes >= 16 && (image_bytes - 16) / DIGITS_PIXELS == label_bytes - 8);
    FUZZ_CHECK(set.count <= shard.count);
    for (size_t i = 0, at = shard.first; i < set.count; i++, at += shard.stride) {
        FUZZ_CHECK(at < label_bytes - 8 && set.labels[i] == labels[8 + at]);
        FUZZ_CHECK(set.labels[i] < DIGITS_CLASSES);
        FUZZ_CHECK(memcmp(set.pixels + i * DIGITS_PIXELS, images + 16 + at * DIGITS_PIXELS,
                          DIGITS_PIXELS) == 0);
    }
    digits_set_free(&set);
    return 0;
}

void fuzz_seeds(void)
{
    static struct fuzz_seed s;

    for (unsigned mode = 0; mode < 2; mode++) {
        fuzz_put_u8(&s, mode);
        fuzz_put_u8(&s, 0xf4);
        fuzz_put_u8(&s, 11);
        fuzz_put(&s, "\0\0\10\1\0\0\0\3\1\2\11", 11);
        fuzz_put(&s, "\0\0\10\3\0\0\0\3\0\0\0\34\0\0\0\34", 16);
        for (unsigned i = 0; i < 3 * DIGITS_PIXELS; i += 2)
            fuzz_put_u16(&s, i % 97);
        fuzz_emit_seed(mode ? "fixed" : "three", &s);
    }
    fuzz_put(&s, "\0\60\0", 3);
    fuzz_emit_seed("empty", &s);
}
