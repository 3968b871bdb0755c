/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/codec.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "compress/codec_internal.h"

#define MAX_ELEMENTS (UINT64_C(1) << 32) /* indices are u32 */

/* FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv). */
static uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_codec(const char *spec, const spr_layout *layout, size_t parameters)
{
    uint64_t hash = fnv1a(UINT64_C(0xcbf29ce484222325), spec, strlen(spec));

    for (size_t i = 0; i < parameters; i++) {
        uint64_t words[4] = {layout[i].id, layout[i].offset, layout[i].rows, layout[i].columns};
        hash = fnv1a(hash, words, sizeof(words));
    }
    return hash;
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct spr_codec_parameter *)a)->id;
    uint64_t y = ((const struct spr_codec_parameter *)b)->id;

    return (x > y) - (x < y);
}

static const char *name_of(const spr_layout *l) { return l->name ? l->name : "unnamed"; }

/* Check the layout and copy it, ascending by id. */
static spr_status take_layout(spr_codec *codec, const spr_layout *layout, struct spr_error *error)
{
    uint64_t elements = 0;

    for (size_t i = 0; i < codec->parameter_count; i++) {
        const spr_layout *l = &layout[i];
        unsigned __int128 size = (unsigned __int128)l->rows * l->columns;

        if (l->offset != elements)
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "parameter %s (id %" PRIu64 ") begins at element %zu, but the "
                                 "parameters before it end at %" PRIu64,
                                 name_of(l), l->id, l->offset, elements);
        if (size > MAX_ELEMENTS - elements)
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "the vector is longer than 2^32 elements at parameter %s (id "
                                 "%" PRIu64 "): use several codecs",
                                 name_of(l), l->id);
        codec->parameters[i] = (struct spr_codec_parameter){
            .id = l->id,
            .elements = (uint64_t)size,
            .offset = elements,
            .rows = l->rows,
            .columns = l->columns,
            .place = i,
        };
        elements += (uint64_t)size;
    }
    if (elements == 0)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "the layout has no elements");
    codec->elements = (size_t)elements;
    qsort(codec->parameters, codec->parameter_count, sizeof(*codec->parameters), by_id);
    for (size_t i = 1; i < codec->parameter_count; i++)
        if (codec->parameters[i].id == codec->parameters[i - 1].id)
            return spr_error_set(error, SPR_ERR_INVALID, -1, "two parameters have the id %" PRIu64,
                                 codec->parameters[i].id);
    for (size_t i = 0; i < codec->parameter_count; i++) {
        const struct spr_codec_parameter *p = &codec->parameters[i];
        codec->tensors[i] = (struct spr_lowrank_tensor){p->offset, p->rows, p->columns};
    }
    return SPR_OK;
}

static spr_status allocate(spr_codec *codec, struct spr_error *error)
{
    size_t residual_bytes = codec->elements * sizeof(float);
    bool velocity = spr_codec_has_velocity(codec);

    codec->workspace_bytes = codec->selection->steps->workspace(codec);
    codec->residual = spr_pages_alloc(residual_bytes);
    if (codec->residual && velocity)
        codec->velocity = spr_pages_alloc(residual_bytes);
    if (codec->residual)
        codec->workspace = spr_pages_alloc(codec->workspace_bytes);
    if (!codec->residual || (velocity && !codec->velocity) || !codec->workspace ||
        spr_codec_quantise_open(codec) != SPR_OK)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for codec %s: %zu + %zu bytes",
                             codec->spec, residual_bytes * (velocity ? 2 : 1),
                             codec->workspace_bytes);
    codec->residual_zero = true;
    codec->committed = -1;
    codec->selection->steps->init(codec);
    return SPR_OK;
}

spr_status spr_codec_create(const char *spec, const spr_layout *layout, size_t parameters,
                            spr_codec **codec)
{
    struct spr_error *error = spr_thread_error();
    spr_status status;

    spr_error_clear(error);
    if (!spec || !layout || parameters == 0 || !codec)
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "spr_codec_create: spec, layout and codec must be given");
    spr_codec *c = spr_calloc(1, sizeof(*c));
    if (!c)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for a codec");
    status = spr_codec_parse(spec, c, error);
    if (status != SPR_OK)
        goto undo;
    c->parameter_count = parameters;
    c->parameters = spr_calloc(parameters, sizeof(*c->parameters));
    c->tensors = spr_calloc(parameters, sizeof(*c->tensors));
    if (!c->parameters || !c->tensors) {
        status = spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the layout of a codec");
        goto undo;
    }
    status = take_layout(c, layout, error);
    if (status != SPR_OK)
        goto undo;
    if (spr_codec_adapt_open(c) != SPR_OK) {
        status = spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the layout of a codec");
        goto undo;
    }
    status = allocate(c, error);
    if (status != SPR_OK)
        goto undo;
    if (spr_quality_open(c, layout, parameters) != SPR_OK) {
        status = spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the layout of a codec");
        goto undo;
    }
    c->hash = hash_codec(c->spec, layout, parameters);
    *codec = c;
    return SPR_OK;

undo:
    spr_codec_destroy(c);
    return status;
}

void spr_codec_destroy(spr_codec *codec)
{
    if (!codec)
        return;
    if (codec->keeper.owner)
        codec->keeper.forget(codec);
    spr_quality_close(codec);
    spr_codec_adapt_close(codec);
    for (int slot = 0; slot < 2; slot++)
        spr_codec_sums_close(codec, slot);
    spr_pages_free(codec->sliced, codec->sliced_bytes);
    spr_pages_free(codec->scratch, codec->scratch_bytes);
    spr_pages_free(codec->workspace, codec->workspace_bytes);
    spr_pages_free(codec->velocity, codec->elements * sizeof(float));
    spr_pages_free(codec->residual, codec->elements * sizeof(float));
    spr_free(codec->tensors);
    spr_free(codec->parameters);
    spr_free(codec);
}

size_t spr_codec_elements(const spr_codec *codec) { return codec->elements; }

const float *spr_codec_residual(const spr_codec *codec)
{
    spr_codec_settle(codec);
    return codec->residual;
}

uint64_t spr_codec_hash(const spr_codec *codec) { return codec->hash; }

const char *spr_codec_spec(const spr_codec *codec) { return codec->spec; }

/* Where the step of the slot goes, and what it draws: a retry draws the same. */
static void set_place(spr_codec *codec, const struct spr_codec_place *place)
{
    codec->sent_as[codec->slot].place = *place;
    codec->sent_as[codec->slot].place.workers = NULL;
    codec->sent_as[codec->slot].exact = false;
    codec->sent_as[codec->slot].seed = spr_rng_u64(codec->sent_as[codec->slot].step, place->rank);
}

/* The next step: what the last one has left, by its own rate, comes first. */
static void begin_new(spr_codec *codec, const float *gradient, struct spr_codec_step *step)
{
    uint64_t start = spr_monotonic_ns();

    spr_codec_sums_add(codec);
    spr_codec_take_rate(codec);
    codec->selection->steps->begin(codec, gradient, step);
    spr_quality_begun(codec, gradient, step, spr_monotonic_ns() - start);
}

bool spr_codec_is_retry(const spr_codec *codec) { return codec->phase == SPR_CODEC_ABSORBED; }

spr_status spr_codec_begin_at(spr_codec *codec, const float *gradient,
                              const struct spr_codec_place *place, struct spr_codec_step *step)
{
    bool again = spr_codec_is_retry(codec);
    bool several = place->blocks.ranks > 1;
    int slot = again ? codec->slot : codec->committed == 0;

    if (codec->phase == SPR_CODEC_RUNNING)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "codec %s is in use by a running request", codec->spec);
    if (spr_codec_sums_open(codec, slot, place) != SPR_OK)
        return SPR_ERR_NOMEM;
    codec->slot = slot;
    *step = (struct spr_codec_step){
        .vtype = codec->vtype,
        .sum_vtype = several ? codec->sum_vtype : SPR_V_FP32,
        .sum_coding = spr_codec_sum_coding(codec),
        .bound_union = several && spr_codec_bounds_union(codec),
    };
    codec->quality.due = false;
    if (!again) {
        codec->beneath = false;
        codec->sent_as[codec->slot].step = codec->steps;
    }
    set_place(codec, place);
    codec->workers = place->workers;
    if (again)
        codec->selection->steps->replay(codec, step);
    else
        begin_new(codec, gradient, step);
    codec->workers = NULL;
    step->number = codec->sent_as[codec->slot].step;
    step->coding = spr_codec_coding(codec);
    step->coding.seed = codec->sent_as[codec->slot].seed;
    codec->phase = SPR_CODEC_RUNNING;
    return SPR_OK;
}

spr_status spr_codec_begin(spr_codec *codec, const float *gradient, struct spr_codec_step *step)
{
    const struct spr_codec_place alone = {.blocks = {spr_codec_vector(codec), 1, 12}};

    return spr_codec_begin_at(codec, gradient, &alone, step);
}

size_t spr_codec_vector(const spr_codec *codec)
{
    return codec->selection->steps->vector ? codec->selection->steps->vector(codec)
                                           : codec->elements;
}

bool spr_codec_next(spr_codec *codec, float *gradient, struct spr_codec_step *step)
{
    return codec->selection->steps->next(codec, gradient, step);
}

void spr_codec_sent(const spr_codec *codec, const struct spr_codec_step *step, float *sent)
{
    size_t n = step->dense && !step->sum ? codec->elements : step->count;
    const uint32_t *index = step->dense ? NULL : step->index;
    const float *values = step->dense ? step->vector : step->value;

    assert(!step->sum || step->index);
    if (codec->vtype == SPR_V_CODED)
        spr_codec_quantise(codec, codec->slot, index, values, n, SPR_DECODE_SET, sent);
    else
        memcpy(sent, values, n * sizeof(*sent));
}

void spr_codec_take_back(spr_codec *codec, const float *result)
{
    spr_codec_sums_take_back(codec, result);
    codec->selection->steps->take_back(codec, result);
}

void spr_codec_commit(spr_codec *codec)
{
    if (codec->phase != SPR_CODEC_RUNNING)
        return;
    codec->selection->steps->commit(codec);
    codec->steps = codec->sent_as[codec->slot].step + 1;
    codec->phase = SPR_CODEC_IDLE;
    codec->committed = codec->slot;
}

void spr_codec_abort(spr_codec *codec)
{
    if (codec->phase != SPR_CODEC_RUNNING)
        return;
    codec->selection->steps->abort(codec);
    codec->phase = SPR_CODEC_ABSORBED;
}

void spr_codec_revoke(spr_codec *codec)
{
    if (codec->committed < 0 || codec->phase == SPR_CODEC_RUNNING)
        return;
    if (codec->slot != codec->committed) {
        spr_codec_return_rate(codec);
        codec->beneath = true;
    }
    codec->slot = codec->committed;
    spr_codec_sums_revoke(codec);
    codec->selection->steps->revoke(codec);
    codec->steps = codec->sent_as[codec->slot].step;
    codec->phase = SPR_CODEC_ABSORBED;
    codec->committed = -1;
}

struct spr_codec_keeper *spr_codec_keeper(spr_codec *codec) { return &codec->keeper; }

spr_codec *spr_codec_of_keeper(struct spr_list *node)
{
    return spr_container_of(node, spr_codec, keeper.node);
}

struct spr_codec_history *spr_codec_history(spr_codec *codec) { return &codec->history; }

void spr_codec_drop(spr_codec *codec)
{
    /* A running step is not this call's to end. */
    if (codec->phase == SPR_CODEC_ABSORBED)
        codec->phase = SPR_CODEC_IDLE;
}

bool spr_codec_is_dense(const spr_codec *codec)
{
    return !spr_codec_sends_lists(codec) && codec->vtype != SPR_V_CODED;
}

enum spr_vtype spr_codec_vtype(const spr_codec *codec) { return codec->vtype; }

struct spr_coding spr_codec_coding(const spr_codec *codec)
{
    return (struct spr_coding){.coder = codec->coder, .options = codec->coder_options};
}
