/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/lowrank/lowrank.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/util.h"
#include "compress/kernels/kernels.h"

/* A tensor, and where it is in the state. Walks over all tensors in turn. */
struct part {
    size_t index, elements;
    struct spr_lowrank_tensor shape;
    bool dense;
    size_t p_floats, q_floats, saved_floats; /* in the sums, and in a checkpoint */
    float *m, *q, *basis, *own;
};

static size_t state_floats(const struct part *part)
{
    return part->elements + (part->dense ? 0 : part->p_floats + 2 * part->q_floats);
}

static bool look_at(const struct spr_lowrank *l, struct part *part)
{
    if (part->index == l->count)
        return false;
    const struct spr_lowrank_tensor *t = &l->tensors[part->index];
    part->shape = *t;
    part->elements = t->rows * t->columns;
    part->dense = spr_lowrank_is_dense(t, l->rank);
    part->p_floats = part->dense ? part->elements : spr_skinny_floats(t->rows, l->rank);
    part->q_floats = part->dense ? 0 : spr_skinny_floats(t->columns, l->rank);
    part->saved_floats = part->elements + part->q_floats;
    if (part->m && !part->dense) {
        part->q = part->m + part->elements;
        part->basis = part->q + part->q_floats;
        part->own = part->basis + part->p_floats;
    }
    return true;
}

static bool first(const struct spr_lowrank *l, float *state, struct part *part)
{
    assert(l->rank >= 1 && l->rank <= SPR_LOWRANK_RANK_MAX);
    *part = (struct part){.m = state};
    return look_at(l, part);
}

static bool next(const struct spr_lowrank *l, struct part *part)
{
    if (part->m)
        part->m += state_floats(part);
    part->index++;
    return look_at(l, part);
}

bool spr_lowrank_is_dense(const struct spr_lowrank_tensor *tensor, unsigned rank)
{
    return tensor->rows * tensor->columns <=
           spr_skinny_floats(tensor->rows, rank) + spr_skinny_floats(tensor->columns, rank);
}

/* Of all tensors. */
struct sizes {
    size_t state, p, q, saved;
    size_t largest_p; /* of those that are not dense */
};

static struct sizes sizes_of(const struct spr_lowrank *l)
{
    struct sizes sizes = {0};
    struct part part;

    for (bool more = first(l, NULL, &part); more; more = next(l, &part)) {
        sizes.state += state_floats(&part);
        sizes.p += part.p_floats;
        sizes.q += part.q_floats;
        sizes.saved += part.saved_floats;
        if (!part.dense)
            sizes.largest_p = spr_max_size(sizes.largest_p, part.p_floats);
    }
    return sizes;
}

size_t spr_lowrank_state_floats(const struct spr_lowrank *l) { return sizes_of(l).state; }
size_t spr_lowrank_p_floats(const struct spr_lowrank *l) { return sizes_of(l).p; }
size_t spr_lowrank_q_floats(const struct spr_lowrank *l) { return sizes_of(l).q; }
size_t spr_lowrank_saved_floats(const struct spr_lowrank *l) { return sizes_of(l).saved; }

size_t spr_lowrank_workspace(const struct spr_lowrank *l)
{
    return sizes_of(l).largest_p * sizeof(double);
}

/* A column of Q by the seed, uniform in [-1, 1). */
static void draw(const struct spr_lowrank *l, const struct part *part, unsigned column)
{
    for (size_t j = 0; j < part->shape.columns; j++) {
        uint64_t counter = (uint64_t)part->index << 40 | (j * l->rank + column);
        int32_t random = (int32_t)(uint32_t)(spr_rng_u64(l->seed, counter) >> 32);
        part->q[spr_skinny_at(j, column, l->rank)] = (float)(random >> 8) * 0x1p-23f;
    }
}

static void reset(const struct spr_lowrank *l, const struct part *part)
{
    memset(part->m, 0, state_floats(part) * sizeof(float));
    for (unsigned k = 0; !part->dense && k < l->rank; k++)
        draw(l, part, k);
}

void spr_lowrank_reset(struct spr_lowrank *l)
{
    struct part part;

    for (bool more = first(l, l->state, &part); more; more = next(l, &part))
        reset(l, &part);
    l->pending = false;
}

/* M takes in the gradient, or NULL; P = M Q, unless p is NULL. */
static void update(const struct spr_lowrank *l, const struct part *part, const float *gradient,
                   float *p)
{
    const float *basis = l->pending ? part->basis : NULL, *own = l->pending ? part->own : NULL;

    spr_lowrank_kernels()->project(part->m, part->shape.rows, part->shape.columns, l->rank, basis,
                                   own, gradient, p ? part->q : NULL, p);
}

void spr_lowrank_project(struct spr_lowrank *l, const float *gradient, float *p)
{
    struct part part;

    for (bool more = first(l, l->state, &part); more; more = next(l, &part)) {
        const float *g = gradient ? gradient + part.shape.offset : NULL;

        if (!part.dense) {
            update(l, &part, g, p);
        } else {
            if (g)
                spr_kernels()->accumulate(part.m, g, part.elements);
            memcpy(p, part.m, part.elements * sizeof(float));
        }
        p += part.p_floats;
    }
    l->pending = false;
}

void spr_lowrank_settle(struct spr_lowrank *l)
{
    struct part part;

    for (bool more = first(l, l->state, &part); l->pending && more; more = next(l, &part))
        if (!part.dense)
            update(l, &part, NULL, NULL);
    l->pending = false;
}

void spr_lowrank_correlate(struct spr_lowrank *l, float *p, float *q, void *workspace)
{
    struct part part;

    assert(!l->pending);
    for (bool more = first(l, l->state, &part); more; more = next(l, &part)) {
        if (!part.dense) {
            spr_lowrank_orthogonalise(p, part.shape.rows, l->rank, workspace);
            memcpy(part.basis, p, part.p_floats * sizeof(float));
            spr_lowrank_kernels()->correlate(part.m, part.shape.rows, part.shape.columns, l->rank,
                                             p, part.own);
            memcpy(q, part.own, part.q_floats * sizeof(float));
        }
        p += part.p_floats;
        q += part.q_floats;
    }
}

/* Where the next step starts: the columns of q, by powers of two of about the same size, since only
 * their directions count and P is not to overflow; one that is zero is drawn again. */
static void start_from(const struct spr_lowrank *l, const struct part *part, const float *q)
{
    for (unsigned k = 0; k < l->rank; k++) {
        float most = 0;
        int exponent;

        for (size_t j = 0; j < part->shape.columns; j++)
            most = fmaxf(most, fabsf(q[spr_skinny_at(j, k, l->rank)]));
        if (most <= 0) {
            draw(l, part, k);
            continue;
        }
        (void)frexpf(most, &exponent);
        for (size_t j = 0; j < part->shape.columns; j++)
            part->q[spr_skinny_at(j, k, l->rank)] =
                ldexpf(q[spr_skinny_at(j, k, l->rank)], -exponent);
    }
}

static bool all_finite(const float *x, size_t n)
{
    uint32_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = spr_magnitude(x[i]) > most ? spr_magnitude(x[i]) : most;
    return most < 0x7f800000u;
}

void spr_lowrank_commit(struct spr_lowrank *l, const float *p, const float *q, float scale,
                        float *out)
{
    struct part part;

    for (bool more = first(l, l->state, &part); more; more = next(l, &part)) {
        float *to = out + part.shape.offset;

        if (part.dense) {
            for (size_t i = 0; i < part.elements; i++)
                to[i] = scale * p[i];
            memset(part.m, 0, part.elements * sizeof(float));
        } else if (!all_finite(q, part.q_floats)) {
            for (size_t i = 0; i < part.elements; i++)
                to[i] = NAN;
            reset(l, &part);
        } else {
            spr_lowrank_kernels()->expand(to, part.shape.rows, part.shape.columns, l->rank, p, q,
                                          scale);
            start_from(l, &part, q);
        }
        p += part.p_floats;
        q += part.q_floats;
    }
    l->pending = true;
}

void spr_lowrank_save(struct spr_lowrank *l, float *saved)
{
    struct part part;

    spr_lowrank_settle(l);
    for (bool more = first(l, l->state, &part); more; more = next(l, &part)) {
        memcpy(saved, part.m, part.saved_floats * sizeof(float)); /* Q comes after M */
        saved += part.saved_floats;
    }
}

void spr_lowrank_load(struct spr_lowrank *l, const float *saved)
{
    struct part part;

    for (bool more = first(l, l->state, &part); more; more = next(l, &part)) {
        memcpy(part.m, saved, part.saved_floats * sizeof(float));
        saved += part.saved_floats;
    }
    l->pending = false;
}
