/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Descriptor: what an operation is, as all ranks must call it.
 *
 * Every frame of an operation carries the hash. When two ranks' hashes differ, the whole descriptor
 * travels, so that the error can name the field and both values (see dispute.c).
 */
#ifndef SPR_COLLECTIVES_DESCRIPTOR_H
#define SPR_COLLECTIVES_DESCRIPTOR_H

#include <stddef.h>
#include <stdint.h>

/* Also the payload of a DESCRIBE frame. Unused bytes are zero. */
struct spr_descriptor {
    uint32_t collective; /* enum spr_collective */
    uint32_t dtype, op, vtype;
    int32_t root; /* broadcast: the root; sendrecv: the shift */
    uint32_t size;
    uint64_t count;
    uint64_t codec_hash; /* of its canonical string and layout; 0: no codec */
    uint64_t codec_step; /* where ranks must be at the same (compress/codec.h), otherwise 0 */
    char algorithm[16];
    char name[64]; /* the call's name, "" for none */
};
_Static_assert(sizeof(struct spr_descriptor) == 128, "descriptor layout");

uint64_t spr_descriptor_hash(const struct spr_descriptor *d);

/* "allreduce #7 'layer3.weight': count 1024 on rank 0 (host a), 1023 on rank 2 (host b)": the first
 * field that differs. Descriptors may come from the wire: any bytes. `host_...` may be "". */
void spr_descriptor_explain(uint32_t operation, const struct spr_descriptor *a, int rank_a,
                            const char *host_a, const struct spr_descriptor *b, int rank_b,
                            const char *host_b, char *text, size_t bytes);

#endif
