/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Kinds of calls, as far as the choice of an algorithm goes, and their text:
 *
 *   COLLECTIVE:RANKS/HOSTS:COUNTxBYTES and, where they are not 0, fp32/fp32 or false,
 *   :ENTRIES :VALUES/SUMS :bounded or :hosts
 * VALUES and SUMS: fp32, fp16, bf16, or codedBITS, as many as a value takes, rounded ("coded": that
 * depends on the values).
 *   allreduce:8/4:1024x4
 *   sparse_allreduce:8/8:25557032x4:255571:fp16/fp32
 *   sparse_allreduce:8/4:25557032x4:coded8/coded8
 */
#ifndef SPR_COLLECTIVES_KIND_H
#define SPR_COLLECTIVES_KIND_H

#include <stdbool.h>
#include <stddef.h>

struct spr_comm;
struct spr_plan;

struct spr_kind {
    int collective; /* enum spr_collective */
    int ranks, hosts;
    size_t element_bytes, count, most_entries;
    int vtype, sum_vtype; /* enum spr_vtype; with the bounds it says who can do it */
    int bits, sum_bits;   /* of a coded value, about; else 0 */
    bool bound_union, bound_hosts;
};

struct spr_kind spr_kind_of(const struct spr_comm *comm, const struct spr_plan *plan);
/* Alike, their count and most_entries within this part of the larger one. */
bool spr_kind_near(const struct spr_kind *a, const struct spr_kind *b, double part);
/* Take one off the beginning of a text. False: there is none. */
bool spr_kind_take(const char **at, struct spr_kind *kind);
#define SPR_KIND_BYTES 112
/* Returns text. */
const char *spr_kind_print(const struct spr_kind *kind, char *text, size_t bytes);
/* Take a word off the beginning of a text, if it begins with that. */
bool spr_text_take(const char **at, const char *word);

#endif
