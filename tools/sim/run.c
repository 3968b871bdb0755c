/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/sim/run.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/util.h"
#include "collectives/collective.h"
#include "collectives/comm.h"
#include "tools/sim/input.h"
#include "tools/sim/predict.h"
#include "tools/sim/world.h"

struct call {
    struct input *input;
    struct run *run;
    spr_call_options options;
};

static spr_status post(void *ctx, int rank, spr_comm *comm, spr_request **request)
{
    struct call *c = ctx;
    float *vector = c->input->vectors[rank];
    size_t elements = c->run->options->elements;
    spr_status status;

    if (c->run->kind == KIND_ALLREDUCE)
        status =
            spr_iallreduce(comm, vector, vector, elements, SPR_FP32, SPR_SUM, &c->options, request);
    else if (c->run->kind == KIND_SPARSE)
        status = spr_isparse_allreduce(comm, &c->input->lists[rank], elements, vector, NULL,
                                       SPR_SUM, &c->options, request);
    else
        status = spr_icompressed_allreduce(comm, c->input->codecs[rank], vector, SPR_AVG,
                                           &c->options, request);
    if (status == SPR_OK)
        c->run->algorithm = (*request)->posted.algorithm;
    return status;
}

static struct level level_of(const struct spr_sim *sim, enum spr_sim_level level)
{
    struct level l = {.count = spr_sim_count(sim, level)};

    for (int i = 0; i < l.count; i++) {
        struct spr_sim_traffic t = spr_sim_traffic(sim, level, i);

        l.sent += (double)t.sent_bytes;
        l.frames += (double)t.sent_frames;
        l.of_one = fmax(l.of_one, (double)t.sent_frames);
        if ((double)t.sent_bytes > l.most_sent) {
            l.most_sent = (double)t.sent_bytes;
            l.sender = i;
        }
        if ((double)t.received_bytes > l.most_received) {
            l.most_received = (double)t.received_bytes;
            l.receiver = i;
        }
    }
    return l;
}

static void count(struct run *run, const struct world *world)
{
    struct figures *f = &run->figures;
    double union_entries = (double)world->comms[0]->counters.last_union;

    *f = (struct figures){0};
    for (int level = 0; level < SPR_SIM_LEVELS; level++)
        f->levels[level] = level_of(world->sim, (enum spr_sim_level)level);
    f->time_us = (double)(world->end_ns - world->begin_ns) * 1e-3;
    f->memory = (double)(world->peak_bytes - world->base_bytes) / world->ranks;
    f->union_density = union_entries > 0 ? union_entries / (double)run->options->elements : NAN;
    f->predicted_us = predict_time_us(run);
}

static bool fail(const struct run *run, const char *text)
{
    fprintf(stderr, "sparring-sim: %s on %d ranks: %s\n", kind_names[run->kind], run->ranks, text);
    return false;
}

/* With the world open. */
static bool run_in(struct run *run, struct world *world, struct input *input, bool optional)
{
    struct call call = {.input = input, .run = run, .options = SPR_CALL_OPTIONS_INIT};
    struct spr_error error = {0};
    struct verdict verdict;
    spr_status status;

    call.options.algorithm = run->algorithm;
    if (run->kind == KIND_COMPRESSED && input_codecs(input, run->codec) != SPR_OK)
        return fail(run, spr_last_error(NULL));
    status = world_run(world, post, &call, &error);
    run->refused = status == SPR_ERR_INVALID;
    if (run->refused && optional)
        return true;
    if (status)
        return fail(run, error.text);
    count(run, world);
    verdict = input_check(input, run->codec);
    run->figures.wrong = verdict.wrong;
    run->figures.same = verdict.same;
    return true;
}

/* Each rank has a vector. Where these are larger than the memory, the kernel would kill the
 * program, or another one: there the model speaks, if it knows what is asked for. */
static bool has_memory(const struct run *run, bool *modelled)
{
    double vectors = (double)run->ranks * (double)run->options->elements * sizeof(float);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char text[160];

    *modelled = predict_is_needed(run) || (vectors >= memory && is_modelled(run->options));
    if (*modelled || vectors < memory)
        return true;
    snprintf(text, sizeof text,
             "their vectors alone take %.3g GB, and this machine has %.3g: give fewer --elements",
             vectors * 1e-9, memory * 1e-9);
    return fail(run, text);
}

bool run_once(struct run *run, bool optional)
{
    uint64_t begin = spr_monotonic_ns();
    struct spr_error error = {0};
    struct input input;
    struct world world;
    bool done, modelled;

    if (!has_memory(run, &modelled))
        return false;
    if (modelled)
        return predict_run(run, &error) || (run->refused && optional) || fail(run, error.text);
    if (!input_open(&input, run->options, run->kind, run->ranks,
                    isfinite(run->density) ? run->density : 1))
        return fail(run, "out of memory");
    done = world_open(&world, run->options, run->ranks, run->link, &error) == SPR_OK;
    if (!done)
        fail(run, error.text);
    else
        done = run_in(run, &world, &input, optional);
    world_close(&world);
    input_close(&input);
    run->figures.wall_s = (double)(spr_monotonic_ns() - begin) * 1e-9;
    return done;
}
