/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Frame headers (transport/frame.c). Input: mode (bit 0: seal the header), a bit number (u16), the
 * header.
 */
#include "transport/frame.h"

#include "base/util.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    uint8_t mode = fuzz_u8(&in);
    unsigned bit = fuzz_u16(&in) % (8 * SPR_FRAME_BYTES);
    const char *why = NULL;
    struct spr_frame f, before;

    fuzz_take(&in, &f, sizeof f);
    if (mode & 1)
        spr_frame_seal(&f);
    before = f;
    spr_status status = spr_frame_check(&f, &why);
    FUZZ_CHECK(memcmp(&f, &before, sizeof f) == 0);
    if (status != SPR_OK) {
        FUZZ_CHECK(status == SPR_ERR_PROTO || (status == SPR_ERR_CORRUPT && !(mode & 1)));
        FUZZ_CHECK(why && *why);
        return 0;
    }
    FUZZ_CHECK(f.type >= SPR_FRAME_DATA && f.type < SPR_FRAME_TYPES);
    FUZZ_CHECK(f.bytes <= SPR_FRAME_MAX_PAYLOAD);
    spr_frame_seal(&f);
    FUZZ_CHECK(memcmp(&f, &before, sizeof f) == 0);
    /* No single bit can change unseen. */
    ((uint8_t *)&f)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    FUZZ_CHECK(spr_frame_check(&f, &why) != SPR_OK);
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const names[] = {NULL,  "data",     "grant", "credit", "request", "abort",
                                        "bye", "describe", "view",  "reject", "recall"};
    _Static_assert(SPR_ARRAY_LEN(names) == SPR_FRAME_TYPES, "a name for each type");
    static struct fuzz_seed s;

    for (unsigned type = SPR_FRAME_DATA; type < SPR_FRAME_TYPES; type++) {
        struct spr_frame f = {
            .type = (uint8_t)type, .epoch = 1, .sequence = type, .operation = 9, .step = 3};
        if (type == SPR_FRAME_DATA) {
            f.bytes = SPR_FRAME_MAX_PAYLOAD;
            f.flags = SPR_FRAME_CRC;
            f.payload_crc = 0x12345678;
        }
        spr_frame_seal(&f);
        fuzz_put_u8(&s, type % 2);
        fuzz_put_u16(&s, 77 * type);
        fuzz_put(&s, &f, sizeof f);
        fuzz_emit_seed(names[type], &s);
    }
}
