/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The file at which ranks meet (transport/bootstrap/root_file.c), and the addresses in it. Input: a
 * byte that is not used, the file.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "tests/fuzz/fuzz.h"
#include "transport/bootstrap/root_file.h"

static struct spr_place place, again;

/* Addresses written and read again: the same ones. */
static void check_again(uint64_t nonce)
{
    static char text[4096];
    char at[160];
    uint64_t nonce_again = ~nonce;
    size_t n =
        (size_t)snprintf(text, sizeof text, "sparring-root 1\nnonce %016" PRIx64 "\n", nonce);

    for (int i = 0; i < place.count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "at %s\n",
                              spr_address_text(&place.list[i], at, sizeof at));
    FUZZ_CHECK(n < sizeof text);
    memset(&again, 0, sizeof again);
    FUZZ_CHECK(spr_root_file_parse(text, &nonce_again, &again));
    FUZZ_CHECK(nonce_again == nonce && again.count == place.count);
    for (int i = 0; i < place.count; i++) {
        char second[160];
        FUZZ_CHECK(strcmp(spr_address_text(&place.list[i], at, sizeof at),
                          spr_address_text(&again.list[i], second, sizeof second)) == 0);
        FUZZ_CHECK(spr_address_loopback(&place.list[i]) == spr_address_loopback(&again.list[i]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    uint64_t nonce = 0;

    fuzz_u8(&in);
    char *text = fuzz_rest_text(&in);
    memset(&place, 0, sizeof place);
    if (spr_root_file_parse(text, &nonce, &place)) {
        FUZZ_CHECK(place.count > 0 && place.count <= SPR_PLACE_ADDRESSES);
        check_again(nonce);
    }
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct fuzz_text seeds[] = {
        {"file", 0,
         "sparring-root 1\nnonce 0123456789abcdef\nat 10.0.0.1:40123\n"
         "at [2001:db8::1]:40123\nat 127.0.0.1:40123\n"},
        {"loopback", 0, "sparring-root 1\nnonce ffffffffffffffff\nat [::1]:1\n"},
        {"unknown_line", 0, "sparring-root 1\nnonce 1\nby 1.2.3.4:5\nat 1.2.3.4:65535"},
        {"no_address", 0, "sparring-root 1\nnonce 1\nat host:5\n"},
    };

    fuzz_emit_texts(seeds, SPR_ARRAY_LEN(seeds));
}
