/* SPDX-License-Identifier: BSD-2-Clause
 *
 * PowerSGD: a matrix of gradients as the product of two skinny ones, found by one step of subspace
 * iteration that starts where the last one ended (Vogels, Karimireddy and Jaggi 2019, "PowerSGD:
 * practical low-rank gradient compression for distributed optimization", algorithms 1 and 2). Pure:
 * no allocation, no threads, no randomness but counter-based.
 *
 * A step of a bucket with any number of tensors is two dense allreduces:
 *
 *     spr_lowrank_project(l, gradient, p);             M = residual + gradient;  P = M Q
 *     allreduce p, sum                                 spr_lowrank_p_floats()
 *     spr_lowrank_correlate(l, p, q, workspace);       P = orthonormal basis of P;  Q = M^T P
 *     allreduce q, sum                                 spr_lowrank_q_floats()
 *     spr_lowrank_commit(l, p, q, scale, gradient);    gradient = scale P Q^T
 *
 * with scale 1 for the sum and 1 / ranks for the mean. A tensor that two skinny matrices would not
 * make smaller (vectors, and whatever has no more than rank rows or columns) travels as it is, in
 * the first allreduce. All ranks have to pass the same tensors, rank and seed, and get the same
 * bits from the allreduces; then they end with the same bits.
 *
 * Error feedback. A rank keeps what it did not send itself: residual = M - P q^T, with its own q,
 * from before the allreduce. The authors' code takes away the mean instead. Since decoding is
 * linear, the residuals of all ranks have the same sum in both, and so every step the same result;
 * but what ranks disagree in would gather in those residuals for ever. Summed over ranks, up to
 * rounding,
 *
 *     input = P (sum of q)^T + residual,    with no tensor ever left out.
 *
 * An abort needs nothing: before the commit, the gradient is in the residual and nothing has been
 * taken away, so that a step without a gradient sends the same bits again, and one with the next
 * gradient loses nothing.
 *
 * Two passes over M per step: what the last step sent is taken away when the next gradient is
 * added, or by spr_lowrank_settle(). So a commit that is revoked before leaves every bit as it was;
 * one that is revoked later has what it sent added again.
 *
 * A NaN or an infinity in a matrix on any rank makes all of that matrix NaN in the result, on all
 * ranks, and its state is then as at the beginning: what is wrong shows, once. So does a sum that
 * overflows. Other tensors are not affected.
 */
#ifndef SPR_COMPRESS_LOWRANK_LOWRANK_H
#define SPR_COMPRESS_LOWRANK_LOWRANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compress/kernels/lowrank.h"

/* A row-major matrix in a bucket; of more dimensions than two, the others belong to the columns. */
struct spr_lowrank_tensor {
    size_t offset; /* of its first element in the bucket */
    size_t rows, columns;
};

struct spr_lowrank {
    const struct spr_lowrank_tensor *tensors; /* the caller's, kept; they do not overlap */
    size_t count;
    unsigned rank;   /* 1..SPR_LOWRANK_RANK_MAX */
    uint64_t seed;   /* the same on all ranks */
    float *residual; /* the caller's: M, a bucket */
    /* spr_lowrank_state_floats() of the caller's: for each tensor in turn Q, that of the step
     * before, the sum of q, the basis P and this rank's own q; or, when it is dense, what was sent
     * last. */
    float *state;
    bool pending; /* what was sent last has not been taken away from M yet */
};

/* Does it travel as it is? */
bool spr_lowrank_is_dense(const struct spr_lowrank_tensor *tensor, unsigned rank);
/* Floats of state, and of the two sums; and bytes of workspace, aligned to 8. tensors, count and
 * rank are to be set. */
size_t spr_lowrank_state_floats(const struct spr_lowrank *l);
size_t spr_lowrank_p_floats(const struct spr_lowrank *l);
size_t spr_lowrank_q_floats(const struct spr_lowrank *l);
size_t spr_lowrank_workspace(const struct spr_lowrank *l);

/* Residuals of zero, Q pseudo-random by the seed. Everything but `pending` is to be set. */
void spr_lowrank_reset(struct spr_lowrank *l);
/* Likewise of one tensor; of those whose P is known, none is pending any more. */
void spr_lowrank_reset_tensor(struct spr_lowrank *l, size_t tensor);

/* gradient: the bucket, or NULL, when nothing is to be added. It is not changed. */
void spr_lowrank_project(struct spr_lowrank *l, const float *gradient, float *p);
/* p: summed over ranks; becomes the basis. */
void spr_lowrank_correlate(struct spr_lowrank *l, float *p, float *q, void *workspace);
/* After that: what this rank sends itself of `rows` rows of a tensor that is not dense, from `row`
 * on, a multiple of SPR_LOWRANK_LANES. */
void spr_lowrank_sent(const struct spr_lowrank *l, size_t tensor, size_t row, size_t rows,
                      float *out);
/* p: the basis; q: summed over ranks; out: the bucket, of which only the tensors are written. */
void spr_lowrank_commit(struct spr_lowrank *l, const float *p, const float *q, float scale,
                        float *out);
/* Undo the last commit, also when a step was projected after it (and not correlated), whose
 * gradient then stays in the residual. */
void spr_lowrank_revoke(struct spr_lowrank *l);

/* Bring M up to date, so that it is the residual. What follows has the same bits with and without.
 */
void spr_lowrank_settle(struct spr_lowrank *l);
/* Q of a tensor, which is the same on all ranks: what a checkpoint holds besides residuals, from
 * after settle(). *floats: how many, 0 for what is dense. */
float *spr_lowrank_start(const struct spr_lowrank *l, size_t tensor, size_t *floats);

/* Modified Gram-Schmidt, twice, in double, on a skinny matrix: orthonormal columns, each rounded
 * once. A column that depends on those before it, or is zero, becomes zero. Anything that is not
 * finite makes everything NaN. workspace: spr_skinny_floats() doubles. */
void spr_lowrank_orthogonalise(float *p, size_t rows, unsigned rank, double *workspace);

#endif
