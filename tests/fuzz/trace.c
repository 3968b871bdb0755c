/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Recorded gradients (tools/perf/trace.c). Input: mode (bit 0: a length that fits the file), the
 * file of step 3, rank 0.
 */
#include "tools/perf/trace.h"

#include <stdlib.h>

#include "tests/fuzz/files.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    struct spr_error error = {.rank = -1};
    const float *elements = NULL;
    struct trace trace;
    uint8_t mode = fuzz_u8(&in);
    size_t bytes = in.left;
    uint8_t *file = fuzz_rest(&in);

    if (mode & 1 && bytes >= 32) {
        const uint64_t count = (bytes - 32) / 4;
        memcpy(file + 24, &count, sizeof count);
        bytes = 32 + 4 * (size_t)count;
    }
    fuzz_file("step3.rank0.f32", file, bytes);
    spr_status status = trace_open(&trace, fuzz_folder(), &error);
    if (status != SPR_OK) {
        FUZZ_CHECK(status == SPR_ERR_CORRUPT && *error.text && !trace.steps);
    } else {
        FUZZ_CHECK(trace.step_count == 1 && trace.steps[0] == 3);
        FUZZ_CHECK(trace.elements > 0 && bytes == 32 + trace.elements * sizeof(float));
        FUZZ_CHECK(trace_map(&trace, 0, 0, &elements, &error) == SPR_OK);
        FUZZ_CHECK(memcmp(elements, file + 32, bytes - 32) == 0);
        trace_unmap(&trace, elements);
        FUZZ_CHECK(trace_map(&trace, 0, 1, &elements, &error) == SPR_ERR_NOT_FOUND);
        trace_close(&trace);
    }
    free(file);
    return 0;
}

void fuzz_seeds(void)
{
    static struct fuzz_seed s;
    const uint32_t numbers[] = {1, 0, 3, 2, 2, 0};
    const float values[] = {1.5f, -2.5f};

    for (unsigned mode = 0; mode < 2; mode++) {
        fuzz_put_u8(&s, mode);
        fuzz_put(&s, "SPRTRACE", 8);
        fuzz_put(&s, numbers, sizeof numbers);
        fuzz_put(&s, values, sizeof values);
        fuzz_emit_seed(mode ? "fitted" : "whole", &s);
    }
}
