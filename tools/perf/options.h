/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The command line of sparring-perf.
 */
#ifndef SPR_TOOLS_PERF_OPTIONS_H
#define SPR_TOOLS_PERF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sparring/sparring.h>

#include "tools/codec_spec.h"
#include "tools/option_rows.h"
#include "tools/perf/support.h"

enum kind {
    KIND_ALLREDUCE,
    KIND_REDUCE_SCATTER,
    KIND_ALLGATHER,
    KIND_BROADCAST,
    KIND_SENDRECV,
    KIND_BARRIER,
    KIND_SPARSE,
    KIND_COMPRESSED,
    KIND_COUNT
};
extern const char *const kind_names[KIND_COUNT];

enum { MAX_DENSITIES = 32, MAX_BUCKETS = 1024 };

struct options {
    enum kind kind;
    size_t begin_bytes, end_bytes; /* 0 = not given */
    double factor;                 /* of sizes; 0 = the increment counts */
    size_t increment_bytes;
    size_t elements; /* 0 = sizes count */
    int iterations;  /* 0 = chosen by duration */
    int warmup;
    bool check;
    bool elastic;
    spr_dtype dtype;
    spr_op op;              /* -1 until the collective is known */
    const char *algorithm;  /* a list of "auto", "all" and names */
    const char *transports; /* NULL = the library's choice */
    const char *codec;
    size_t buckets; /* of a gradient, posted one after another; 0 = not given */
    double densities[MAX_DENSITIES];
    size_t density_count; /* 0 = not given */
    uint64_t seed;
    enum pattern pattern;
    const char *trace_directory;
    double overlap; /* 0..1 */
    bool baseline;
    bool explain;                   /* measure a model, and say what is predicted */
    bool tune;                      /* measure what can do a row before "auto" does */
    bool dense_result, list_result; /* of sparse_allreduce */
    const char *json;               /* NULL = none */
    char **command;
    int command_words;
};

/* Parse; what is wrong is said in one line on standard error, by rank 0 only. */
enum options_next options_parse(struct options *options, int argc, char **argv);

/* The collective whose algorithms a kind runs: "sparse_allreduce" for a compressed one. */
const char *kind_algorithms(const struct options *options);
/* The i-th of a list of algorithms, in which "all" stands for all of the collective, or NULL. */
const char *options_algorithm(const char *collective, const char *list, int i);
/* Those that cannot do what is asked for are left out, unless there is one only. */
bool options_several_algorithms(const struct options *options);
/* The pattern as given. */
const char *pattern_name(const struct options *options);

#endif
