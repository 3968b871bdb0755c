/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Bucket memory: aligned, in huge pages where there are any, locked where the limit allows, known
 * to the transports. Any other memory works too; this one is faster.
 */
#ifndef SPARRING_MEM_H
#define SPARRING_MEM_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Allocate `bytes` bytes, zeroed, aligned to 4096 at least, registered with the communicator's
 * transports. Free with spr_mem_free before spr_comm_destroy. When the memlock limit refuses
 * locking, one warning names the limit and the memory is used unlocked. Errors: INVALID, NOMEM,
 * FORKED (in a forked child).
 */
spr_status spr_mem_alloc(spr_comm *comm, size_t bytes, void **memory);
void spr_mem_free(spr_comm *comm, void *memory);

/*
 * Register the caller's own memory; it must stay mapped until spr_mem_deregister or
 * spr_comm_destroy. Registering is an optimisation: when a transport refuses (memlock) it is not an
 * error. Errors: INVALID (overlaps a registered range), FORKED.
 */
spr_status spr_mem_register(spr_comm *comm, void *memory, size_t bytes);
/*
 * Likewise, for memory that is part of a DMA-BUF, such as a GPU's driver exports: `memory` is where
 * it is mapped for the CPU, which does the sums, and begins at `offset` bytes of it. An RDMA device
 * that takes DMA-BUFs (sparring-info says so) goes by `fd`; where none does, one warning says so
 * and the mapping is registered. Other transports go by the mapping. `fd` stays the caller's, and
 * may be closed. Errors: INVALID (also: no such descriptor), NOMEM, FORKED.
 */
spr_status spr_mem_register_dmabuf(spr_comm *comm, void *memory, size_t bytes, int fd,
                                   uint64_t offset);
/* Of either kind. */
spr_status spr_mem_deregister(spr_comm *comm, void *memory);

#ifdef __cplusplus
}
#endif
#endif
