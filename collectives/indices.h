/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How short the positions of sparse lists travel. Fewer bytes cost time of a CPU, twice: chunks are
 * checked, then used. Sums have the same bits whatever this is, and every chunk says it of itself,
 * so ranks need not agree; but what the model predicts must be the same on all of them.
 */
#ifndef SPR_COLLECTIVES_INDICES_H
#define SPR_COLLECTIVES_INDICES_H

#include "compress/indices/indices.h"

struct spr_comm;
struct spr_model;

/* SPARRING_INDICES; auto: as the model says, or if there is none, packed in bits where a link is
 * TCP. Returns one of SPR_INDICES_..., not AUTO. */
int spr_indices_of(const struct spr_comm *comm);
/* The one with the least time to encode, send and decode positions at a density of 1 %. */
int spr_indices_of_model(const struct spr_model *model);
/* The coder of chunks' format PACKED; NULL: it is not used. */
const struct spr_index_coder *spr_indices_coder(int indices);
/* Bytes of a position, where one in `every` has an entry, at random. */
double spr_indices_bytes(int indices, double every);

#endif
