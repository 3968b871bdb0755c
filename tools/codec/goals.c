/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/goals.h"

/* The first row that fits counts. */
static const struct goal goals[] = {
    {"select topk", 0.001, GOAL_USUAL, .most = {1.05, 1.1}},
    {"select topk", 0.01, GOAL_USUAL, .most = {1.35, 1.45}},
    {"select topk", 0.1, GOAL_USUAL, .most = {2.3, 2.4}},
    {"select-cold topk", 0.001, GOAL_USUAL, .most = {1.15, 1.3}},
    {"select-cold topk", 0.01, GOAL_USUAL, .most = {1.45, 1.65}},
    {"select-cold topk", 0.1, GOAL_USUAL, .most = {2.4, 2.5}},
    {"select-cold topk", 0, GOAL_WORST, .most = {3.2, 4.5}},
    {"feedback topk", 0.001, GOAL_USUAL, .most = {1.10, 1.15}},
    {"feedback topk", 0.01, GOAL_USUAL, .most = {1.35, 1.45}},
    {"feedback topk", 0.1, GOAL_USUAL, .most = {2.4, 2.3}},
    {"select threshold", 0.001, GOAL_USUAL, .most = {1.05, 1.1}},
    {"select threshold", 0.01, GOAL_USUAL, .most = {1.2, 1.35}},
    {"select threshold", 0.1, GOAL_USUAL, .most = {1.4, 1.6}},
    {"select random", 0.01, GOAL_USUAL, .most = {0.55, 0.55}},
    {"feedback random", 0.01, GOAL_USUAL, .most = {1.15, 1.15}},
    {"image topk+int8+bitpack", 0.001, GOAL_USUAL, .most = {1.05, 1.1}},
    {"image topk+int8+bitpack", 0.01, GOAL_USUAL, .most = {1.4, 1.55}},
    {"image topk+int8+bitpack", 0.1, GOAL_USUAL, .most = {2.6, 2.9}},
    {"image topk+int8+eliasfano", 0.1, GOAL_USUAL, .most = {3.8, 0}},
    {"encode int8", 0, GOAL_USUAL, .most = {1.15, 1.2}},
    {"encode fp16", 0, GOAL_USUAL, .most = {1.35, 1.35}},
    {"encode bf16", 0, GOAL_USUAL, .most = {1.45, 1.45}},
    {"encode sign", 0, GOAL_USUAL, .most = {1.3, 1.3}},
    {"encode int4", 0, GOAL_USUAL, .most = {1.55, 1.55}},
    {"encode int8:rounding=stochastic", 0, GOAL_USUAL, .most = {2.05, 2.05}},
    {"feedback int8", 0, GOAL_USUAL, .most = {1.25, 1.25}},
    {"feedback sign", 0, GOAL_USUAL, .most = {1.25, 1.25}},
    {"decode-add int8", 0, GOAL_USUAL, .most = {0.85, 0.85}},
    {"decode-add int4", 0, GOAL_USUAL, .most = {0.85, 0.85}},
    {"decode-add sign", 0, GOAL_USUAL, .most = {0.85, 0.85}},
    {"encode indices eliasfano", 0.001, GOAL_USUAL, .items = 500e6, .entropies = 1.10},
    {"encode indices eliasfano", 0.01, GOAL_USUAL, .items = 500e6, .entropies = 1.10},
    {"encode indices eliasfano", 0.1, GOAL_USUAL, .items = 430e6, .entropies = 1.14},
    {"decode indices eliasfano", 0.001, GOAL_USUAL, .items = 1400e6, .entropies = 1.10},
    {"decode indices eliasfano", 0.01, GOAL_USUAL, .items = 1400e6, .entropies = 1.10},
    {"decode indices eliasfano", 0.1, GOAL_USUAL, .items = 1300e6, .entropies = 1.14},
    {"merge of 8", 0.001, GOAL_USUAL, .items = 100e6},
    {"merge of 8", 0.01, GOAL_USUAL, .items = 250e6},
    {"merge of 8", 0.1, GOAL_USUAL, .items = 700e6},
};

/* Small integers at 10 % have the most ties. */
static const struct goal integers = {"select-cold topk", 0.1, GOAL_WORST, .most = {4.6, 6}};

static bool data_fits(const struct goal *goal, enum data kind)
{
    bool usual = kind == DATA_NORMAL || kind == DATA_LAPLACE || kind == DATA_LAYERS;

    return (goal->data == GOAL_USUAL) == usual;
}

double index_entropy(double density)
{
    double rest = 1 - density;

    return -log2(density) - (rest > 0 ? rest / density * log2(rest) : 0);
}

const struct goal *goal_of(const struct trial *trial)
{
    const char *name = trial->operation->name;

    if (trial->vector->n < GOAL_ELEMENTS || trial->slices > 2)
        return NULL;
    if (trial->vector->kind == DATA_SMALL_INTEGERS && strcmp(name, integers.operation) == 0 &&
        fabs(trial->density - integers.density) < 1e-9)
        return &integers;
    for (size_t i = 0; i < SPR_ARRAY_LEN(goals); i++)
        if (strcmp(goals[i].operation, name) == 0 &&
            (goals[i].density <= 0 || fabs(goals[i].density - trial->density) < 1e-9) &&
            data_fits(&goals[i], trial->vector->kind) &&
            (goals[i].most[trial->slices - 1] > 0 || goals[i].items > 0))
            return &goals[i];
    return NULL;
}
