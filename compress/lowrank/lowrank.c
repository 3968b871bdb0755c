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
    size_t p_floats, q_floats; /* in the sums */
    float *state;              /* begins here, or NULL */
    float *m, *q, *before, *found, *basis, *own;
};

static size_t state_floats(const struct part *part)
{
    return part->dense ? part->elements : part->p_floats + 4 * part->q_floats;
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
    if (!part->state)
        return true;
    part->m = l->residual + t->offset;
    part->q = part->state;
    part->before = part->q + part->q_floats;
    part->found = part->before + part->q_floats;
    part->basis = part->found + part->q_floats;
    part->own = part->dense ? part->state : part->basis + part->p_floats;
    return true;
}

static bool first(const struct spr_lowrank *l, float *state, struct part *part)
{
    assert(l->rank >= 1 && l->rank <= SPR_LOWRANK_RANK_MAX);
    *part = (struct part){.state = state};
    return look_at(l, part);
}

static bool next(const struct spr_lowrank *l, struct part *part)
{
    if (part->state)
        part->state += state_floats(part);
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
    size_t state, p, q;
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
        if (!part.dense)
            sizes.largest_p = spr_max_size(sizes.largest_p, part.p_floats);
    }
    return sizes;
}

size_t spr_lowrank_state_floats(const struct spr_lowrank *l) { return sizes_of(l).state; }
size_t spr_lowrank_p_floats(const struct spr_lowrank *l) { return sizes_of(l).p; }
size_t spr_lowrank_q_floats(const struct spr_lowrank *l) { return sizes_of(l).q; }

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
    memset(part->m, 0, part->elements * sizeof(float));
    for (unsigned k = 0; !part->dense && k < l->rank; k++)
        draw(l, part, k);
}

void spr_lowrank_reset(struct spr_lowrank *l)
{
    struct part part;

    memset(l->state, 0, spr_lowrank_state_floats(l) * sizeof(float));
    for (bool more = first(l, l->state, &part); more; more = next(l, &part))
        reset(l, &part);
    l->pending = false;
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

/* What was sent leaves M, which takes in the gradient, or NULL; P = M Q, unless p is NULL. */
static void update_matrix(const struct spr_lowrank *l, const struct part *part,
                          const float *gradient, float *p)
{
    bool sent = l->pending && spr_all_finite(part->found, part->q_floats);

    if (l->pending)
        memcpy(part->before, part->q, part->q_floats * sizeof(float));
    if (sent)
        start_from(l, part, part->found);
    else if (l->pending)
        reset(l, part);
    spr_lowrank_kernels()->project(part->m, part->shape.rows, part->shape.columns, l->rank,
                                   sent ? part->basis : NULL, sent ? part->own : NULL, gradient,
                                   p ? part->q : NULL, p);
}

static void update_dense(const struct spr_lowrank *l, const struct part *part,
                         const float *gradient, float *p)
{
    size_t bytes = part->elements * sizeof(float);

    if (l->pending) {
        memcpy(part->own, part->m, bytes);
        memset(part->m, 0, bytes);
    }
    if (gradient)
        spr_kernels()->sum(part->m, part->m, gradient, part->elements);
    if (p)
        memcpy(p, part->m, bytes);
}

void spr_lowrank_project(struct spr_lowrank *l, const float *gradient, float *p)
{
    struct part part;

    for (bool more = first(l, l->state, &part); more; more = next(l, &part)) {
        const float *g = gradient ? gradient + part.shape.offset : NULL;

        (part.dense ? update_dense : update_matrix)(l, &part, g, p);
        p += p ? part.p_floats : 0;
    }
    l->pending = false;
}

void spr_lowrank_settle(struct spr_lowrank *l)
{
    if (l->pending)
        spr_lowrank_project(l, NULL, NULL);
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

static struct part part_of(const struct spr_lowrank *l, size_t tensor)
{
    struct part part;
    bool more = first(l, l->state, &part);

    while (more && part.index < tensor)
        more = next(l, &part);
    return part;
}

void spr_lowrank_reset_tensor(struct spr_lowrank *l, size_t tensor)
{
    struct part part = part_of(l, tensor);

    reset(l, &part);
    l->pending = false;
}

void spr_lowrank_sent(const struct spr_lowrank *l, size_t tensor, size_t row, size_t rows,
                      float *out)
{
    struct part part = part_of(l, tensor);

    spr_lowrank_kernels()->expand(out, rows, part.shape.columns, l->rank,
                                  part.basis + spr_skinny_at(row, 0, l->rank), part.own, 1);
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
        } else {
            memcpy(part.found, q, part.q_floats * sizeof(float));
            if (spr_all_finite(q, part.q_floats))
                spr_lowrank_kernels()->expand(to, part.shape.rows, part.shape.columns, l->rank, p,
                                              q, scale);
            else
                for (size_t i = 0; i < part.elements; i++)
                    to[i] = NAN;
        }
        p += part.p_floats;
        q += part.q_floats;
    }
    l->pending = true;
}

static void negate(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = -x[i];
}

/* M += P q^T: what was taken away comes back. */
static void put_back(const struct spr_lowrank *l, const struct part *part)
{
    negate(part->own, part->q_floats);
    spr_lowrank_kernels()->project(part->m, part->shape.rows, part->shape.columns, l->rank,
                                   part->basis, part->own, NULL, NULL, NULL);
    negate(part->own, part->q_floats);
}

void spr_lowrank_revoke(struct spr_lowrank *l)
{
    struct part part;

    for (bool more = first(l, l->state, &part); !l->pending && more; more = next(l, &part)) {
        if (part.dense) {
            spr_kernels()->sum(part.m, part.m, part.own, part.elements);
            continue;
        }
        if (spr_all_finite(part.found, part.q_floats))
            put_back(l, &part);
        memcpy(part.q, part.before, part.q_floats * sizeof(float));
    }
    l->pending = false;
}

float *spr_lowrank_start(const struct spr_lowrank *l, size_t tensor, size_t *floats)
{
    struct part part = part_of(l, tensor);

    *floats = part.q_floats;
    return part.q;
}
