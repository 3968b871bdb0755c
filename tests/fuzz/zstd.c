/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Compressed chunks (compress/zstd.h). Input: mode, room (2 bytes), a header; then the frame, or,
 * with PACK, a payload of which the frame is made, and a byte of that which is changed.
 *
 * What is accepted is as long as its header says and fits the room, has the header's fields, and
 * comes back the same when it is compressed once more.
 */
#include <stdlib.h>

#include "compress/chunk_layout.h"
#include "compress/zstd.h"
#include "tests/fuzz/fuzz.h"

enum { /* mode */
       PACK = 1,
       DAMAGE = 2,     /* with PACK */
       FIX_LENGTH = 4, /* the header tells the content's length */
};

enum { HEAD = SPR_CHUNK_HEADER_BYTES, MOST = 1 << 16 };

static struct spr_zstd *z;
static uint8_t plain[HEAD + MOST], again[HEAD + MOST], packed[HEAD + MOST];

static void check(const uint8_t *bytes, size_t size, size_t room)
{
    struct spr_chunk_header want, got;
    uint8_t *out = malloc(room + 1); /* for ASan */
    size_t n = 0, less, back = 0;
    const char *why = NULL;

    FUZZ_CHECK(out);
    spr_status status = spr_zstd_unpack(z, bytes, size, out, room, &n, &why);
    FUZZ_CHECK(status == SPR_OK || (status == SPR_ERR_PROTO && why));
    if (status == SPR_OK) {
        memcpy(&want, bytes, HEAD);
        memcpy(&got, out, HEAD);
        FUZZ_CHECK(spr_zstd_is(bytes, size) && !spr_zstd_is(out, n));
        FUZZ_CHECK(n <= room && n == HEAD + (size_t)want.payload_bytes);
        want.format &= (uint8_t)~SPR_CHUNK_ZSTD;
        FUZZ_CHECK(memcmp(&want, &got, HEAD) == 0);
        less = spr_zstd_pack(z, out, n, packed);
        FUZZ_CHECK(less < n || n == HEAD);
        if (less) {
            FUZZ_CHECK(spr_zstd_unpack(z, packed, less, again, n, &back, &why) == SPR_OK);
            FUZZ_CHECK(back == n && memcmp(again, out, n) == 0);
        }
    }
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    uint8_t mode = fuzz_u8(&in);
    size_t room = (size_t)fuzz_number(&in, 2) + HEAD / 2;
    struct spr_chunk_header h;
    size_t at = mode & DAMAGE ? (size_t)fuzz_number(&in, 2) : 0;
    uint8_t change = mode & DAMAGE ? fuzz_u8(&in) : 0;

    if (!z && spr_zstd_create(1, &z) != SPR_OK)
        return 0; /* not built in */
    if (in.left < HEAD || in.left > MOST)
        return 0;
    fuzz_take(&in, &h, HEAD);
    size_t left = in.left, bytes = HEAD + left;
    uint8_t *rest = fuzz_rest(&in), *message = malloc(bytes);
    FUZZ_CHECK(message);
    h.format = mode & PACK ? h.format & 0x7fu : h.format | SPR_CHUNK_ZSTD;
    if (mode & (PACK | FIX_LENGTH))
        h.payload_bytes = (uint32_t)(mode & PACK ? left : h.payload_bytes & 0xfff);
    memcpy(message, &h, HEAD);
    if (left > 0)
        memcpy(message + HEAD, rest, left);
    if (mode & PACK) {
        memcpy(plain, message, bytes);
        bytes = spr_zstd_pack(z, plain, bytes, message);
        if (bytes > 0)
            message[at % bytes] ^= change;
    }
    if (bytes > 0)
        check(message, bytes, room);
    free(message);
    free(rest);
    return 0;
}

void fuzz_seeds(void)
{
    static struct fuzz_seed s;
    struct spr_chunk_header h = {.format = SPR_CHUNK_U16, .count = 7, .payload_bytes = 300};

    for (unsigned mode = PACK; mode <= (PACK | DAMAGE); mode += DAMAGE) {
        fuzz_put_u8(&s, mode);
        fuzz_put_u16(&s, 0xffff);
        if (mode & DAMAGE) {
            fuzz_put_u16(&s, 40);
            fuzz_put_u8(&s, 4);
        }
        fuzz_put(&s, &h, HEAD);
        for (unsigned i = 0; i < 300; i++)
            fuzz_put_u8(&s, i * i % 7);
        fuzz_emit_seed(mode & DAMAGE ? "damaged" : "packed", &s);
    }
    fuzz_put_u8(&s, 0);
    fuzz_put_u16(&s, 100);
    h.payload_bytes = 20;
    fuzz_put(&s, &h, HEAD);
    /* 20 zeros, as a block of one byte that repeats. */
    fuzz_put(&s, "\x28\xb5\x2f\xfd\x20\x14\xa3\0\0\0", 10);
    fuzz_emit_seed("zeros", &s);
}
