/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codecs as tools take them: a selection takes the density, unless it says how much it sends.
 */
#ifndef SPR_TOOLS_CODEC_SPEC_H
#define SPR_TOOLS_CODEC_SPEC_H

#include <stddef.h>

#include "compress/codec.h"

/* What the codec string stands for. One that makes no sense is refused when it is made. */
struct spr_codec_kind codec_kind(const char *codec);
/* The collective whose algorithms a compressed allreduce with it runs. */
const char *codec_collective(const char *codec);
/* Does it send the part of the elements that a ratio says, which the string or the library names?
 */
bool codec_goes_by_ratio(const char *codec);
/* ... or --density: the string does not, in no way. */
bool codec_takes_density(const char *codec);
/* The codec with its ratio, where it takes the density; 512 bytes suffice for one that
 * spr_codec_create() takes. */
void codec_complete(const char *codec, double density, char *spec, size_t bytes);

#endif
