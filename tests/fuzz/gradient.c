/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Files that sparring-codec tries codecs on (tools/codec/file.c). Input: the file, or behind a byte
 * 'h' a .npy file without its first ten bytes, whose header gets the right length.
 */
#include "tests/fuzz/fuzz.h"

#include "tools/codec/file.h"

enum { MAGIC = 10 };

static void check(const uint8_t *bytes, size_t size)
{
    struct spr_error error = {.rank = -1};
    struct gradient gradient = {.x = NULL};

    if (gradient_parse(&gradient, bytes, size, "file", &error) != SPR_OK) {
        FUZZ_CHECK(error.text[0] && !strchr(error.text, '\n') && !gradient.x);
        return;
    }
    /* No number takes less than two bytes, and what is raw is as it was. */
    FUZZ_CHECK(gradient.n > 0 && gradient.n <= size / 2 && gradient.form);
    FUZZ_CHECK(gradient.rows == 0 || gradient.n % gradient.rows == 0);
    if (strcmp(gradient.form, "raw fp32") == 0)
        FUZZ_CHECK(memcmp(gradient.x, bytes, gradient.n * sizeof(float)) == 0);
    gradient_free(&gradient);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[1 << 16];

    if (size == 0 || data[0] != 'h') {
        check(data, size);
        return 0;
    }
    const uint8_t *end = memchr(data, '\n', size);
    size_t rest = size - 1 < sizeof file - MAGIC ? size - 1 : sizeof file - MAGIC;
    size_t length = end ? (size_t)(end - data) : 0;
    memcpy(file, "\x93NUMPY\1\0", 8);
    file[8] = (uint8_t)length;
    file[9] = (uint8_t)(length >> 8);
    memcpy(file + MAGIC, data + 1, rest);
    check(file, MAGIC + rest);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct {
        const char *name, *header;
        size_t bytes;
    } files[] = {
        {"fp32", "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 12},
        {"fp16", "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }\n", 12},
        {"fp64", "{'descr': '<f8', 'fortran_order': True, 'shape': (), }\n", 8},
        {"fortran", "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 3), }\n", 12},
        {"short", "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n", 12},
        {"large", "{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000, 2), }\n", 12},
        {"descr", "{'shape': (3,), 'fortran_order': False, 'descr':\n", 12},
        {"big-endian", "{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }\n", 12},
    };
    static struct fuzz_seed s;

    for (size_t i = 0; i < SPR_ARRAY_LEN(files); i++) {
        fuzz_put_u8(&s, 'h');
        fuzz_put(&s, files[i].header, strlen(files[i].header));
        for (size_t k = 0; k < files[i].bytes; k++)
            fuzz_put_u8(&s, (unsigned)(17 * k + 60));
        fuzz_emit_seed(files[i].name, &s);
    }
    fuzz_put(&s, "SPRTRACE\1\0\0\0\0\0\0\0\3\0\0\0\1\0\0\0\2\0\0\0\0\0\0\0\1\2\3\4\5\6\7\10", 40);
    fuzz_emit_seed("trace", &s);
    fuzz_put(&s, "\1\2\3\4\5\6\7\10", 8);
    fuzz_emit_seed("raw", &s);
}
