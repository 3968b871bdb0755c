/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Binary tree. allreduce: sums go up to rank 0, the total comes down; chunk by chunk, so that both
 * ways are busy at once. Not canonical: a rank adds its own vector, its first subtree's sum, its
 * second's. broadcast: from any root down; word that a rank and all below it have called goes up,
 * so that a root knows of those who disagree.
 *
 * The tree: rank r's place is (r - root) mod P; place i has places 2i+1 and 2i+2 below it.
 *
 * Cost, n elements of v bytes, P ranks: floor(lg P) steps down (allreduce: as many up, before
 * them), and a chunk more for each chunk; per rank at most 2 n v bytes sent down, n v bytes up, and
 * 2 n additions. Each rank has three peers at most.
 *
 * Data movement, 4 ranks, root 0; x(a,b) is the sum over ranks a and b; a broadcast has the last
 * two steps:
 *
 *            rank 0            rank 1          rank 2          rank 3
 *   step 0                                     x2 to 0         x3 to 1
 *   step 1                     x(1,3) to 0
 *   sum      x0+x(1,3)+x2
 *   step 2   S to 1, S to 2
 *   step 3                     S to 3
 */
#include <string.h>

#include "collectives/collective.h"
#include "collectives/reduce.h"
#include "collectives/words.h"

#define AHEAD 3
/* Chunks: the vector in so many (the pipeline's fill is a chunk per level), within these bytes. */
#define CHUNKS 8
#define MIN_CHUNK_BYTES ((size_t)16 << 10)
#define UP_STEP 0x20000000u   /* a sum; the chunk */
#define WORD_STEP 0x10000000u /* broadcast */

struct child {
    int rank;
    uint32_t asked; /* chunks of its sum */
    uint32_t given; /* chunks of the result */
    struct spr_in up[AHEAD];
    char *staging[AHEAD]; /* where one is received into, or NULL */
    struct spr_out down[AHEAD];
};

struct tree {
    bool reduce, eager;
    int parent;               /* -1: the root */
    int children, next_child; /* whose part of chunk `summed` is added next */
    size_t chunk, element;    /* elements; bytes */
    uint32_t chunks;
    uint32_t summed,
        raised;            /* chunks with the whole subtree in them; ... and posted to the parent */
    uint32_t wanted, have; /* chunks of the result that were asked for; that are there */
    struct child child[2];
    struct spr_out up[AHEAD];
    struct spr_in down[AHEAD];
    struct spr_words words; /* broadcast: all from here on down have called */
    struct spr_word below[2];
};

static size_t length(const spr_request *rq, uint32_t c)
{
    const struct tree *t = rq->state;

    return spr_min_size(t->chunk, rq->plan.count - c * t->chunk);
}

static char *result(const spr_request *rq, uint32_t c)
{
    const struct tree *t = rq->state;

    return (char *)rq->plan.recv + c * t->chunk * t->element;
}

static const char *input(const spr_request *rq, uint32_t c)
{
    const struct tree *t = rq->state;

    return (const char *)rq->plan.send + c * t->chunk * t->element;
}

static bool is_whole(spr_request *rq, const struct spr_in *in, int from, uint32_t c)
{
    const struct tree *t = rq->state;

    if (in->recv.bytes == length(rq, c) * t->element)
        return true;
    spr_comm_fail(rq->comm, SPR_ERR_PROTO, from, -1, "sent a chunk of another size");
    return false;
}

/* Up ------------------------------------------------------------------------------------------- */

/* Ask the children for their sums, as far ahead as the oldest operation, or a later one, may: see
 * direct.h. */
static void ask_children(spr_request *rq)
{
    struct tree *t = rq->state;
    bool oldest = rq->comm->running.next == &rq->node;
    uint32_t end = (uint32_t)spr_min_size(t->chunks, t->summed + (oldest ? AHEAD : 1));

    for (int i = 0; i < t->children; i++) {
        struct child *k = &t->child[i];
        for (; k->asked < end; k->asked++) {
            uint32_t slot = k->asked % AHEAD;
            if (!oldest) {
                k->staging[slot] = spr_comm_buffer_get(rq->comm);
                if (!k->staging[slot])
                    return; /* when it is the oldest it needs none */
            }
            spr_post_receive(rq, &k->up[slot], k->rank, UP_STEP | k->asked, k->staging[slot],
                             length(rq, k->asked) * t->element, t->eager);
        }
    }
}

/* Add the next child's part to chunk `summed`. False: it has not arrived. */
static bool add_next(spr_request *rq)
{
    struct tree *t = rq->state;
    struct child *k = &t->child[t->next_child];
    uint32_t c = t->summed, slot = c % AHEAD;
    const struct spr_reduce_two two = {rq->plan.dtype,
                                       rq->plan.dtype,
                                       rq->plan.op,
                                       true,
                                       t->parent < 0 && t->next_child == t->children - 1,
                                       rq->comm->size};

    if (k->up[slot].state != SPR_IN_ARRIVED || !is_whole(rq, &k->up[slot], k->rank, c))
        return false;
    spr_reduce_two(&two, result(rq, c), t->next_child == 0 ? input(rq, c) : result(rq, c),
                   k->up[slot].recv.data, length(rq, c));
    spr_in_release(&k->up[slot]);
    spr_comm_buffer_put(rq->comm, k->staging[slot]);
    k->staging[slot] = NULL;
    return true;
}

static void sum(spr_request *rq)
{
    struct tree *t = rq->state;
    uint64_t begin = spr_now_ns(rq->comm->clock);

    while (t->summed < t->chunks && add_next(rq))
        if (++t->next_child == t->children) {
            t->next_child = 0;
            t->summed++;
        }
    rq->comm->counters.reduce_ns += spr_now_ns(rq->comm->clock) - begin;
}

static void raise_sums(spr_request *rq)
{
    struct tree *t = rq->state;

    for (; t->raised < t->summed && !t->up[t->raised % AHEAD].busy; t->raised++) {
        uint32_t c = t->raised;
        spr_post_send(rq, &t->up[c % AHEAD], t->parent, UP_STEP | c,
                      t->children ? result(rq, c) : input(rq, c), length(rq, c) * t->element,
                      t->eager);
    }
}

/* Down ----------------------------------------------------------------------------------------- */

/* Into its place: the root has added what was there. */
static void take_result(spr_request *rq)
{
    struct tree *t = rq->state;

    for (; t->have < t->wanted; t->have++) {
        struct spr_in *in = &t->down[t->have % AHEAD];
        if (in->state != SPR_IN_ARRIVED || !is_whole(rq, in, t->parent, t->have))
            break;
        spr_in_release(in);
    }
    for (; t->wanted < t->chunks && t->wanted < t->have + AHEAD; t->wanted++)
        spr_post_receive(rq, &t->down[t->wanted % AHEAD], t->parent, t->wanted,
                         result(rq, t->wanted), length(rq, t->wanted) * t->element, t->eager);
}

static void give_result(spr_request *rq)
{
    struct tree *t = rq->state;

    for (int i = 0; i < t->children; i++) {
        struct child *k = &t->child[i];
        for (; k->given < t->have && !k->down[k->given % AHEAD].busy; k->given++)
            spr_post_send(rq, &k->down[k->given % AHEAD], k->rank, k->given, result(rq, k->given),
                          length(rq, k->given) * t->element, t->eager);
    }
}

static bool advance(spr_request *rq)
{
    struct tree *t = rq->state;
    bool done;

    if (t->reduce && t->children > 0) {
        sum(rq);
        ask_children(rq);
    }
    if (t->reduce && t->parent >= 0)
        raise_sums(rq);
    if (t->parent >= 0)
        take_result(rq);
    else
        t->have = t->summed;
    if (rq->comm->error.status)
        return false;
    give_result(rq);
    done = spr_words_pass(rq, &t->words) && t->have == t->chunks &&
           (!t->reduce || t->parent < 0 || t->raised == t->chunks);
    for (int i = 0; i < t->children; i++)
        done &= t->child[i].given == t->chunks;
    return done;
}

/* Life ----------------------------------------------------------------------------------------- */

static struct tree *make(spr_request *rq, int root)
{
    struct tree *t = spr_arena_alloc(&rq->arena, sizeof *t);
    int size = rq->comm->size, place = (rq->comm->rank + size - root) % size;
    size_t bytes;

    if (!t)
        return NULL;
    rq->state = t;
    t->element = spr_dtype_size(rq->plan.dtype);
    bytes = spr_div_ceil(rq->plan.count * t->element, CHUNKS);
    bytes = spr_min_size(spr_max_size(bytes, MIN_CHUNK_BYTES), SPR_CHUNK_BYTES);
    t->chunk = spr_align_up(bytes, SPR_CACHE_LINE) / t->element;
    t->chunks = (uint32_t)spr_div_ceil(rq->plan.count, t->chunk);
    t->eager = spr_min_size(t->chunk, rq->plan.count) * t->element <= rq->comm->options.eager_bytes;
    t->parent = place == 0 ? -1 : ((place - 1) / 2 + root) % size;
    for (int i = 1; i <= 2 && place < size - i - place; i++)
        t->child[t->children++].rank = (int)(((int64_t)2 * place + i + root) % size);
    return t;
}

static bool no_halves(const struct spr_plan *plan, int size)
{
    (void)size;
    return plan->dtype != SPR_FP16 && plan->dtype != SPR_BF16;
}

static spr_status start_allreduce(spr_request *rq)
{
    struct tree *t = make(rq, 0);

    if (!t)
        return SPR_ERR_NOMEM;
    t->reduce = t->words.told = true;
    if (t->children == 0)
        t->summed = t->chunks;
    if (rq->comm->size == 1 && rq->plan.recv != rq->plan.send)
        memcpy(rq->plan.recv, rq->plan.send, rq->plan.count * t->element);
    return SPR_OK;
}

static spr_status start_broadcast(spr_request *rq)
{
    struct tree *t = make(rq, rq->plan.root);
    const int *ids = rq->comm->ids;

    if (!t)
        return SPR_ERR_NOMEM;
    t->summed = t->chunks; /* the root's vector is the result */
    t->words = (struct spr_words){
        .step = WORD_STEP, .tells = t->parent, .hears = t->children, .heard = t->below};
    /* A rank that waits for its children's word, and for its parent, is heard of at once. */
    if (t->parent >= 0)
        spr_channel_announce(&rq->comm->channel, ids[t->parent], rq->operation, rq->descriptor);
    for (int i = 0; i < t->children; i++) {
        t->below[i].from = t->child[i].rank;
        spr_channel_announce(&rq->comm->channel, ids[t->below[i].from], rq->operation,
                             rq->descriptor);
    }
    spr_words_begin(rq, &t->words);
    return SPR_OK;
}

static void cleanup(spr_request *rq)
{
    struct tree *t = rq->state;

    for (int i = 0; i < t->children; i++) {
        struct child *k = &t->child[i];
        spr_in_release_all(k->up, AHEAD);
        for (int c = 0; c < AHEAD; c++)
            spr_comm_buffer_put(rq->comm, k->staging[c]);
    }
    spr_words_end(&t->words);
    spr_in_release_all(t->down, AHEAD);
}

const struct spr_algorithm spr_allreduce_tree = {.collective = SPR_C_ALLREDUCE,
                                                 .name = "tree",
                                                 .cost = "2 lg P steps, 3 n bytes at most",
                                                 .usable = no_halves,
                                                 .start = start_allreduce,
                                                 .advance = advance,
                                                 .cleanup = cleanup,
                                                 .reorders = true,
                                                 .predict = spr_cost_tree};
const struct spr_algorithm spr_broadcast_tree = {.collective = SPR_C_BROADCAST,
                                                 .name = "tree",
                                                 .cost = "lg P steps, 2 n bytes at most",
                                                 .start = start_broadcast,
                                                 .advance = advance,
                                                 .cleanup = cleanup};
