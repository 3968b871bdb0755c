/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The buffers of a schedule's calls, and the calls themselves.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/reference.h"
#include "base/crc32c.h"
#include "compress/codec_internal.h"
#include "tests/sim/schedules.h"

#define GUARD 0xee

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

/* Small whole numbers have exact sums in every type and order; compressed ones in halves too. */
static double input(const struct schedule *s, const struct schedule_operation *o, int k, int rank,
                    size_t i)
{
    uint64_t which = s->seed ^ (uint64_t)k << 50 ^ (uint64_t)rank << 40 ^ i;
    int most = o->kind == SCHEDULE_COMPRESSED ? SCHEDULE_LARGEST : 100;

    if (!o->whole)
        return reference_input(s->seed, o->dtype, (uint64_t)k, rank, i);
    return (double)(int)(spr_hash_u32(which) % (uint32_t)(2 * most + 1)) - most;
}

static void fill_list(const struct schedule *s, const struct schedule_operation *o,
                      struct schedule_call *c, int k, int rank)
{
    float *x = (float *)(void *)c->in;

    c->list.index = must(malloc(o->count * 4 + 4));
    c->list.value = must(malloc(o->count * 4 + 4));
    for (size_t i = 0; i < o->count; i++) {
        uint64_t which = s->seed ^ i * 977 ^ (uint64_t)rank << 33 ^ (uint64_t)k << 43;
        if (spr_hash_u32(which) * 0x1p-32 >= o->density) {
            x[i] = 0;
            continue;
        }
        c->list.index[c->list.count] = (uint32_t)i;
        c->list.value[c->list.count++] = x[i];
    }
    if (o->list) {
        c->result.capacity = o->count;
        c->result.index = must(malloc(o->count * 4 + 4));
        c->result.value = must(malloc(o->count * 4 + 4));
    }
}

static void fill_call(struct schedule_play *play, int rank, int k)
{
    const struct schedule *s = &play->schedule;
    const struct schedule_operation *o = schedule_call_of(s, rank, k);
    struct schedule_call *c = &play->call[rank][k];
    size_t element = spr_dtype_size(o->dtype);

    c->status = SPR_IN_PROGRESS;
    c->in = must(malloc(o->in_count * element + 1));
    c->out = must(malloc(o->out_count * element + 1));
    memset(c->out, GUARD, o->out_count * element + 1);
    for (size_t i = 0; i < o->in_count; i++)
        reference_store(o->dtype, c->in, i, input(s, o, k, rank, i));
    if (o->kind == SCHEDULE_SPARSE)
        fill_list(s, o, c, k, rank);
    if (o->kind != SCHEDULE_COMPRESSED)
        return;
    c->before = must(malloc(o->count * sizeof(float)));
    c->velocity = must(calloc(o->count, sizeof(float)));
    c->entered = must(malloc(o->count * sizeof(float)));
    c->sent = must(malloc(o->count * sizeof(float)));
    if (!play->codec[rank])
        play->codec[rank] = schedule_codec(s);
}

void schedule_fill(struct schedule_play *play)
{
    for (int r = 0; r < play->schedule.ranks; r++)
        for (int k = 0; k < play->schedule.operations; k++)
            fill_call(play, r, k);
}

void schedule_free(struct schedule_play *play)
{
    for (int r = 0; r < play->schedule.ranks; r++) {
        spr_codec_destroy(play->codec[r]);
        for (int k = 0; k < play->schedule.operations; k++) {
            struct schedule_call *c = &play->call[r][k];
            free(c->in);
            free(c->out);
            free(c->list.index);
            free(c->list.value);
            free(c->result.index);
            free(c->result.value);
            free(c->before);
            free(c->velocity);
            free(c->entered);
            free(c->sent);
        }
    }
}

static size_t out_bytes(const struct schedule_play *play, int r, int k)
{
    const struct schedule_operation *o = schedule_call_of(&play->schedule, r, k);

    return o->out_count * spr_dtype_size(o->dtype);
}

uint32_t schedule_out_crc(const struct schedule_play *play, int r, int k)
{
    return spr_crc32c(0, play->call[r][k].out, out_bytes(play, r, k));
}

void schedule_offer(struct schedule_play *play, int r, int k)
{
    size_t bytes = out_bytes(play, r, k);

    if (play->schedule.links.place && bytes)
        (void)spr_mem_register(play->world.comms[r], play->call[r][k].out, bytes);
}

static spr_status post_compressed(struct schedule_play *play, int r, struct schedule_call *c,
                                  const struct schedule_operation *o,
                                  const spr_call_options *options)
{
    spr_codec *codec = play->codec[r];

    memcpy(c->before, spr_codec_residual(codec), o->count * sizeof(float));
    if (codec->velocity)
        memcpy(c->velocity, codec->velocity, o->count * sizeof(float));
    schedule_enter(codec, (const float *)(const void *)c->in, c->entered, o->count);
    memcpy(c->out, c->in, o->count * sizeof(float));
    return spr_icompressed_allreduce(play->world.comms[r], codec, (float *)(void *)c->out, o->op,
                                     options, &c->request);
}

spr_status schedule_post(struct schedule_play *play, int r, int k)
{
    const struct schedule_operation *o = schedule_call_of(&play->schedule, r, k);
    struct schedule_call *c = &play->call[r][k];
    spr_comm *comm = play->world.comms[r];
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    size_t bytes = o->count * spr_dtype_size(o->dtype);
    char *in = c->in, *out = c->out;

    options.algorithm = o->kind == SCHEDULE_COMPRESSED ? NULL : o->algorithm;
    options.priority = schedule_priority(&play->schedule, r, k);
    options.most_entries = play->schedule.model ? o->count : 0;
    switch (o->kind) {
    case SCHEDULE_ALLREDUCE:
        if (o->in_place)
            in = memcpy(out, in, bytes);
        return spr_iallreduce(comm, in, out, o->count, o->dtype, o->op, &options, &c->request);
    case SCHEDULE_REDUCE_SCATTER:
        return spr_ireduce_scatter(comm, in, out, o->count, o->dtype, o->op, &options, &c->request);
    case SCHEDULE_ALLGATHER:
        if (o->in_place)
            in = memcpy(out + (size_t)r * bytes, in, bytes);
        return spr_iallgather(comm, in, out, o->count, o->dtype, &options, &c->request);
    case SCHEDULE_BROADCAST:
        if (r == o->root)
            memcpy(out, in, bytes);
        return spr_ibroadcast(comm, out, o->count, o->dtype, o->root, &options, &c->request);
    case SCHEDULE_BARRIER:
        return spr_ibarrier(comm, &options, &c->request);
    case SCHEDULE_SENDRECV:
        return spr_isendrecv(comm, in, out, o->count, o->dtype, o->root, &options, &c->request);
    case SCHEDULE_SPARSE:
        return spr_isparse_allreduce(comm, &c->list, o->count, (float *)(void *)out,
                                     o->list ? &c->result : NULL, o->op, &options, &c->request);
    default:
        return post_compressed(play, r, c, o, &options);
    }
}

bool schedule_fail(struct schedule_play *play, int rank, int operation, const char *format, ...)
{
    const spr_comm *comm = rank >= 0 ? play->world.comms[rank] : NULL;
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(play->failure, sizeof play->failure, "rank %d, operation %d, at %.3f us: %s ('%s')",
             rank, operation, (double)play->now_ns / 1e3, text, comm ? spr_last_error(comm) : "");
    return false;
}
