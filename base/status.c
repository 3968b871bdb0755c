/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Names: status codes, element types, reductions. One table each.
 */
#include <sparring/status.h>
#include <sparring/types.h>

#include <string.h>

#include "base/util.h"

struct status_entry {
    spr_status status;
    const char *name;
    const char *text;
};

#define S(code, text)                                                                              \
    {                                                                                              \
        code, #code, text                                                                          \
    }
static const struct status_entry status_table[] = {
    S(SPR_OK, "success"),
    S(SPR_IN_PROGRESS, "the request is still running"),
    S(SPR_ERR_INVALID, "an argument is invalid"),
    S(SPR_ERR_UNSUPPORTED, "not built in or not possible here"),
    S(SPR_ERR_NOMEM, "out of memory"),
    S(SPR_ERR_TIMEOUT, "the wait timed out; the request is still running"),
    S(SPR_ERR_CANCELED, "the request was cancelled"),
    S(SPR_ERR_MISMATCH, "the ranks called with different arguments"),
    S(SPR_ERR_NOT_FOUND, "not found"),
    S(SPR_ERR_TOO_SMALL, "the buffer is too small for the result"),
    S(SPR_ERR_LINK, "the connection to a rank broke"),
    S(SPR_ERR_PROTO, "a peer broke the protocol"),
    S(SPR_ERR_CORRUPT, "a checksum does not match"),
    S(SPR_ERR_RANK_LOST, "a rank died or left"),
    S(SPR_ERR_EXPELLED, "this rank was expelled by the others"),
    S(SPR_ERR_REVOKED, "the communicator was revoked by an earlier failure or abort"),
    S(SPR_ERR_DEADLINE, "the deadline of the operation passed"),
    S(SPR_ERR_BOOTSTRAP, "the ranks did not find each other"),
    S(SPR_ERR_AUTH, "a peer does not know the secret of the job"),
    S(SPR_ERR_SYSTEM, "the operating system refused a request"),
    S(SPR_ERR_FORKED, "called in a forked child"),
};
#undef S

static const struct status_entry *find_status(spr_status status)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(status_table); i++)
        if (status_table[i].status == status)
            return &status_table[i];
    return NULL;
}

const char *spr_status_string(spr_status status)
{
    const struct status_entry *e = find_status(status);

    return e ? e->text : "unknown status";
}

const char *spr_status_name(spr_status status)
{
    const struct status_entry *e = find_status(status);

    return e ? e->name : "SPR_ERR_UNKNOWN";
}

#define MAX_ALIASES 3

/* names[0] is the one that is printed; the others are accepted too. */
static const struct {
    size_t bytes;
    const char *names[1 + MAX_ALIASES];
} dtype_table[SPR_DTYPE_COUNT] = {
    [SPR_FP32] = {4, {"fp32", "float", "float32", "f32"}},
    [SPR_FP64] = {8, {"fp64", "double", "float64", "f64"}},
    [SPR_FP16] = {2, {"fp16", "half", "float16", "f16"}},
    [SPR_BF16] = {2, {"bf16", "bfloat16"}},
    [SPR_INT32] = {4, {"int32", "int", "i32"}},
    [SPR_INT64] = {8, {"int64", "long", "i64"}},
};

static const char *const op_names[SPR_OP_COUNT] = {
    [SPR_SUM] = "sum",
    [SPR_AVG] = "avg",
    [SPR_MIN] = "min",
    [SPR_MAX] = "max",
};

size_t spr_dtype_size(spr_dtype dtype)
{
    return dtype >= 0 && dtype < SPR_DTYPE_COUNT ? dtype_table[dtype].bytes : 0;
}

const char *spr_dtype_name(spr_dtype dtype)
{
    return dtype >= 0 && dtype < SPR_DTYPE_COUNT ? dtype_table[dtype].names[0] : "unknown";
}

const char *spr_op_name(spr_op op)
{
    return op >= 0 && op < SPR_OP_COUNT ? op_names[op] : "unknown";
}

spr_status spr_dtype_parse(const char *text, spr_dtype *dtype)
{
    if (!text || !dtype)
        return SPR_ERR_INVALID;
    for (int d = 0; d < SPR_DTYPE_COUNT; d++) {
        for (int i = 0; i <= MAX_ALIASES && dtype_table[d].names[i]; i++) {
            if (strcmp(text, dtype_table[d].names[i]) == 0) {
                *dtype = d;
                return SPR_OK;
            }
        }
    }
    return SPR_ERR_INVALID;
}

spr_status spr_op_parse(const char *text, spr_op *op)
{
    if (!text || !op)
        return SPR_ERR_INVALID;
    for (int i = 0; i < SPR_OP_COUNT; i++) {
        if (strcmp(text, op_names[i]) == 0) {
            *op = i;
            return SPR_OK;
        }
    }
    return SPR_ERR_INVALID;
}
