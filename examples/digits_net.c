/* SPDX-License-Identifier: BSD-2-Clause */
#include "digits_net.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t width[NET_LAYERS + 1] = {DIGITS_PIXELS, 2048, 1024, DIGITS_CLASSES};

static const char *const parameter_name[NET_PARAMETERS] = {
    "layer1.weight", "layer1.bias", "layer2.weight", "layer2.bias", "layer3.weight", "layer3.bias",
};

int digits_net_create(digits_net *net, size_t batch)
{
    *net = (digits_net){.batch = batch};
    for (size_t p = 0; p < NET_PARAMETERS; p++) {
        size_t inputs = width[p / 2], outputs = width[p / 2 + 1];
        int bias = p % 2 == 1;
        net->layout[p] = (spr_layout){
            .id = p + 1,
            .name = parameter_name[p],
            .offset = net->elements,
            .rows = bias ? outputs : inputs,
            .columns = bias ? 1 : outputs,
        };
        net->elements += net->layout[p].rows * net->layout[p].columns;
    }
    for (size_t l = 0; l <= NET_LAYERS; l++) {
        net->activation[l] = calloc(batch * width[l], sizeof(float));
        net->delta[l] = calloc(batch * width[l], sizeof(float));
        if (!net->activation[l] || !net->delta[l]) {
            digits_net_destroy(net);
            return -1;
        }
    }
    return 0;
}

void digits_net_destroy(digits_net *net)
{
    for (size_t l = 0; l <= NET_LAYERS; l++) {
        free(net->activation[l]);
        free(net->delta[l]);
    }
    *net = (digits_net){0};
}

void digits_net_init(const digits_net *net, float *parameters, uint64_t seed)
{
    memset(parameters, 0, net->elements * sizeof(float));
    for (size_t l = 0; l < NET_LAYERS; l++) {
        const spr_layout *weight = &net->layout[2 * l];
        float deviation = sqrtf(2.0f / (float)weight->rows);
        digits_random random = digits_random_seed(seed, l);
        for (size_t i = 0; i < weight->rows * weight->columns; i++)
            parameters[weight->offset + i] = deviation * digits_random_normal(&random);
    }
}

/* c (m x n) = a (m x k) b (k x n), where a or b may be stored transposed. */
static void multiply(CBLAS_TRANSPOSE a_order, CBLAS_TRANSPOSE b_order, size_t m, size_t n, size_t k,
                     const float *a, const float *b, float *c)
{
    blasint a_stride = (blasint)(a_order == CblasNoTrans ? k : m);
    blasint b_stride = (blasint)(b_order == CblasNoTrans ? n : k);
    cblas_sgemm(CblasRowMajor, a_order, b_order, (blasint)m, (blasint)n, (blasint)k, 1.0f, a,
                a_stride, b, b_stride, 0.0f, c, (blasint)n);
}

static void load_image(float *input, const uint8_t *pixels)
{
    for (size_t i = 0; i < DIGITS_PIXELS; i++)
        input[i] = (float)pixels[i] * (1.0f / 255.0f);
}

static void forward(digits_net *net, const float *parameters, size_t count)
{
    for (size_t l = 0; l < NET_LAYERS; l++) {
        const float *weight = parameters + net->layout[2 * l].offset;
        const float *bias = parameters + net->layout[2 * l + 1].offset;
        size_t outputs = width[l + 1];
        float *out = net->activation[l + 1];
        float floor = l + 1 < NET_LAYERS ? 0.0f : -INFINITY; /* no ReLU on the scores */

        multiply(CblasNoTrans, CblasNoTrans, count, outputs, width[l], net->activation[l], weight,
                 out);
        for (size_t i = 0; i < count; i++) {
            for (size_t j = 0; j < outputs; j++) {
                float x = out[i * outputs + j] + bias[j];
                out[i * outputs + j] = x > floor ? x : floor;
            }
        }
    }
}

/* Cross entropy of one image, and its derivative by the scores divided by the size of the batch. */
static double softmax_loss(const float *score, uint8_t label, size_t count, float *delta)
{
    double top = score[0], sum = 0;

    for (size_t j = 1; j < DIGITS_CLASSES; j++)
        top = fmax(top, score[j]);
    for (size_t j = 0; j < DIGITS_CLASSES; j++)
        sum += exp(score[j] - top);
    for (size_t j = 0; j < DIGITS_CLASSES; j++)
        delta[j] = (float)((exp(score[j] - top) / sum - (j == label)) / (double)count);
    return log(sum) + top - score[label];
}

static void backward(digits_net *net, const float *parameters, size_t count, float *gradient)
{
    for (size_t l = NET_LAYERS; l-- > 0;) {
        size_t inputs = width[l], outputs = width[l + 1];
        const float *delta = net->delta[l + 1], *in = net->activation[l];
        float *bias_gradient = gradient + net->layout[2 * l + 1].offset;

        multiply(CblasTrans, CblasNoTrans, inputs, outputs, count, in, delta,
                 gradient + net->layout[2 * l].offset);
        memset(bias_gradient, 0, outputs * sizeof(float));
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < outputs; j++)
                bias_gradient[j] += delta[i * outputs + j];
        if (l == 0)
            break;
        multiply(CblasNoTrans, CblasTrans, count, inputs, outputs, delta,
                 parameters + net->layout[2 * l].offset, net->delta[l]);
        for (size_t i = 0; i < count * inputs; i++)
            net->delta[l][i] = in[i] > 0 ? net->delta[l][i] : 0;
    }
}

double digits_net_gradient(digits_net *net, const float *parameters, const digits_set *set,
                           const uint32_t *which, size_t count, float *gradient)
{
    double loss = 0;

    for (size_t i = 0; i < count; i++)
        load_image(net->activation[0] + i * DIGITS_PIXELS, set->pixels + which[i] * DIGITS_PIXELS);
    forward(net, parameters, count);
    for (size_t i = 0; i < count; i++)
        loss +=
            softmax_loss(net->activation[NET_LAYERS] + i * DIGITS_CLASSES, set->labels[which[i]],
                         count, net->delta[NET_LAYERS] + i * DIGITS_CLASSES);
    backward(net, parameters, count, gradient);
    return loss / (double)count;
}

static size_t best_class(const float *score)
{
    size_t best = 0;
    for (size_t j = 1; j < DIGITS_CLASSES; j++)
        if (score[j] > score[best])
            best = j;
    return best;
}

size_t digits_net_correct(digits_net *net, const float *parameters, const digits_set *set)
{
    size_t correct = 0;

    for (size_t first = 0; first < set->count; first += net->batch) {
        size_t count = set->count - first < net->batch ? set->count - first : net->batch;
        for (size_t i = 0; i < count; i++)
            load_image(net->activation[0] + i * DIGITS_PIXELS,
                       set->pixels + (first + i) * DIGITS_PIXELS);
        forward(net, parameters, count);
        for (size_t i = 0; i < count; i++)
            correct += best_class(net->activation[NET_LAYERS] + i * DIGITS_CLASSES) ==
                       set->labels[first + i];
    }
    return correct;
}
