/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Codec state as bytes (little-endian):
 *
 *    0                 4                 8                                  16
 *   +-----------------+-----------------+-----------------------------------+
 *   | "SPRS"          | version         | bytes, all of it                  |
 *   +-----------------+-----------------+-----------------+-----------------+
 *   | parameters                        | steps                             |
 *   +-----------------------------------+-----------------+-----------------+
 *   | CRC-32C         | vectors         | threshold       | age             | 48
 *   +-----------------+-----------------+-----------------+-----------------+
 *   | learning rate, fp64               | ratio, fp64                       | 64
 *   +-----------------------------------+-----------------------------------+
 *   | id                                | elements                          | per parameter, ids
 *   +-----------------------------------+-----------------------------------+ ascending
 *   | start                             |
 *   +-----------------------------------+
 *   | residual, fp32, parameter after parameter
 *   +-----------------------------------
 *   | velocity, likewise, if there are two vectors
 *   +-----------------------------------
 *   | of each parameter in turn `start` floats: where the next step of a low rank starts, or what
 *   | "adaptive" has learned (struct spr_adapt_memory)
 *   +-----------------------------------
 *
 * The CRC covers all but itself. The number of steps that were committed decides what the next
 * ones draw; the threshold (magnitude bits) and its age are what the selector has learned.
 * Parameters are ordered by id, so the bytes do not depend on the layout. A velocity that is not
 * there is zero, a start that is not there, or is for another rank, is drawn anew; a ratio (0: that
 * of the string) beyond what the codec's string allows becomes that; what the codec has no use for
 * is ignored.
 */
#include <stdint.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/util.h"
#include "compress/codec_internal.h"

#define STATE_MAGIC 0x53525053u /* "SPRS" */
#define STATE_VERSION 6u

struct state_header {
    uint32_t magic;
    uint32_t version;
    uint64_t bytes;
    uint64_t parameters;
    uint64_t steps;
    uint32_t crc;
    uint32_t vectors;
    uint32_t threshold_bits;
    uint32_t age;
    double rate;  /* learning rate that the residual is for; 0: unknown */
    double ratio; /* that was set for new steps; 0: as in the string */
};
struct state_record {
    uint64_t id;
    uint64_t elements;
    uint64_t start;
};
_Static_assert(sizeof(struct state_header) == 64, "state header layout");
_Static_assert(sizeof(struct state_record) == 24, "state record layout");

static uint32_t checksum(const char *data, size_t bytes)
{
    size_t before = offsetof(struct state_header, crc), after = before + sizeof(uint32_t);

    return spr_crc32c(spr_crc32c(0, data, before), data + after, bytes - after);
}

static spr_status fail(spr_status status, const char *what)
{
    return spr_error_set(spr_thread_error(), status, -1, "codec state: %s", what);
}

/* Where the next step of parameter i starts; *n floats, 0 where there is no such thing. */
static float *start_of(const spr_codec *codec, size_t i, size_t *n)
{
    *n = 0;
    if (codec->adapt.count > 0) {
        struct spr_adapt_memory *m = &codec->adapt.parts[codec->parameters[i].place].memory;

        *n = sizeof(*m) / sizeof(float);
        return (float *)m;
    }
    return codec->lowrank.state ? spr_lowrank_start(&codec->lowrank, i, n) : NULL;
}

spr_status spr_codec_save(const spr_codec *codec, void *buffer, size_t *bytes)
{
    struct state_header h = {
        .magic = STATE_MAGIC,
        .version = STATE_VERSION,
        .parameters = codec->parameter_count,
        .steps = codec->steps,
        .vectors = codec->velocity ? 2 : 1,
        .threshold_bits = codec->select.threshold_bits,
        .age = codec->select.age,
        .rate = codec->residual_rate,
        .ratio = codec->ratio,
    };
    const float *vector[2] = {codec->residual, codec->velocity};
    size_t capacity = *bytes, n;
    char *out = buffer;

    spr_error_clear(spr_thread_error());
    if (codec->phase == SPR_CODEC_RUNNING)
        return fail(SPR_ERR_INVALID, "a request is running");
    h.bytes = sizeof(h) + codec->parameter_count * sizeof(struct state_record) +
              h.vectors * codec->elements * sizeof(float);
    for (size_t i = 0; i < codec->parameter_count; i++) {
        (void)start_of(codec, i, &n);
        h.bytes += n * sizeof(float);
    }
    *bytes = (size_t)h.bytes;
    if (!buffer || capacity < h.bytes)
        return fail(SPR_ERR_TOO_SMALL, "the buffer is too small");
    spr_codec_settle(codec);
    memcpy(out, &h, sizeof(h));
    out += sizeof(h);
    for (size_t i = 0; i < codec->parameter_count; i++) {
        const struct spr_codec_parameter *p = &codec->parameters[i];
        struct state_record r = {.id = p->id, .elements = p->elements};

        (void)start_of(codec, i, &n);
        r.start = n;
        memcpy(out, &r, sizeof(r));
        out += sizeof(r);
    }
    for (uint32_t v = 0; v < h.vectors; v++)
        for (size_t i = 0; i < codec->parameter_count; i++) {
            const struct spr_codec_parameter *p = &codec->parameters[i];

            n = (size_t)p->elements * sizeof(float);
            memcpy(out, vector[v] + p->offset, n);
            out += n;
        }
    for (size_t i = 0; i < codec->parameter_count; i++) {
        const float *start = start_of(codec, i, &n);

        if (n > 0)
            memcpy(out, start, n * sizeof(float));
        out += n * sizeof(float);
    }
    h.crc = checksum(buffer, (size_t)h.bytes);
    memcpy((char *)buffer + offsetof(struct state_header, crc), &h.crc, sizeof(h.crc));
    return SPR_OK;
}

spr_status spr_codec_clear(spr_codec *codec)
{
    spr_error_clear(spr_thread_error());
    if (codec->phase == SPR_CODEC_RUNNING)
        return fail(SPR_ERR_INVALID, "a request is running");
    spr_codec_settle(codec); /* what was sent is not to be taken away again */
    memset(codec->residual, 0, codec->elements * sizeof(float));
    if (codec->velocity)
        memset(codec->velocity, 0, codec->elements * sizeof(float));
    spr_codec_sums_forget(codec);
    codec->phase = SPR_CODEC_IDLE;
    return SPR_OK;
}

static struct state_record record(const char *data, uint64_t i)
{
    struct state_record r;

    memcpy(&r, data + sizeof(struct state_header) + i * sizeof(r), sizeof(r));
    return r;
}

/* Are these bytes something that spr_codec_save wrote? */
static spr_status check(const char *data, size_t bytes, struct state_header *h)
{
    if (bytes < sizeof(*h))
        return fail(SPR_ERR_CORRUPT, "shorter than its header");
    memcpy(h, data, sizeof(*h));
    if (h->magic != STATE_MAGIC)
        return fail(SPR_ERR_CORRUPT, "not a saved state");
    if (h->version != STATE_VERSION)
        return fail(SPR_ERR_UNSUPPORTED, "written by another version");
    if (h->bytes != bytes)
        return fail(SPR_ERR_CORRUPT, "its length differs from the one it names");
    if (h->crc != checksum(data, bytes))
        return fail(SPR_ERR_CORRUPT, "the checksum does not match");
    if (h->vectors < 1 || h->vectors > 2)
        return fail(SPR_ERR_CORRUPT, "neither one nor two vectors");
    if (h->threshold_bits > INT32_MAX)
        return fail(SPR_ERR_CORRUPT, "a negative threshold");
    if (h->rate != 0 && !(h->rate >= 1 / SPR_CODEC_RATE_MAX && h->rate <= SPR_CODEC_RATE_MAX))
        return fail(SPR_ERR_CORRUPT, "a learning rate that is none");
    if (!(h->ratio >= 0 && h->ratio <= 1))
        return fail(SPR_ERR_CORRUPT, "a ratio that is none");
    uint64_t left = bytes - sizeof(*h), previous = 0;
    if (h->parameters > left / sizeof(struct state_record))
        return fail(SPR_ERR_CORRUPT, "more parameters than bytes");
    left -= h->parameters * sizeof(struct state_record);
    for (uint64_t i = 0; i < h->parameters; i++) {
        struct state_record r = record(data, i);

        if (i > 0 && r.id <= previous)
            return fail(SPR_ERR_CORRUPT, "parameters are not in order");
        if (r.elements > left / sizeof(float) / h->vectors)
            return fail(SPR_ERR_CORRUPT, "more elements than bytes");
        left -= h->vectors * r.elements * sizeof(float);
        if (r.start > left / sizeof(float))
            return fail(SPR_ERR_CORRUPT, "more of a start than bytes");
        left -= r.start * sizeof(float);
        previous = r.id;
    }
    return left == 0 ? SPR_OK : fail(SPR_ERR_CORRUPT, "bytes left over");
}

/* Both lists of parameters ascend by id: *own is where the search begins, and ends. */
static bool find(const spr_codec *codec, uint64_t id, size_t *own)
{
    while (*own < codec->parameter_count && codec->parameters[*own].id < id)
        ++*own;
    return *own < codec->parameter_count && codec->parameters[*own].id == id;
}

/* to: one vector from *values on, which moves to the next one; NULL: only compare the sizes. */
static spr_status match(const spr_codec *codec, const char *data, const struct state_header *h,
                        const char **values, float *to)
{
    size_t own = 0;

    for (uint64_t i = 0; i < h->parameters; i++) {
        struct state_record r = record(data, i);
        size_t n = (size_t)r.elements * sizeof(float);

        if (find(codec, r.id, &own)) {
            if (codec->parameters[own].elements != r.elements)
                return fail(SPR_ERR_MISMATCH, "a parameter has another size in this layout");
            if (to)
                memcpy(to + codec->parameters[own].offset, *values, n);
        }
        *values += n;
    }
    return SPR_OK;
}

/* Of the parameters that both have, and that have it in the same size. */
static void load_starts(spr_codec *codec, const char *data, const struct state_header *h,
                        const char *values)
{
    size_t own = 0;

    for (uint64_t i = 0; i < h->parameters; i++) {
        struct state_record r = record(data, i);
        size_t n = 0;
        float *start = NULL;

        if (find(codec, r.id, &own))
            start = start_of(codec, own, &n);
        if (n == r.start && n > 0)
            memcpy(start, values, n * sizeof(float));
        values += (size_t)r.start * sizeof(float);
    }
}

static const char *vectors_of(const void *data, const struct state_header *h)
{
    return (const char *)data + sizeof(*h) + h->parameters * sizeof(struct state_record);
}

static void forget(spr_codec *codec, size_t i)
{
    const struct spr_codec_parameter *p = &codec->parameters[i];
    size_t bytes = (size_t)p->elements * sizeof(float);

    memset(codec->residual + p->offset, 0, bytes);
    if (codec->velocity)
        memset(codec->velocity + p->offset, 0, bytes);
    if (codec->adapt.count > 0)
        spr_adapt_reset(&codec->adapt, p->place);
    if (codec->lowrank.state)
        spr_lowrank_reset_tensor(&codec->lowrank, i);
}

/* What the bytes name gets a new state; the rest stays, worth the same at the rate of the bytes. */
static void make_room(spr_codec *codec, const char *data, struct state_header *h)
{
    size_t own = 0;

    spr_codec_settle(codec);
    for (uint64_t i = 0; i < h->parameters; i++)
        if (find(codec, record(data, i).id, &own))
            forget(codec, own);
    spr_codec_change_rate(codec, h->rate);
    h->rate = codec->residual_rate;
}

static spr_status load(spr_codec *codec, const void *buffer, size_t bytes, bool merge)
{
    struct state_header h;
    const char *values;
    spr_status status;

    spr_error_clear(spr_thread_error());
    if (codec->phase == SPR_CODEC_RUNNING)
        return fail(SPR_ERR_INVALID, "a request is running");
    if (!buffer)
        return fail(SPR_ERR_INVALID, "no buffer");
    status = check(buffer, bytes, &h);
    if (status == SPR_OK) {
        values = vectors_of(buffer, &h);
        status = match(codec, buffer, &h, &values, NULL);
    }
    if (status != SPR_OK)
        return status;
    values = vectors_of(buffer, &h);
    if (merge)
        make_room(codec, buffer, &h);
    for (size_t i = 0; !merge && i < codec->parameter_count; i++)
        forget(codec, i);
    codec->residual_zero = false;
    match(codec, buffer, &h, &values, codec->residual);
    if (h.vectors == 2)
        match(codec, buffer, &h, &values, codec->velocity);
    load_starts(codec, buffer, &h, values);
    codec->steps = h.steps;
    codec->residual_rate = h.rate;
    codec->ratio = h.ratio < spr_codec_ratio(codec) ? h.ratio : 0;
    codec->select = (struct spr_select_state){h.threshold_bits, h.age};
    codec->phase = SPR_CODEC_IDLE; /* the steps before belonged to the state that is gone */
    codec->committed = -1;
    spr_codec_sums_forget(codec);
    return SPR_OK;
}

spr_status spr_codec_load(spr_codec *codec, const void *buffer, size_t bytes)
{
    return load(codec, buffer, bytes, false);
}

spr_status spr_codec_merge(spr_codec *codec, const void *buffer, size_t bytes)
{
    return load(codec, buffer, bytes, true);
}
