/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The registry of selections: everything, one per selector, and names for combinations with a rule
 * of error feedback that a paper describes.
 */
#include <string.h>

#include "compress/codec_internal.h"
#include "compress/select/selectors.h"

static const struct spr_opt lowrank_options[] = {
    {.name = "rank",
     .default_value = "4",
     .doc = "columns of the factors, 1 to 32",
     .type = SPR_OPT_INT,
     .offset = offsetof(struct spr_lowrank_options, rank),
     .min = 1,
     .max = SPR_LOWRANK_RANK_MAX},
};

#define BY(selector_)                                                                              \
    {                                                                                              \
        .name = #selector_, .selector = &spr_selector_##selector_,                                 \
        .feedback_options = SPR_FEEDBACK_OPTIONS, .steps = &spr_codec_select                       \
    }

const struct spr_codec_selection spr_codec_selections[] = {
    {.name = "none",
     .doc = "every element, as a dense vector",
     .feedback_options = SPR_FEEDBACK_WHOLE_OPTIONS,
     .steps = &spr_codec_whole},
    BY(topk),
    BY(accumulate),
    BY(threshold),
    BY(sampled),
    BY(reuse),
    BY(block),
    BY(random),
    {
        .name = "adaptive",
        .doc = "topk of each parameter, as much of it as gives all of them the same relative error",
        .paper =
            "after Markov et al. 2023, L-GreCo: layerwise-adaptive gradient compression; phases: "
            "Agarwal et al. 2021, Accordion",
        .selector = &spr_selector_topk,
        .options = spr_codec_adapt_table,
        .option_count = SPR_CODEC_ADAPT_OPTIONS,
        .feedback_options = SPR_FEEDBACK_PART_OPTIONS,
        .steps = &spr_codec_select,
    },
    {
        .name = "dgc",
        .doc = "deep gradient compression: topk with feedback=momentum and what belongs to it",
        .paper = "Lin et al. 2018, Deep Gradient Compression: reducing the communication bandwidth "
                 "for distributed training",
        .selector = &spr_selector_topk,
        .feedback_options = SPR_FEEDBACK_OPTIONS,
        .ratio = "0.001",
        .feedback = "momentum",
        .steps = &spr_codec_select,
    },
    {
        .name = "onebit",
        .doc = "1-bit SGD: all signs, with feedback=momentum and sums=int4, without which it needs "
               "a lower rate",
        .paper = "Seide et al. 2014, 1-bit stochastic gradient descent; momentum before the coder: "
                 "Tang et al. 2021, 1-bit Adam",
        .coder = &spr_value_sign,
        .feedback_options = SPR_FEEDBACK_WHOLE_OPTIONS,
        .feedback = "momentum",
        .sums = "int4",
        .steps = &spr_codec_whole,
    },
    {
        .name = "powersgd",
        .doc = "of each matrix two factors of a low rank, one after the other, with error feedback",
        .paper = "Vogels, Karimireddy and Jaggi 2019, PowerSGD: practical low-rank gradient "
                 "compression for distributed optimization",
        .options = lowrank_options,
        .option_count = SPR_ARRAY_LEN(lowrank_options),
        .steps = &spr_codec_low_rank,
    },
    {.name = NULL},
};

const char *spr_codec_selection_doc(const struct spr_codec_selection *s)
{
    return s->doc ? s->doc : s->selector->doc;
}

const char *spr_codec_selection_paper(const struct spr_codec_selection *s)
{
    return s->paper || !s->selector ? s->paper : s->selector->paper;
}

static struct spr_opt with_default(struct spr_opt row, const char *name, const char *value)
{
    if (value && strcmp(row.name, name) == 0)
        row.default_value = value;
    return row;
}

size_t spr_codec_selection_own_options(const struct spr_codec_selection *s)
{
    return s->selector && !s->options ? s->selector->option_count : s->option_count;
}

size_t spr_codec_selection_options(const struct spr_codec_selection *s,
                                   struct spr_opt options[SPR_CODEC_OPTIONS_MAX])
{
    const struct spr_opt *own = s->selector && !s->options ? s->selector->options : s->options;
    size_t n = 0;

    for (size_t i = 0; i < spr_codec_selection_own_options(s); i++)
        options[n++] = with_default(own[i], "ratio", s->ratio);
    for (size_t i = 0; i < s->feedback_options; i++) {
        options[n] = with_default(spr_feedback_table[i], "feedback", s->feedback);
        options[n] = with_default(options[n], "sums", s->sums);
        options[n++].offset += SPR_SELECT_OPTION_BYTES;
    }
    return n;
}
