/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Tuning: measures what the model needs, by collectives of the communicator itself (what is timed,
 * and how: tune_calls.c).
 *
 *   latency   each of several sendrecvs of one element, one after the other: of a single one, much
 *             is waiting for a rank that begins later
 *   grant     what a sparse allreduce of a short list takes longer than predicted by the others
 *   message   what an allreduce of one element takes longer, per further rank
 *   byte      what a sendrecv takes longer per byte, of all ranks at the same time
 *   reduce    the time that summing took in an allreduce
 *   encode, merge, take
 *             the times of the phases of two sparse allreduces, of a long and a short list
 *   clear, stream
 *             what phases of the short list took besides, in a short and in a long result
 *   load      plain work of all ranks at the same time, over what it takes alone
 *   exposed   what the long list took longer than the short one, beside what is predicted
 *   copy      what a dense sum that is hierarchical takes longer than predicted without it
 *   start     what each algorithm takes longer than that for a short vector or list
 *
 * Times of messages are medians of a few runs, each on the rank where it is largest: that one is
 * waited for. Bytes and work are timed where they are not disturbed, the least of the runs, and
 * work is multiplied by how much longer it takes when all ranks work.
 */
#include <string.h>

#include "base/fork.h"
#include "base/log.h"
#include "collectives/tune.h"

/* For `start`. */
#define FEW_ELEMENTS ((size_t)1024) /* or what `flat` is for, if that is less */
#define FEW_POSITIONS ((size_t)16 << 10)
#define FEW_ENTRIES (FEW_POSITIONS / 256)

/* The constants are computed alike, but perhaps by other libraries: those of rank 0 count. */
static spr_status agree_on_model(struct spr_tuning *t)
{
    char text[SPR_MODEL_BYTES] = "";
    spr_status status;

    spr_model_print(&t->model, text, sizeof text);
    status = spr_broadcast(t->comm, text, sizeof text / sizeof(int32_t), SPR_INT32, 0, NULL);
    text[sizeof text - 1] = '\0';
    return status ? status : spr_model_parse(text, &t->model, spr_thread_error());
}

/* All have their memory, or all fail. */
static spr_status make_tuning(struct spr_tuning *t)
{
    double missing;
    spr_status status;

    t->a = spr_calloc(SPR_TUNING_LAST_BYTES, 1);
    t->b = spr_pages_alloc(SPR_TUNING_MOST_POSITIONS * sizeof *t->b);
    t->list.index = spr_calloc(SPR_TUNING_LONG_LIST, sizeof(uint32_t));
    t->list.value = spr_calloc(SPR_TUNING_LONG_LIST, sizeof(float));
    t->work = spr_calloc((size_t)t->comm->size * (SPR_TUNING_PHASES + 1), sizeof *t->work);
    missing = !(t->a && t->b && t->list.index && t->list.value && t->work);
    status = spr_tuning_agree(t->comm, &missing, 1);
    if (status == SPR_OK && missing > 0)
        status = spr_error_set(spr_thread_error(), SPR_ERR_NOMEM, t->comm->rank,
                               "no rank measures a model: one of them has no memory for %zu bytes",
                               SPR_TUNING_LAST_BYTES + SPR_TUNING_MOST_POSITIONS * sizeof *t->b);
    return status;
}

static void drop_tuning(struct spr_tuning *t)
{
    spr_free(t->a);
    spr_pages_free(t->b, SPR_TUNING_MOST_POSITIONS * sizeof *t->b);
    spr_free(t->list.index);
    spr_free(t->list.value);
    spr_free(t->work);
}

static size_t few_elements(const spr_comm *comm)
{
    size_t eager = comm->options.eager_bytes / sizeof(float);

    return spr_max_size(1, spr_min_size(FEW_ELEMENTS, eager));
}

static spr_status measure(struct spr_tuning *t)
{
    spr_status status = spr_tuning_links(t);

    if (status == SPR_OK)
        status = spr_tuning_load(t);
    if (status == SPR_OK)
        status = spr_tuning_work(t);
    if (status == SPR_OK)
        status = spr_tuning_copies(t);
    if (status == SPR_OK)
        status = spr_tuning_starts(t, &(struct spr_plan){.collective = SPR_C_ALLREDUCE,
                                                         .dtype = SPR_FP32,
                                                         .count = few_elements(t->comm)});
    if (status == SPR_OK)
        status = spr_tuning_starts(t, &(struct spr_plan){.collective = SPR_C_SPARSE_ALLREDUCE,
                                                         .dtype = SPR_FP32,
                                                         .count = FEW_POSITIONS,
                                                         .most_entries = FEW_ENTRIES});
    return status ? status : agree_on_model(t);
}

spr_status spr_comm_tune(spr_comm *comm)
{
    struct spr_tuning t = {.comm = comm, .model = {.known = true}};
    char text[SPR_MODEL_BYTES];
    spr_status status;

    spr_error_clear(spr_thread_error());
    if (!comm)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1, "NULL communicator");
    if (comm->process != spr_process())
        return spr_comm_forked(comm);
    if (comm->size == 1)
        return SPR_OK;
    _Static_assert(SPR_TUNING_MOST_POSITIONS * sizeof(float) >= SPR_TUNING_LAST_BYTES,
                   "what is received has room");
    spr_tuning_choose_shift(&t);
    status = make_tuning(&t);
    if (status == SPR_OK) {
        status = measure(&t);
        /* Of which the others may not know. */
        if (status == SPR_ERR_NOMEM)
            status = spr_comm_failed_call(comm, status, spr_thread_error());
    }
    drop_tuning(&t);
    if (status)
        return status;
    spr_comm_lock(comm);
    comm->model = t.model;
    spr_comm_unlock(comm);
    spr_info(SPR_SUB_COLL, "model: %s", spr_model_print(&t.model, text, sizeof text));
    return SPR_OK;
}

const char *spr_comm_model(spr_comm *comm, char *text, size_t bytes)
{
    struct spr_model model = {0};

    if (comm->process == spr_process()) {
        spr_comm_lock(comm);
        model = comm->model;
        spr_comm_unlock(comm);
    }
    text[0] = '\0';
    return model.known ? spr_model_print(&model, text, bytes) : text;
}
