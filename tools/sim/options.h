/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The command line of sparring-sim.
 */
#ifndef SPR_TOOLS_SIM_OPTIONS_H
#define SPR_TOOLS_SIM_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/codec_spec.h"
#include "tools/option_rows.h"
#include "tools/perf/support.h"

enum kind { KIND_ALLREDUCE, KIND_SPARSE, KIND_COMPRESSED, KIND_COUNT };
extern const char *const kind_names[KIND_COUNT];

/* Ranks that are simulated: with an algorithm by which all ranks talk to all, and with one by which
 * each talks to a few. Above these the model alone speaks. */
enum { MAX_SIMULATED = 512, MAX_SIMULATED_FEW = 4096 };
enum { MAX_RANKS = 65536, MAX_WORLDS = 16, MAX_LINKS = 16, MAX_DENSITIES = 32 };

struct options {
    enum kind kind;
    int ranks[MAX_WORLDS];
    size_t rank_count;
    int ranks_per_host, hosts_per_rack;
    double oversubscription;
    double slow;             /* the last host's port is so many times slower */
    double links[MAX_LINKS]; /* bit/s */
    size_t link_count;
    double latency_s, rack_latency_s;
    double local_link, local_latency_s; /* inside a host */
    const char *algorithm;              /* "auto", "all" or a name */
    size_t elements;
    double densities[MAX_DENSITIES];
    size_t density_count;
    enum pattern pattern;
    double overlap; /* 0..1 */
    const char *codec;
    uint64_t seed;
    bool levels;      /* tell of each */
    const char *json; /* NULL = none */
    char **command;
    int command_words;
};

/* Parse; what is wrong is said in one line on standard error. */
enum options_next options_parse(struct options *options, int argc, char **argv);

/* The collective whose algorithms a kind runs. */
const char *kind_algorithms(const struct options *options);
/* Are so many ranks simulated with this algorithm? Or is there the model alone? */
bool is_simulated(const struct options *options, enum kind kind, const char *algorithm, int ranks);
/* Does the model know all that they ask for? */
bool is_modelled(const struct options *options);

#endif
