/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/options_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/opt.h"
#include "tools/command_line.h"

const char *const kind_names[KIND_COUNT] = {
    "allreduce", "reduce_scatter", "allgather",        "broadcast",
    "sendrecv",  "barrier",        "sparse_allreduce", "compressed_allreduce"};

bool options_first_rank(void)
{
    static const char *const names[] = {"SPARRING_RANK",        "RANK",     "PMIX_RANK",
                                        "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < SPR_ARRAY_LEN(names); i++)
        if (getenv(names[i]) != NULL)
            return strcmp(getenv(names[i]), "0") == 0;
    return true;
}

const char *kind_algorithms(const struct options *options)
{
    if (options->kind != KIND_COMPRESSED)
        return kind_names[options->kind];
    struct spr_codec_kind kind = codec_kind(options->codec);
    return kind_names[kind.lists || kind.coded ? KIND_SPARSE : KIND_ALLREDUCE];
}

const char *pattern_name(const struct options *options)
{
    static const char *const names[] = {"uniform", "layers", "cluster", "zipf"};
    return options->pattern == PATTERN_TRACE ? options->trace_directory - strlen("trace:")
                                             : names[options->pattern];
}

static enum options_next check_algorithm(const struct options *options)
{
    const char *collective = kind_algorithms(options), *name;
    char names[256] = "auto, all";

    if (strcmp(options->algorithm, "auto") == 0 || strcmp(options->algorithm, "all") == 0)
        return OPTIONS_RUN;
    for (int i = 0; (name = spr_algorithm_name(collective, i)) != NULL; i++) {
        size_t used = strlen(names);
        if (strcmp(name, options->algorithm) == 0)
            return OPTIONS_RUN;
        snprintf(names + used, sizeof names - used, ", %s", name);
    }
    return options_wrong("%s has no algorithm '%s'; there is: %s", collective, options->algorithm,
                         names);
}

/* Density and codec have one truth: a ratio in the codec is the density. */
static enum options_next check_codec(struct options *options)
{
    spr_layout layout = {.id = 1, .rows = 1, .columns = 1};
    spr_codec *codec;
    const char *ratio = strstr(options->codec, "ratio=");
    double value;

    if (spr_codec_create(options->codec, &layout, 1, &codec) != SPR_OK)
        return options_wrong("--codec: %s", spr_last_error(NULL));
    spr_codec_destroy(codec);
    if (options->density_count > 0 && (ratio != NULL || codec_kind(options->codec).dense))
        return options_wrong("--density and the codec '%s' exclude each other", options->codec);
    if (ratio != NULL) {
        char text[32];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(ratio + 6, ",+"), ratio + 6);
        if (spr_parse_ratio(text, &value)) {
            options->densities[0] = value;
            options->density_count = 1;
        }
    }
    return OPTIONS_RUN;
}

/* Of a trace without a size that is known when it is open. */
static enum options_next check_buckets(const struct options *options)
{
    size_t elements = options->elements > 0 ? options->elements
                                            : options->begin_bytes / spr_dtype_size(options->dtype);

    if (options->buckets == 0)
        return OPTIONS_RUN;
    if (options->kind != KIND_COMPRESSED)
        return options_wrong("--buckets is of compressed_allreduce");
    if (elements > 0 && options->buckets > elements)
        return options_wrong("--buckets: %zu are more than the %zu element%s of the smallest size",
                             options->buckets, elements, spr_plural(elements));
    return OPTIONS_RUN;
}

static enum options_next check_kind(struct options *options)
{
    bool sparse = options->kind == KIND_SPARSE || options->kind == KIND_COMPRESSED;

    if (options->op < 0)
        options->op = options->kind == KIND_COMPRESSED ? SPR_AVG : SPR_SUM;
    if (sparse && (options->dtype != SPR_FP32 || options->op > SPR_AVG))
        return options_wrong("%s is of fp32 and sum or avg only", kind_names[options->kind]);
    if (!sparse && (options->density_count > 0 || options->pattern != PATTERN_UNIFORM ||
                    options->overlap > 0 || options->baseline || !options->dense_result))
        return options_wrong("--density, --pattern, --overlap, --result and --baseline are of "
                             "sparse collectives, not of %s",
                             kind_names[options->kind]);
    if (options->kind != KIND_SPARSE && options->list_result)
        return options_wrong("--result is of sparse_allreduce");
    if (options->kind == KIND_COMPRESSED && check_codec(options) != OPTIONS_RUN)
        return OPTIONS_WRONG;
    if (options->kind != KIND_COMPRESSED && strcmp(options->codec, "topk") != 0)
        return options_wrong("--codec is of compressed_allreduce");
    return check_buckets(options) == OPTIONS_RUN ? check_algorithm(options) : OPTIONS_WRONG;
}

enum options_next options_complete(struct options *options, uint64_t used, int words, char **word)
{
    const size_t begin_bytes = 1024, end_bytes = (size_t)16 << 20;

    (void)used;
    if (words > 1)
        return options_wrong("one collective only, not '%s' and '%s'", word[0], word[1]);
    if (words == 1) {
        int kind = 0;
        while (kind < KIND_COUNT && strcmp(word[0], kind_names[kind]) != 0)
            kind++;
        if (kind == KIND_COUNT)
            return options_wrong("unknown collective '%s'", word[0]);
        options->kind = (enum kind)kind;
    }
    if (options->elements > 0 && (options->begin_bytes > 0 || options->end_bytes > 0))
        return options_wrong("--elements excludes -b and -e");
    if (options->begin_bytes > 0 && options->end_bytes > 0 &&
        options->begin_bytes > options->end_bytes)
        return options_wrong("-b is larger than -e");
    /* Of a trace the size is known. */
    if (options->pattern != PATTERN_TRACE || options->begin_bytes > 0 || options->end_bytes > 0) {
        if (options->begin_bytes == 0)
            options->begin_bytes = options->end_bytes > 0
                                       ? spr_min_size(begin_bytes, options->end_bytes)
                                       : begin_bytes;
        if (options->end_bytes == 0)
            options->end_bytes = spr_max_size(end_bytes, options->begin_bytes);
    }
#ifndef HAVE_JANSSON
    if (options->json != NULL)
        return options_wrong("--json: this program was built without libjansson");
#endif
    if (check_kind(options) != OPTIONS_RUN)
        return OPTIONS_WRONG;
    if (options->elastic &&
        (options->kind != KIND_ALLREDUCE || options->dtype != SPR_FP32 || options->op != SPR_SUM ||
         options->begin_bytes != options->end_bytes || options->begin_bytes < sizeof(float)))
        return options_wrong("--elastic is of allreduce of fp32, sum, of one size (-b and -e)");
    if (options->density_count == 0) {
        options->densities[0] = 0.01;
        options->density_count = 1;
    }
    return OPTIONS_RUN;
}
