/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/fuzz/comm.h"

#include <stdlib.h>

#include "base/rng.h"
#include "base/util.h"
#include "collectives/comm.h"
#include "tests/reference.h"

/* Small whole numbers: sums are exact in every type and order. */
static double input(const struct operation *o, int rank, size_t i)
{
    uint64_t which = (uint64_t)(o - g.ops) << 50 ^ (uint64_t)rank << 40 ^ i;

    return (double)(int)(spr_hash_u32(which) % 201) - 100;
}

static bool listed(const struct operation *o, int rank, size_t i)
{
    return (spr_hash_u32((uint64_t)rank << 33 ^ i * 977) & 7) < (unsigned)(o->root + 1) * 2;
}

static double contribution(const struct operation *o, int rank, size_t i)
{
    return o->kind != SPARSE || listed(o, rank, i) ? input(o, rank, i) : 0;
}

static void define(struct operation *o, struct fuzz_in *in)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 100, 500, 501, 1000, 2100, 3000, 40, 9, 64, 200};
    static const spr_dtype dtypes[] = {SPR_FP32, SPR_FP64, SPR_INT32, SPR_INT64};
    static const char *const reductions[] = {NULL,      "direct",   "ring", "flat",
                                             "halving", "doubling", "tree", "flat"};
    static const char *const broadcasts[] = {NULL, "direct", "flat", "tree"};
    static const char *const gathers[] = {NULL, "bruck"};
    static const char *const sparse[] = {NULL,    "allgather", "doubling", "ring",
                                         "union", "server",    "blocks",   "relay"};
    uint8_t a = fuzz_u8(in), b = fuzz_u8(in), c = fuzz_u8(in);
    size_t size = (size_t)g.ranks;

    memset(o, 0, sizeof *o);
    o->kind = (enum kind)(a % KINDS);
    o->in_place = a / KINDS & 1;
    o->dtype = dtypes[b & 3];
    o->op = (spr_op)(b >> 2 & 3);
    o->root = (b >> 4) % g.ranks;
    /* The large one, two chunks of fp64, may only be the first: it takes as long as a hundred. */
    o->count = c == 255 && o == g.ops ? 33000 : counts[(c & 15) % SPR_ARRAY_LEN(counts)];
    if (o->kind == ALLREDUCE)
        o->algorithm = reductions[c >> 4 & 7];
    if (o->kind == BROADCAST)
        o->algorithm = broadcasts[c >> 4 & 3];
    if (o->kind == ALLGATHER)
        o->algorithm = gathers[c >> 4 & 1];
    if (o->kind == SPARSE)
        o->algorithm = sparse[c >> 4 & 7];
    if (o->algorithm && !strcmp(o->algorithm, "flat") && o->count > 1000)
        o->count = 1000;
    if (o->kind == SPARSE || o->kind == COMPRESSED) {
        o->dtype = SPR_FP32;
        o->op = SPR_SUM;
        o->count++;
    }
    o->in_count = o->kind == REDUCE_SCATTER ? o->count * size : o->count;
    o->out_count = o->kind == ALLGATHER ? o->count * size : o->count;
    /* Of nothing at all, nobody says anything. */
    o->odd = a >= 238 && o->kind < BARRIER && o->count > 1;
}

static void *memory(size_t bytes)
{
    char *p = malloc(bytes ? bytes : 1);

    FUZZ_CHECK(p);
    return p;
}

/* Of the caller, where peers may write. */
static void *bucket(int rank, size_t bytes)
{
    void *p = memory(bytes);

    if (bytes)
        FUZZ_CHECK(spr_mem_register(g.comms[rank], p, bytes) == SPR_OK);
    return p;
}

static void free_bucket(int rank, void *p, size_t bytes)
{
    if (p && bytes)
        spr_mem_deregister(g.comms[rank], p);
    free(p);
}

static void fill(struct operation *o, int rank)
{
    size_t element = spr_dtype_size(o->dtype);
    spr_sparse *list = &o->list[rank];

    o->in[rank] = bucket(rank, o->in_count * element);
    o->out[rank] = bucket(rank, o->out_count * element);
    memset(o->out[rank], 0xee, o->out_count * element);
    for (size_t i = 0; i < o->in_count; i++)
        reference_store(o->dtype, o->in[rank], i, input(o, rank, i));
    if (o->kind == COMPRESSED) {
        spr_layout layout = {1, "w", 0, o->count, 1};
        FUZZ_CHECK(spr_codec_create(o->in_place ? "topk:ratio=10%" : "none", &layout, 1,
                                    &o->codec[rank]) == SPR_OK);
    }
    if (o->kind != SPARSE)
        return;
    list->index = memory(o->count * 4);
    list->value = memory(o->count * 4);
    for (size_t i = 0; i < o->count; i++)
        if (listed(o, rank, i)) {
            list->index[list->count] = (uint32_t)i;
            list->value[list->count++] = (float)input(o, rank, i);
        }
}

static void free_buffers(struct operation *o, int rank)
{
    size_t element = spr_dtype_size(o->dtype);

    free_bucket(rank, o->in[rank], o->in_count * element);
    free_bucket(rank, o->out[rank], o->out_count * element);
    free(o->list[rank].index);
    free(o->list[rank].value);
    spr_codec_destroy(o->codec[rank]);
    o->in[rank] = o->out[rank] = NULL;
    o->list[rank] = (spr_sparse){0};
    o->codec[rank] = NULL;
}

static spr_status call(struct operation *o, int r)
{
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_comm *c = g.comms[r];
    spr_request **rq = &o->request[r];
    bool odd = o->odd && r == g.ranks - 1;
    size_t n = o->count - odd;

    options.algorithm = o->algorithm;
    switch (o->kind) {
    case ALLREDUCE:
        return spr_iallreduce(c, o->in[r], o->in_place ? o->in[r] : o->out[r], n, o->dtype, o->op,
                              &options, rq);
    case REDUCE_SCATTER:
        return spr_ireduce_scatter(c, o->in[r], o->out[r], n, o->dtype, o->op, &options, rq);
    case ALLGATHER:
        return spr_iallgather(c, o->in[r], o->out[r], n, o->dtype, &options, rq);
    case BROADCAST:
        return spr_ibroadcast(c, o->in[r], n, o->dtype, o->root, &options, rq);
    case SENDRECV:
        return spr_isendrecv(c, o->in[r], o->out[r], n, o->dtype, o->root - 1, &options, rq);
    case BARRIER:
        return spr_ibarrier(c, &options, rq);
    case SPARSE:
        return spr_isparse_allreduce(c, &o->list[r], o->count, (float *)(void *)o->out[r], NULL,
                                     o->op, &options, rq);
    default:
        return spr_icompressed_allreduce(c, o->codec[r], (float *)(void *)o->in[r], o->op, &options,
                                         rq);
    }
}

void comm_post(int rank, struct fuzz_in *in)
{
    struct operation *o = &g.ops[g.next[rank]];
    spr_status status;

    if (g.gone[rank] || g.next[rank] == MOST_OPERATIONS)
        return;
    if (g.next[rank] == g.count)
        define(&g.ops[g.count++], in);
    g.next[rank]++;
    fill(o, rank);
    status = call(o, rank);
    if (status != SPR_OK) {
        FUZZ_CHECK(status < 0 && (g.comms[rank]->error.status || o->algorithm));
        free_buffers(o, rank);
        g.gone[rank] = true; /* the numbers of the operations differ from now on */
        g.fault = true;
    }
}

/* ---- Results ---- */

static double expected(const struct operation *o, int rank, size_t i, double *bound)
{
    double x[WIRE_RANKS];
    size_t at = o->kind == REDUCE_SCATTER ? (size_t)rank * o->count + i : i;

    *bound = 0;
    if (o->kind == BROADCAST)
        return input(o, o->root, i);
    if (o->kind == ALLGATHER)
        return input(o, (int)(i / o->count), i % o->count);
    if (o->kind == SENDRECV)
        return input(o, (rank - (o->root - 1) + g.ranks) % g.ranks, i);
    for (int r = 0; r < g.ranks; r++)
        x[r] = contribution(o, r, at);
    return reference_reduce(x, g.ranks, o->dtype, o->op, bound);
}

/* Can this rank be done before it hears of the odd one? In a broadcast all others; and who neither
 * gets from the odd one nor is it. */
static bool may_not_know(const struct operation *o, int rank)
{
    int source = (rank - (o->root - 1) + g.ranks) % g.ranks, odd = g.ranks - 1;

    if (o->kind == SENDRECV)
        return source == rank || (source != odd && rank != odd);
    return o->kind == BROADCAST && rank != odd && rank != o->root;
}

static void check_result(const struct operation *o, int rank)
{
    bool in_place = (o->kind == ALLREDUCE && o->in_place) || o->kind == BROADCAST;
    const char *result = in_place ? o->in[rank] : o->out[rank];
    double bound;

    FUZZ_CHECK(!o->odd || may_not_know(o, rank));
    if (o->kind == BARRIER || o->kind == COMPRESSED || o->odd)
        return;
    for (size_t i = 0; i < o->out_count; i++) {
        double want = expected(o, rank, i, &bound);
        double got = reference_load(o->dtype, result, i);
        FUZZ_CHECK(got - want <= bound && want - got <= bound);
    }
    for (size_t i = 0; i < o->in_count && !in_place; i++)
        FUZZ_CHECK(reference_load(o->dtype, o->in[rank], i) == input(o, rank, i));
}

static void check_failure(const struct operation *o, int rank, spr_status status)
{
    FUZZ_CHECK(status < 0 && *spr_last_error(g.comms[rank]));
    FUZZ_CHECK(status == SPR_ERR_MISMATCH ? o->odd || g.fault || g.lied
                                          : g.comms[rank]->error.status);
    if (o->kind != COMPRESSED || !o->in_place)
        return;
    for (size_t i = 0; i < o->count; i++)
        FUZZ_CHECK((double)spr_codec_residual(o->codec[rank])[i] == input(o, rank, i));
}

int comm_collect(void)
{
    int running = 0;

    for (int i = 0; i < g.count; i++)
        for (int r = 0; r < g.ranks; r++) {
            struct operation *o = &g.ops[i];
            spr_status status;

            if (!o->request[r])
                continue;
            status = spr_test(&o->request[r]);
            if (status == SPR_IN_PROGRESS) {
                running++;
                continue;
            }
            if (status != SPR_OK)
                check_failure(o, r, status);
            else if (!g.lied)
                check_result(o, r);
            FUZZ_CHECK(status == SPR_OK || o->odd || g.fault || g.lied);
            free_buffers(o, r);
        }
    return running;
}
