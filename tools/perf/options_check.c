/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/options_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tools/collective_options.h"

const char *const kind_names[KIND_COUNT] = {
    "allreduce", "reduce_scatter", "allgather",        "broadcast",
    "sendrecv",  "barrier",        "sparse_allreduce", "compressed_allreduce"};

const char *kind_algorithms(const struct options *options)
{
    return options->kind == KIND_COMPRESSED ? codec_collective(options->codec)
                                            : kind_names[options->kind];
}

const char *pattern_name(const struct options *options)
{
    return options->pattern == PATTERN_TRACE ? options->trace_directory - strlen("trace:")
                                             : pattern_names[options->pattern];
}

/* One name of a list. Returns "auto", the library's name, or NULL: the collective has no such one.
 */
static const char *find_algorithm(const char *collective, const char *word, size_t length)
{
    const char *name = "auto";

    for (int i = 0; name != NULL; name = spr_algorithm_name(collective, i++))
        if (strlen(name) == length && strncmp(name, word, length) == 0)
            return name;
    return NULL;
}

static bool is_all(const char *word, size_t length)
{
    return length == strlen("all") && strncmp(word, "all", length) == 0;
}

const char *options_algorithm(const char *collective, const char *list, int i)
{
    for (size_t length;; list += length + 1) {
        length = strcspn(list, ",");
        if (is_all(list, length)) {
            const char *name;
            for (int k = 0; (name = spr_algorithm_name(collective, k)) != NULL; k++)
                if (i-- == 0)
                    return name;
        } else if (i-- == 0) {
            return find_algorithm(collective, list, length);
        }
        if (list[length] == '\0')
            return NULL;
    }
}

bool options_several_algorithms(const struct options *options)
{
    return strcmp(options->algorithm, "all") == 0 || strchr(options->algorithm, ',') != NULL;
}

static enum options_next check_algorithms(const struct options *options)
{
    char name[64];

    for (const char *word = options->algorithm;; word += strlen(name) + 1) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(word, ","), word);
        if (check_algorithm(kind_algorithms(options), name) != OPTIONS_RUN)
            return OPTIONS_WRONG;
        if (word[strlen(name)] == '\0')
            return OPTIONS_RUN;
    }
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
    if (options->pattern == PATTERN_TRACE && options->overlap > 0)
        return options_wrong("--overlap is of made-up data, not of a trace");
    if (options->kind != KIND_SPARSE && options->list_result)
        return options_wrong("--result is of sparse_allreduce");
    if (options->kind == KIND_COMPRESSED &&
        check_codec(options->codec, options->densities, &options->density_count) != OPTIONS_RUN)
        return OPTIONS_WRONG;
    if (options->kind != KIND_COMPRESSED && strcmp(options->codec, "topk") != 0)
        return options_wrong("--codec is of compressed_allreduce");
    if (check_buckets(options) != OPTIONS_RUN)
        return OPTIONS_WRONG;
    return check_algorithms(options);
}

static enum options_next check_elastic(const struct options *options, uint64_t used)
{
    static const char *const taken[] = {"elastic", "begin",    "end",      "iterations",
                                        "op",      "datatype", "transport"};

    for (int i = 0; i < tool.row_count; i++) {
        bool needed = !(used >> i & 1);
        for (size_t k = 0; k < SPR_ARRAY_LEN(taken) && !needed; k++)
            needed = strcmp(tool.rows[i].name, taken[k]) == 0;
        if (!needed)
            return options_wrong("--elastic has no use for --%s", tool.rows[i].name);
    }
    if (options->kind != KIND_ALLREDUCE || options->dtype != SPR_FP32 || options->op != SPR_SUM ||
        options->begin_bytes != options->end_bytes || options->begin_bytes < sizeof(float))
        return options_wrong("--elastic is of allreduce of fp32, sum, of one size (-b and -e)");
    return OPTIONS_RUN;
}

enum options_next options_complete(struct options *options, uint64_t used, int words, char **word)
{
    const size_t begin_bytes = 1024, end_bytes = (size_t)16 << 20;
    int kind = (int)options->kind;

    if (take_collective(words, word, kind_names, KIND_COUNT, &kind) != OPTIONS_RUN)
        return OPTIONS_WRONG;
    options->kind = (enum kind)kind;
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
    if (options->elastic && check_elastic(options, used) != OPTIONS_RUN)
        return OPTIONS_WRONG;
    if (options->density_count == 0) {
        options->densities[0] = 0.01;
        options->density_count = 1;
    }
    return OPTIONS_RUN;
}
