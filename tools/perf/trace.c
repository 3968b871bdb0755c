/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/perf/trace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct trace_header {
    char magic[8];
    uint32_t version, rank, step, ranks;
    uint64_t elements;
};
_Static_assert(sizeof(struct trace_header) == 32, "the header has no padding");

static int ascending(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* The step in a name "step<S>.rank0.f32". */
static bool step_of(const char *name, uint32_t *step)
{
    int length = 0;
    return sscanf(name, "step%" SCNu32 ".rank0.f32%n", step, &length) == 1 && length > 0 &&
           name[length] == '\0';
}

static spr_status list_steps(struct trace *trace, struct spr_error *error)
{
    DIR *directory = opendir(trace->directory);
    const struct dirent *entry;
    uint32_t step;

    if (directory == NULL)
        return spr_error_errno(error, SPR_ERR_NOT_FOUND, -1, errno, "%s", trace->directory);
    while ((entry = readdir(directory)) != NULL) {
        if (!step_of(entry->d_name, &step))
            continue;
        uint32_t *steps = realloc(trace->steps, (trace->step_count + 1) * sizeof *steps);
        if (steps == NULL) {
            closedir(directory);
            return spr_error_set(error, SPR_ERR_NOMEM, -1, "out of memory");
        }
        trace->steps = steps;
        steps[trace->step_count++] = step;
    }
    closedir(directory);
    if (trace->step_count == 0)
        return spr_error_set(error, SPR_ERR_NOT_FOUND, -1, "%s has no file step<S>.rank0.f32",
                             trace->directory);
    qsort(trace->steps, trace->step_count, sizeof *trace->steps, ascending);
    return SPR_OK;
}

/* Everything about a header that can be wrong; NULL when nothing is. */
static const char *header_fault(const struct trace *trace, const struct trace_header *header,
                                uint32_t step, uint32_t rank, uint64_t file_bytes)
{
    if (memcmp(header->magic, "SPRTRACE", sizeof header->magic) != 0)
        return "is not a trace (magic)";
    if (header->version != 1)
        return "has another version than 1";
    if (header->rank != rank || header->step != step)
        return "is of another rank or step than its name says";
    if (header->elements == 0 || header->elements > (uint64_t)1 << 32 ||
        file_bytes != sizeof *header + header->elements * sizeof(float))
        return "has another length than its header says";
    if (trace->elements != 0 &&
        (header->elements != trace->elements || header->ranks != trace->ranks))
        return "has other elements or ranks than the first file";
    return NULL;
}

/* Open and check; the header of the first file gives the trace its size. */
static spr_status map(struct trace *trace, size_t step, int rank, const float **elements,
                      struct spr_error *error)
{
    char path[4096];
    struct stat about;
    spr_status status = SPR_OK;
    void *base = MAP_FAILED;

    snprintf(path, sizeof path, "%s/step%" PRIu32 ".rank%d.f32", trace->directory,
             trace->steps[step], rank);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return spr_error_errno(error, SPR_ERR_NOT_FOUND, rank, errno, "%s", path);
    if (fstat(fd, &about) == 0 && about.st_size >= (off_t)sizeof(struct trace_header))
        base = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (base == MAP_FAILED)
        return spr_error_set(error, SPR_ERR_CORRUPT, rank, "%s is too short for a trace", path);
    const struct trace_header *header = base;
    const char *fault =
        header_fault(trace, header, trace->steps[step], (uint32_t)rank, (uint64_t)about.st_size);
    if (fault != NULL) {
        status = spr_error_set(error, SPR_ERR_CORRUPT, rank, "%s %s", path, fault);
        munmap(base, (size_t)about.st_size);
    } else {
        trace->elements = header->elements;
        trace->ranks = header->ranks;
        *elements = (const float *)(header + 1);
    }
    return status;
}

spr_status trace_map(const struct trace *trace, size_t step, int rank, const float **elements,
                     struct spr_error *error)
{
    struct trace checked = *trace;
    return map(&checked, step, rank, elements, error);
}

void trace_unmap(const struct trace *trace, const float *elements)
{
    if (elements != NULL)
        munmap((struct trace_header *)(uintptr_t)elements - 1,
               sizeof(struct trace_header) + trace->elements * sizeof(float));
}

spr_status trace_open(struct trace *trace, const char *directory, struct spr_error *error)
{
    const float *elements = NULL;
    spr_status status;

    *trace = (struct trace){.directory = directory};
    status = list_steps(trace, error);
    if (status == SPR_OK)
        status = map(trace, 0, 0, &elements, error);
    if (status == SPR_OK)
        trace_unmap(trace, elements);
    else
        trace_close(trace);
    return status;
}

void trace_close(struct trace *trace)
{
    free(trace->steps);
    *trace = (struct trace){0};
}
