/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codec strings (compress/codec_parse.c). Input: a byte that is not used, the string.
 */
#include <stdlib.h>

#include "compress/codec_internal.h"
#include "base/util.h"
#include "tests/fuzz/fuzz.h"

static spr_codec first, second;

static spr_status parse(const char *spec, spr_codec *codec, struct spr_error *error)
{
    memset(codec, 0, sizeof *codec);
    return spr_codec_parse(spec, codec, error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    struct spr_error error = {.rank = -1};

    fuzz_u8(&in);
    char *spec = fuzz_rest_text(&in);
    spr_status status = parse(spec, &first, &error);
    if (status != SPR_OK) {
        FUZZ_CHECK(status == SPR_ERR_INVALID && error.status == status && *error.text);
    } else {
        /* What it prints means the same, and is printed the same again. */
        FUZZ_CHECK(memchr(first.spec, '\0', sizeof first.spec) && *first.spec);
        FUZZ_CHECK(parse(first.spec, &second, &error) == SPR_OK);
        FUZZ_CHECK(strcmp(first.spec, second.spec) == 0);
        FUZZ_CHECK(first.selection == second.selection && first.rounding == second.rounding);
        FUZZ_CHECK(memcmp(first.options, second.options, sizeof first.options) == 0);
    }
    free(spec);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct fuzz_text seeds[] = {
        {"none", 0, "none"},
        {"fp16", 0, "fp16"},
        {"topk", 0, "topk"},
        {"topk_bf16", 0, "topk:ratio=1%+bf16"},
        {"topk_options", 0, "topk:ratio=0.01,feedback=off+fp16"},
        {"repeated", 0, "topk:ratio=1%,ratio=2%"},
        {"misplaced", 0, "fp16+topk"},
        {"unknown", 0, "none+fp32+fp64"},
    };

    fuzz_emit_texts(seeds, SPR_ARRAY_LEN(seeds));
}
