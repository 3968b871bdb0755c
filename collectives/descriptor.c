/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/descriptor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collectives/collective.h"

/* Odd; half of its bits are set. */
#define MULTIPLIER 0x9e3779b97f4a7c15ull

static uint64_t mix(uint64_t h, uint64_t word)
{
    unsigned __int128 product = (unsigned __int128)(h ^ word) * MULTIPLIER;

    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

/* This is on the way of every small message: each word by one wide multiplication, in lanes that
 * the CPU takes side by side. */
uint64_t spr_descriptor_hash(const struct spr_descriptor *d)
{
    enum { LANES = 4 };
    uint64_t words[sizeof *d / sizeof(uint64_t)], lanes[LANES] = {0}, h = 0;

    memcpy(words, d, sizeof *d);
    _Static_assert(SPR_ARRAY_LEN(words) % LANES == 0, "whole rows");
    for (size_t i = 0; i < SPR_ARRAY_LEN(words); i += LANES)
        for (size_t k = 0; k < LANES; k++)
            lanes[k] = mix(lanes[k], words[i + k]);
    for (size_t k = 0; k < LANES; k++)
        h = mix(h + k + 1, lanes[k]); /* lanes do not stand for each other */
    return h;
}

/* One value of a field as text. */
typedef void print_field(const struct spr_descriptor *d, char *text, size_t bytes);

static void print_collective(const struct spr_descriptor *d, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s",
             d->collective < SPR_C_COUNT ? spr_collective_names[d->collective] : "unknown");
}

static void print_count(const struct spr_descriptor *d, char *text, size_t bytes)
{
    snprintf(text, bytes, "%" PRIu64, d->count);
}

static void print_dtype(const struct spr_descriptor *d, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", spr_dtype_name((spr_dtype)d->dtype));
}

static void print_op(const struct spr_descriptor *d, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", spr_op_name((spr_op)d->op));
}

static void print_root(const struct spr_descriptor *d, char *text, size_t bytes)
{
    snprintf(text, bytes, "%" PRId32, d->root);
}

static void print_codec(const struct spr_descriptor *d, char *text, size_t bytes)
{
    snprintf(text, bytes, "%016" PRIx64, d->codec_hash);
}

static void print_step(const struct spr_descriptor *d, char *text, size_t bytes)
{
    snprintf(text, bytes, "%" PRIu64, d->codec_step);
}

static void print_vtype(const struct spr_descriptor *d, char *text, size_t bytes)
{
    snprintf(text, bytes, "%" PRIu32, d->vtype);
}

static void print_algorithm(const struct spr_descriptor *d, char *text, size_t bytes)
{
    snprintf(text, bytes, "%.*s", (int)sizeof d->algorithm, d->algorithm);
}

static void print_name(const struct spr_descriptor *d, char *text, size_t bytes)
{
    snprintf(text, bytes, "'%.*s'", (int)sizeof d->name, d->name);
}

static void print_size(const struct spr_descriptor *d, char *text, size_t bytes)
{
    snprintf(text, bytes, "%" PRIu32, d->size);
}

/* In the order in which they are named: what a reader would check first, causes before what follows
 * from them (the count of a codec may depend on its step). */
static const struct {
    const char *name;
    print_field *print;
} fields[] = {
    {"collective", print_collective},
    {"name", print_name},
    {"step of the codec", print_step},
    {"count", print_count},
    {"element type", print_dtype},
    {"operation", print_op},
    {"root or shift", print_root},
    {"codec (hash)", print_codec},
    {"type of the values on the wire", print_vtype},
    {"algorithm", print_algorithm},
    {"number of ranks", print_size},
};

static void add_side(char *text, size_t bytes, const char *value, int rank, const char *host)
{
    size_t used = strlen(text);

    snprintf(text + used, bytes - used, "%s on rank %d%s%s%s", value, rank, *host ? " (host " : "",
             host, *host ? ")" : "");
}

void spr_descriptor_explain(uint32_t operation, const struct spr_descriptor *a, int rank_a,
                            const char *host_a, const struct spr_descriptor *b, int rank_b,
                            const char *host_b, char *text, size_t bytes)
{
    char left[80] = "", right[80] = "", kind[32], name[80] = "";
    size_t i;

    /* The lower rank first, so that both sides say the same. */
    if (rank_a > rank_b) {
        spr_descriptor_explain(operation, b, rank_b, host_b, a, rank_a, host_a, text, bytes);
        return;
    }
    for (i = 0; i < SPR_ARRAY_LEN(fields); i++) {
        fields[i].print(a, left, sizeof left);
        fields[i].print(b, right, sizeof right);
        if (strcmp(left, right))
            break;
    }
    print_collective(a, kind, sizeof kind);
    if (a->name[0])
        print_name(a, name, sizeof name);
    snprintf(text, bytes, "%s #%" PRIu32 "%s%s: the ranks disagree: %s ", kind, operation,
             *name ? " " : "", name, i < SPR_ARRAY_LEN(fields) ? fields[i].name : "description");
    add_side(text, bytes, left, rank_a, host_a);
    snprintf(text + strlen(text), bytes - strlen(text), ", ");
    add_side(text, bytes, right, rank_b, host_b);
}
