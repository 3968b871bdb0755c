/* SPDX-License-Identifier: BSD-2-Clause */
#include "digits_trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct trace_header {
    char magic[8];
    uint32_t version, rank, step, ranks;
    uint64_t elements;
} trace_header;

_Static_assert(sizeof(trace_header) == 32, "the header has no padding");

int digits_trace_write(const char *directory, const digits_trace *trace, const float *gradient,
                       char *error, size_t capacity)
{
    trace_header header = {"SPRTRACE", 1, trace->rank, trace->step, trace->ranks, trace->elements};
    char path[4096];
    FILE *file;

    snprintf(path, sizeof(path), "%s/step%u.rank%u.f32", directory, trace->step, trace->rank);
    if ((mkdir(directory, 0777) && errno != EEXIST) || !(file = fopen(path, "wb"))) {
        snprintf(error, capacity, "%s: %s", path, strerror(errno));
        return -1;
    }
    int failed = fwrite(&header, sizeof(header), 1, file) != 1 ||
                 fwrite(gradient, sizeof(float), trace->elements, file) != trace->elements;
    failed |= fclose(file) != 0;
    if (failed)
        snprintf(error, capacity, "%s: %s", path, strerror(errno));
    return failed ? -1 : 0;
}
