/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/sim/input.h"

#include "base/mem.h"
#include "base/util.h"
#include "tools/matrix_layout.h"
#include "tools/perf/data.h"

enum { BLOCK = 4096 };

/* Entries of a rank; into the list, if that has memory. */
static size_t entries(const struct support *support, int rank, spr_sparse *list)
{
    uint8_t mask[BLOCK];
    float value[BLOCK] = {0};
    size_t n = 0;

    for (size_t first = 0; first < support->elements; first += BLOCK) {
        size_t count = spr_min_size(BLOCK, support->elements - first);
        support_sparse(support, rank, first, count, mask, list->index != NULL ? value : NULL);
        for (size_t k = 0; k < count; k++) {
            if (mask[k] && list->index != NULL) {
                list->index[n] = (uint32_t)(first + k);
                list->value[n] = value[k];
            }
            n += mask[k];
        }
    }
    return n;
}

static bool make_list(const struct support *support, int rank, spr_sparse *list)
{
    size_t count = entries(support, rank, list);

    list->index = spr_calloc(count + 1, sizeof *list->index);
    list->value = spr_calloc(count + 1, sizeof *list->value);
    list->count = list->capacity = count;
    if (list->index == NULL || list->value == NULL)
        return false;
    entries(support, rank, list);
    return true;
}

static bool make_rank(struct input *input, int rank)
{
    size_t elements = input->support.elements;

    input->vectors[rank] = spr_calloc(elements, sizeof *input->vectors[rank]);
    if (input->vectors[rank] == NULL)
        return false;
    if (input->kind == KIND_SPARSE)
        return make_list(&input->support, rank, &input->lists[rank]);
    input_values(input, rank, 0, elements, input->vectors[rank]);
    return true;
}

bool input_open(struct input *input, const struct options *options, enum kind kind, int ranks,
                double density)
{
    *input = (struct input){.kind = kind,
                            .ranks = ranks,
                            .support = {.pattern = options->pattern,
                                        .elements = options->elements,
                                        .density = density,
                                        .overlap = options->overlap,
                                        .seed = options->seed}};
    if (!support_open(&input->support))
        return false;
    input->lists = spr_calloc((size_t)ranks, sizeof *input->lists);
    input->vectors = spr_calloc((size_t)ranks, sizeof *input->vectors);
    input->codecs = spr_calloc((size_t)ranks, sizeof *input->codecs);
    bool done = input->lists != NULL && input->vectors != NULL && input->codecs != NULL;
    for (int r = 0; done && r < ranks; r++)
        done = make_rank(input, r);
    if (!done)
        input_close(input);
    return done;
}

spr_status input_codecs(struct input *input, const char *spec)
{
    spr_layout layout[2];
    size_t parameters = matrix_layout(input->support.elements, 0, layout);
    spr_status status = SPR_OK;

    for (int r = 0; status == SPR_OK && r < input->ranks; r++)
        status = spr_codec_create(spec, layout, parameters, &input->codecs[r]);
    return status;
}

void input_close(struct input *input)
{
    for (int r = 0; r < input->ranks; r++) {
        if (input->lists != NULL) {
            spr_free(input->lists[r].index);
            spr_free(input->lists[r].value);
        }
        if (input->vectors != NULL)
            spr_free(input->vectors[r]);
        if (input->codecs != NULL)
            spr_codec_destroy(input->codecs[r]);
    }
    spr_free(input->lists);
    spr_free(input->vectors);
    spr_free(input->codecs);
    support_close(&input->support);
    *input = (struct input){0};
}

void input_values(const struct input *input, int rank, size_t first, size_t count, float *value)
{
    if (input->kind == KIND_ALLREDUCE)
        data_fill(SPR_FP32, input->support.seed, rank, first, count, value);
    else if (input->kind == KIND_SPARSE)
        support_sparse(&input->support, rank, first, count, NULL, value);
    else
        support_gradient(&input->support, rank, first, count, value);
}
