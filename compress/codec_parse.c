/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codec strings:
 *
 *   codec   = stage *( "+" stage )
 *   stage   = name [ ":" option *( "," option ) ]
 *   option  = name "=" value
 *
 * At most one selection, which comes first, and at most one value coder. Without a selection
 * everything is sent ("none"); without a value coder values are sent as they are ("fp32").
 */
#include "compress/codec_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* Names from the literature. */
static const struct spr_codec_alias aliases[] = {
    {"randomk", "random", "another name of random"},
    {"bytegrad", "int8", "int8, after the 8 bits of Bagua (Gan et al. 2021), with error feedback"},
};

const struct spr_codec_alias *spr_codec_alias_at(size_t i)
{
    return i < SPR_ARRAY_LEN(aliases) ? &aliases[i] : NULL;
}

struct parser {
    const char *spec;
    const char *at;
    spr_codec *codec;
    bool have_selection, have_coder, have_ratio;
    uint64_t seen; /* options of a stage: a bit for each row of its table */
    struct spr_error *error;
};

/* INVALID: `what`, then the place, then what would be right. */
static spr_status fail(const struct parser *p, const char *at, const char *what, const char *token,
                       const char *remedy)
{
    return spr_error_set(p->error, SPR_ERR_INVALID, -1,
                         "codec \"%.160s\", character %zu: %s \"%.64s\"; %s", p->spec,
                         (size_t)(at - p->spec) + 1, what, token, remedy);
}

/* Append to a list of names. */
static void append(char *list, size_t bytes, const char *name)
{
    size_t used = strlen(list);

    snprintf(list + used, bytes - used, "%s%s", used && list[used - 1] != ' ' ? ", " : "", name);
}

/* Copy the text up to one of `stops`; false when it is too long. */
static bool token(struct parser *p, const char *stops, char *buf, size_t bytes)
{
    size_t n = strcspn(p->at, stops);

    snprintf(buf, bytes, "%.*s", (int)spr_min_size(n, bytes - 1), p->at);
    p->at += n;
    return n < bytes;
}

static spr_status fail_stage(const struct parser *p, const char *at, const char *name)
{
    char list[384] = "known are ";

    for (const struct spr_codec_selection *s = spr_codec_selections; s->name; s++)
        append(list, sizeof(list), s->name);
    for (size_t i = 0; i < spr_value_coder_count; i++)
        append(list, sizeof(list), spr_value_coders[i]->name);
    for (size_t i = 0; i < SPR_ARRAY_LEN(aliases); i++)
        append(list, sizeof(list), aliases[i].name);
    return fail(p, at, "unknown codec", name, list);
}

static spr_status fail_option(const struct parser *p, const char *at, const char *stage,
                              const struct spr_opt *table, size_t n, const char *name)
{
    char list[160] = "";

    snprintf(list, sizeof(list), n ? "%s has " : "%s has none", stage);
    for (size_t i = 0; i < n; i++)
        append(list, sizeof(list), table[i].name);
    return fail(p, at, "unknown option", name, list);
}

/* "name=value,..." after the colon of a stage. */
static spr_status parse_options(struct parser *p, const char *stage, const struct spr_opt *table,
                                size_t n, void *fields)
{
    p->seen = 0;
    for (;;) {
        const char *start = p->at;
        struct spr_error why = {.rank = -1};
        char name[64], value[64];

        bool fits = token(p, "=,+", name, sizeof(name));
        const struct spr_opt *opt = fits ? spr_opt_find(table, n, name) : NULL;
        if (!opt)
            return fail_option(p, start, stage, table, n, name);
        if (*p->at != '=')
            return fail(p, start, "no value for option", name, "write name=value");
        if (p->seen >> (opt - table) & 1)
            return fail(p, start, "repeated option", name, "give it once");
        p->seen |= UINT64_C(1) << (opt - table);
        p->at++;
        start = p->at;
        if (!token(p, ",+", value, sizeof(value)))
            return fail(p, start, "value too long", value, opt->doc);
        if (spr_opt_set(opt, fields, value, &why) != SPR_OK)
            return fail(p, start, "bad value", value, why.text);
        if (*p->at != ',')
            return SPR_OK;
        p->at++;
    }
}

static void set_coder(spr_codec *codec, const struct spr_value_coder *c)
{
    codec->coder = c;
    spr_opt_defaults(c->options, c->option_count, codec->coder_options, NULL);
}

static size_t set_selection(spr_codec *codec, const struct spr_codec_selection *s,
                            struct spr_opt options[SPR_CODEC_OPTIONS_MAX])
{
    size_t count = spr_codec_selection_options(s, options);

    codec->selection = s;
    spr_opt_defaults(options, count, codec->options, NULL);
    set_coder(codec, s->coder ? s->coder : &spr_value_fp32);
    return count;
}

static spr_status parse_selection(struct parser *p, const char *start,
                                  const struct spr_codec_selection *s)
{
    struct spr_opt options[SPR_CODEC_OPTIONS_MAX];

    if (p->have_selection || p->have_coder)
        return fail(p, start, "misplaced", s->name,
                    "a codec has one selection, and it comes first");
    p->have_selection = true;
    size_t count = set_selection(p->codec, s, options);
    if (*p->at != ':')
        return SPR_OK;
    p->at++;
    spr_status status = parse_options(p, s->name, options, count, p->codec->options);
    const struct spr_opt *ratio = spr_opt_find(options, count, "ratio");
    p->have_ratio = ratio && p->seen >> (ratio - options) & 1;
    return status;
}

static spr_status parse_coder(struct parser *p, const char *start, const struct spr_value_coder *c)
{
    if (p->have_coder)
        return fail(p, start, "misplaced", c->name, "a codec has one value coder");
    if (p->codec->selection->steps == &spr_codec_low_rank)
        return fail(p, start, "misplaced", c->name,
                    "factors are sent as fp32, without a value coder");
    p->have_coder = true;
    set_coder(p->codec, c);
    if (*p->at != ':')
        return SPR_OK;
    p->at++;
    spr_status status =
        parse_options(p, c->name, c->options, c->option_count, p->codec->coder_options);
    const char *why = status == SPR_OK && c->refuse ? c->refuse(p->codec->coder_options) : NULL;
    if (status == SPR_OK && !why &&
        c->bound(p->codec->coder_options, SPR_WINDOW) > SPR_CHUNK_IMAGE_BYTES)
        why = "65536 values in so small groups may not fit a message: take larger groups";
    return why ? fail(p, start, "impossible options of", c->name, why) : status;
}

static spr_status parse_stage(struct parser *p)
{
    const struct spr_value_coder *coder;
    const char *start = p->at, *stage;
    char name[64];

    if (!token(p, ":+", name, sizeof(name)))
        return fail_stage(p, start, name);
    stage = name;
    for (size_t i = 0; i < SPR_ARRAY_LEN(aliases); i++)
        if (strcmp(aliases[i].name, name) == 0)
            stage = aliases[i].stage;
    for (const struct spr_codec_selection *s = spr_codec_selections; s->name; s++)
        if (strcmp(s->name, stage) == 0)
            return parse_selection(p, start, s);
    coder = spr_value_coder_find(stage);
    return coder ? parse_coder(p, start, coder) : fail_stage(p, start, name);
}

static bool is_default(const struct spr_opt *option, const void *fields)
{
    _Alignas(16) unsigned char other[SPR_CODEC_OPTION_BYTES] = {0};
    char value[64], standard[64];

    spr_opt_defaults(option, 1, other, NULL);
    return strcmp(spr_opt_print(option, fields, value, sizeof(value)),
                  spr_opt_print(option, other, standard, sizeof(standard))) == 0;
}

/* ":name=value,...": options in the order of the table; of those behind the first `always` only
 * what is not the default. Returns the characters. */
static size_t print_options(const struct spr_opt *options, size_t count, size_t always,
                            const void *fields, char *out, size_t room)
{
    char value[64];
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        if (i < always || !is_default(&options[i], fields))
            n += (size_t)snprintf(out + n, room - n, "%c%s=%s", n ? ',' : ':', options[i].name,
                                  spr_opt_print(&options[i], fields, value, sizeof(value)));
    return n;
}

/* The canonical string: all options of selector and coder, and how feedback differs from the
 * default; nothing that is implied. */
static void print_spec(spr_codec *codec)
{
    const struct spr_codec_selection *s = codec->selection;
    bool lossless = spr_codec_is_lossless(codec);
    struct spr_opt options[SPR_CODEC_OPTIONS_MAX];
    size_t count = spr_codec_selection_options(s, options);
    char *out = codec->spec;
    size_t room = sizeof(codec->spec), name = strlen(s->name), n = name;

    snprintf(out, room, "%s", s->name);
    n += print_options(options, count, spr_codec_selection_own_options(s), codec->options, out + n,
                       room - n);
    if (lossless && !s->coder) /* else it would be that one */
        return;
    if (s == spr_codec_selections && n == name)
        n = 0; /* "none" goes without saying */
    n += (size_t)snprintf(out + n, room - n, "%s%s", n ? "+" : "", codec->coder->name);
    print_options(codec->coder->options, codec->coder->option_count, codec->coder->option_count,
                  codec->coder_options, out + n, room - n);
}

enum spr_vtype spr_codec_vtype_of(const struct spr_value_coder *coder)
{
    static const struct spr_value_coder *const plain[SPR_V_COUNT] = {
        [SPR_V_FP32] = &spr_value_fp32,
        [SPR_V_FP16] = &spr_value_fp16,
        [SPR_V_BF16] = &spr_value_bf16,
    };

    for (int v = 0; v < SPR_V_COUNT; v++)
        if (plain[v] == coder)
            return (enum spr_vtype)v;
    return SPR_V_CODED;
}

/* Of a value as it is sent; of one whose size varies, the most. */
static double value_bits(const spr_codec *codec)
{
    enum { MANY = 1 << 15 };

    if (codec->vtype != SPR_V_CODED)
        return 8.0 * (double)spr_vtype_bytes(codec->vtype);
    return 8.0 * (double)codec->coder->bound(codec->coder_options, MANY) / MANY;
}

/* bytes=: the ratio at which values and positions, packed or as a bitmap, take so many. */
static spr_status take_bytes(const struct parser *p, const struct spr_opt *options, size_t count)
{
    spr_codec *codec = p->codec;
    struct spr_feedback_options *f = (void *)(codec->options + SPR_SELECT_OPTION_BYTES);
    const struct spr_opt *row = spr_opt_find(options, count, "ratio");
    double bits = 32 * f->bytes, value = value_bits(codec), ratio = f->bytes;
    char text[32];

    f->bytes = 0;
    if (bits <= 0 || !row)
        return SPR_OK;
    if (spr_codec_ratio(codec) <= 0)
        return fail(p, p->spec, "bytes= has no ratio to set in", codec->selection->name,
                    "with these options it does not go by one: leave one of them out");
    if (p->have_ratio)
        return fail(p, p->spec, "bytes= beside ratio= in", codec->selection->name,
                    "it would set the ratio: leave one of them out");
    for (int i = 0; i < 100; i++) {
        double position =
            spr_codec_sends_lists(codec) ? fmin(1 / ratio, spr_index_bitpack_bits(1 / ratio)) : 0;

        ratio = fmin(bits / (value + position), 1);
    }
    ratio = fmax(ratio, row->min);
    snprintf(text, sizeof(text), "%.6g", ratio); /* what the canonical string says */
    ratio = strtod(text, NULL);
    memcpy(codec->options + row->offset, &ratio, sizeof(ratio));
    return SPR_OK;
}

/* What a union leaves out needs a residual, and so does what coding the sums of a host loses. */
static spr_status check_union(const struct parser *p)
{
    const spr_codec *codec = p->codec;
    int joined = spr_codec_feedback(codec)->joined;

    if (joined == SPR_UNION_ALL)
        return SPR_OK;
    if (!spr_codec_sends_lists(codec))
        return fail(p, p->spec, joined == SPR_UNION_HOSTS ? "union=hosts in" : "union=bounded in",
                    codec->selection->name,
                    "all ranks send the same positions: nothing would be left out");
    if (spr_codec_feedback(codec)->rule == SPR_FEEDBACK_OFF)
        return fail(p, p->spec,
                    joined == SPR_UNION_HOSTS ? "union=hosts without feedback in"
                                              : "union=bounded without feedback in",
                    codec->selection->name,
                    "what it leaves out would be lost: leave out feedback=off");
    if (joined == SPR_UNION_HOSTS && codec->traits & SPR_VALUES_RANDOM)
        return fail(p, p->spec, "union=hosts beside", codec->coder->name,
                    "what rounding at random loses is not kept: take rounding=nearest, or fp16");
    return SPR_OK;
}

/* What would be accepted and do nothing. */
static spr_status check_feedback(const struct parser *p)
{
    const struct spr_feedback_options *f = spr_codec_feedback(p->codec);
    const char *name = p->codec->selection->name;

    if (f->warmup > 0 && spr_codec_ratio(p->codec) <= 0)
        return fail(p, p->spec, "warmup= has no ratio to begin with in", name,
                    "with these options it does not go by one: leave one of them out");
    if (f->clip > 0 && f->rule == SPR_FEEDBACK_OFF)
        return fail(p, p->spec, "clip= without feedback in", name,
                    "gradients are clipped on their way into the residual: leave out feedback=off");
    return SPR_OK;
}

spr_status spr_codec_parse(const char *spec, spr_codec *codec, struct spr_error *error)
{
    struct parser p = {.spec = spec, .at = spec, .codec = codec, .error = error};
    struct spr_opt options[SPR_CODEC_OPTIONS_MAX];
    spr_status status;

    set_selection(codec, &spr_codec_selections[0], options);
    for (;;) {
        status = parse_stage(&p);
        if (status != SPR_OK)
            return status;
        if (*p.at == '\0')
            break;
        p.at++; /* '+' */
    }
    codec->vtype = spr_codec_vtype_of(codec->coder);
    codec->traits = codec->coder->traits(codec->coder_options);
    status = take_bytes(&p, options, spr_codec_selection_options(codec->selection, options));
    if (status != SPR_OK)
        return status;
    status = check_union(&p);
    if (status == SPR_OK)
        status = check_feedback(&p);
    if (status != SPR_OK)
        return status;
    spr_codec_sums_choose(codec);
    print_spec(codec);
    return SPR_OK;
}

spr_status spr_codec_kind_of(const char *spec, struct spr_codec_kind *kind, struct spr_error *error)
{
    spr_codec codec = {0};
    spr_status status = spr_codec_parse(spec, &codec, error);

    if (status == SPR_OK)
        *kind = (struct spr_codec_kind){.dense = !codec.selection->selector,
                                        .lists = spr_codec_sends_lists(&codec),
                                        .coded = codec.vtype == SPR_V_CODED,
                                        .round_sums = codec.sum_vtype != SPR_V_FP32,
                                        .bound_union = spr_codec_bounds_union(&codec),
                                        .bound_hosts = spr_codec_bounds_hosts(&codec),
                                        .conserves = codec.selection->steps->conserves(&codec)};
    return status;
}

static void help_stage(FILE *out, const char *name, const char *doc, const struct spr_opt *options,
                       size_t count)
{
    fprintf(out, "  %-10s %s\n", name, doc);
    for (size_t o = 0; o < count; o++)
        fprintf(out, "    %-10s %s [%s]\n", options[o].name, options[o].doc,
                options[o].default_value);
}

void spr_codec_help(FILE *out)
{
    struct spr_opt options[SPR_CODEC_OPTIONS_MAX];

    fputs("A codec is a selection and a value coder, joined by '+', e.g. topk:ratio=1%+int8\n\n"
          "Selections (name:option=value,...):\n",
          out);
    for (const struct spr_codec_selection *s = spr_codec_selections; s->name; s++) {
        spr_codec_selection_options(s, options);
        help_stage(out, s->name, spr_codec_selection_doc(s), options,
                   spr_codec_selection_own_options(s));
    }
    help_stage(
        out, "...",
        "all of these, beside their own options; none and onebit: those up to sums; powersgd: none",
        spr_feedback_table, SPR_FEEDBACK_OPTIONS);
    fputs("\nValue coders:\n", out);
    for (size_t i = 0; i < spr_value_coder_count; i++)
        help_stage(out, spr_value_coders[i]->name, spr_value_coders[i]->doc,
                   spr_value_coders[i]->options, spr_value_coders[i]->option_count);
    fputs("\nOther names:", out);
    for (size_t i = 0; i < SPR_ARRAY_LEN(aliases); i++)
        fprintf(out, "%s %s = %s", i ? "," : "", aliases[i].name, aliases[i].stage);
    fputs("\n", out);
}
