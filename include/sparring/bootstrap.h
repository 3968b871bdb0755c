/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How the ranks of a job find each other. Everything that spr_comm_create needs is one
 * non-blocking allgather; the built-in bootstraps are ready-made ones.
 */
#ifndef SPARRING_BOOTSTRAP_H
#define SPARRING_BOOTSTRAP_H

#include <sparring/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A user-supplied allgather. The caller owns the struct and ctx, which must stay valid until
 * spr_comm_create returned. All functions are called from the thread in spr_comm_create, one
 * allgather at a time, in the same order on all ranks.
 */
typedef struct spr_bootstrap {
    size_t struct_size; /* sizeof(spr_bootstrap) */
    void *ctx;
    uint32_t rank; /* this rank, 0..size-1 */
    uint32_t size; /* number of ranks */
    /* Start: `in` has `bytes` bytes, `out` has size * bytes, in rank order. Sets *request.
     * Buffers stay valid until test() no longer returns SPR_IN_PROGRESS. */
    spr_status (*allgather)(void *ctx, const void *in, void *out, size_t bytes, void **request);
    /* SPR_OK when complete, SPR_IN_PROGRESS, or an error. Must not block. Frees the request when it
     * does not return SPR_IN_PROGRESS. */
    spr_status (*test)(void *ctx, void *request);
    /* Free everything; may be NULL. Called once, also after an error. */
    void (*close)(void *ctx);
    /* A line that says what went wrong and which ranks are missing, or NULL. May be NULL. */
    const char *(*error)(void *ctx);
} spr_bootstrap;

#define SPR_BOOTSTRAP_INIT                                                                         \
    {                                                                                              \
        sizeof(spr_bootstrap), NULL, 0, 1, NULL, NULL, NULL, NULL                                  \
    }

#ifdef __cplusplus
}
#endif
#endif
