/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec_spec.h"

#include <stdio.h>
#include <string.h>

#include "base/opt.h"

struct spr_codec_kind codec_kind(const char *codec)
{
    struct spr_codec_kind kind = {.dense = true, .conserves = true};
    struct spr_error ignored = {0};

    (void)spr_codec_kind_of(codec, &kind, &ignored);
    return kind;
}

const char *codec_collective(const char *codec)
{
    struct spr_codec_kind kind = codec_kind(codec);

    return kind.lists || kind.coded ? "sparse_allreduce" : "allreduce";
}

static bool names(const char *codec, const char *option) { return strstr(codec, option) != NULL; }

bool codec_goes_by_ratio(const char *codec)
{
    return !codec_kind(codec).dense && !names(codec, "count=") && !names(codec, "by=absolute") &&
           !names(codec, "by=rms");
}

bool codec_takes_density(const char *codec)
{
    return codec_goes_by_ratio(codec) && !names(codec, "ratio=") && !names(codec, "bytes=");
}

void codec_complete(const char *codec, double density, char *spec, size_t bytes)
{
    char ratio[32];
    size_t name = strcspn(codec, ":+");

    if (!codec_takes_density(codec)) {
        snprintf(spec, bytes, "%s", codec);
        return;
    }
    snprintf(spec, bytes, "%.*s:ratio=%s%s%s", (int)name, codec,
             spr_print_double(density, ratio, sizeof ratio), codec[name] == ':' ? "," : "",
             codec + name + (codec[name] == ':'));
}
