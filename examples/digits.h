/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sets of labelled 28x28 grey images of digits: drawn, or read from MNIST's files.
 */
#ifndef EXAMPLES_DIGITS_H
#define EXAMPLES_DIGITS_H

#include <stddef.h>
#include <stdint.h>

enum { DIGITS_SIDE = 28, DIGITS_PIXELS = DIGITS_SIDE * DIGITS_SIDE, DIGITS_CLASSES = 10 };

typedef struct digits_set {
    size_t count;
    uint8_t *pixels; /* count * DIGITS_PIXELS, row by row; 0 background, 255 ink */
    uint8_t *labels; /* count digits */
} digits_set;

/* A shard of an endless or given sequence of images: first, first + stride, ..., count in all. */
typedef struct digits_shard {
    uint64_t first, stride;
    size_t count;
} digits_shard;

/*
 * Numbers from a counter: splitmix64 (Steele, Lea, Flood 2014). The stream depends on nothing but
 * `seed` and `stream`, so that any rank can draw any image without asking another.
 */
typedef struct digits_random {
    uint64_t state;
} digits_random;

digits_random digits_random_seed(uint64_t seed, uint64_t stream);
uint64_t digits_random_bits(digits_random *random);
float digits_random_uniform(digits_random *random, float low, float high); /* [low, high) */
float digits_random_normal(digits_random *random);                         /* mean 0, variance 1 */

/* All three return 0, or -1 with one line about the cause in `error`, and leave *set empty then. */
int digits_set_alloc(digits_set *set, size_t count, char *error, size_t capacity);

/* Draw the images of `shard` out of the sequence that `seed` stands for. */
int digits_set_draw(digits_set *set, uint64_t seed, const digits_shard *shard, char *error,
                    size_t capacity);

/*
 * Read the images of `shard` from <directory>/<prefix>-images-idx3-ubyte and -labels-idx1-ubyte
 * (http://yann.lecun.com/exdb/mnist/). prefix: "train" or "t10k". shard->count is a limit.
 */
int digits_set_read(digits_set *set, const char *directory, const char *prefix,
                    const digits_shard *shard, char *error, size_t capacity);

void digits_set_free(digits_set *set);

#endif
