/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A network 784-2048-1024-10 for digits: ReLU, softmax, cross entropy. All parameters lie in one
 * vector, all gradients in another of the same layout, so that the whole model is one bucket.
 */
#ifndef EXAMPLES_DIGITS_NET_H
#define EXAMPLES_DIGITS_NET_H

#include "digits.h"

#include <sparring/codec.h>

enum { NET_LAYERS = 3, NET_PARAMETERS = 2 * NET_LAYERS }; /* weights and biases of each layer */

typedef struct digits_net {
    size_t batch;                      /* the most images in one pass */
    size_t elements;                   /* of the parameter vector */
    spr_layout layout[NET_PARAMETERS]; /* where each parameter lies in it */
    float *activation[NET_LAYERS + 1]; /* batch x width; [0] is the input, the last the scores */
    float *delta[NET_LAYERS + 1];      /* derivative of the loss by the activation; [0] is unused */
} digits_net;

/* Prepare for passes over at most `batch` images. -1: no memory. */
int digits_net_create(digits_net *net, size_t batch);
void digits_net_destroy(digits_net *net);

/* He et al. 2015: normal weights of variance 2 / inputs, zero biases; the same for equal seeds. */
void digits_net_init(const digits_net *net, float *parameters, uint64_t seed);

/*
 * Forward and backward over the images set[which[0]], ..., set[which[count - 1]].
 * Writes the gradient of the mean loss; returns that mean loss.
 */
double digits_net_gradient(digits_net *net, const float *parameters, const digits_set *set,
                           const uint32_t *which, size_t count, float *gradient);

/* How many images of the set are recognised. */
size_t digits_net_correct(digits_net *net, const float *parameters, const digits_set *set);

#endif
