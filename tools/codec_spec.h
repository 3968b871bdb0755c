/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codecs as tools take them: a selection that names no ratio takes the density.
 */
#ifndef SPR_TOOLS_CODEC_SPEC_H
#define SPR_TOOLS_CODEC_SPEC_H

#include <stddef.h>

#include "compress/codec.h"

/* What the codec string stands for. One that makes no sense is refused when it is made. */
struct spr_codec_kind codec_kind(const char *codec);
/* The collective whose algorithms a compressed allreduce with it runs. */
const char *codec_collective(const char *codec);
/* The codec with its ratio; 512 bytes suffice for one that spr_codec_create() takes. */
void codec_complete(const char *codec, double density, char *spec, size_t bytes);

#endif
