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
        FUZZ_CHECK(first.selection == second.selection && first.coder == second.coder);
        FUZZ_CHECK(memcmp(first.options, second.options, sizeof first.options) == 0);
        FUZZ_CHECK(!memcmp(first.coder_options, second.coder_options, sizeof first.coder_options));
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
        {"coded", 0, "topk:ratio=1%+int8:group=256,rounding=stochastic"},
        {"qsgd", 0, "qsgd:levels=4,bucket=64,norm=max,coding=elias"},
        {"alias", 0, "randomk"},
        {"onebit", 0, "onebit:momentum=0.8+sign:means=two"},
        {"threshold", 0, "threshold:by=rms,value=2.5,most=10%,low=0,high=10+int4"},
        {"reuse", 0, "reuse:ratio=1%,period=7,feedback=decay,decay=0.9"},
        {"dgc", 0, "dgc:ratio=0.1%,clip=2.5,warmup=100,masking=off,feedback=nesterov"},
        {"large", 0, "dgc:clip=205111111111105555555"},
        {"random", 0, "randomk:ratio=1e-9,scale=on,feedback=off+int8"},
        {"repeated", 0, "topk:ratio=1%,ratio=2%"},
        {"misplaced", 0, "fp16+topk"},
        {"unknown", 0, "none+fp32+fp64"},
    };

    fuzz_emit_texts(seeds, SPR_ARRAY_LEN(seeds));
}
