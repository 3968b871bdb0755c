/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse allreduce: what ranks of one host have is summed there before it goes to other hosts. As
 * many ranks of each host as the smallest host has are leaders, each for one share of the vector,
 * so that all of them, and all their links, work; a share has a part for each host, whose owner is
 * the leader there. Halves leave their rank as such; a host's sums are fp32 on the way to their
 * owner. Not canonical: a host's ranks are added first, then the hosts, each in order; same bits on
 * all ranks and in every run of the same world on the same hosts.
 *
 * A coded vector is fp32 inside its host, and the host's sum is coded, once for all of its ranks:
 * what that loses stays with the leader who coded it (spr_codec_sums_first()). A host sends what
 * one rank would, and N of them lose something, not P ranks. The host of a part's owner loses
 * nothing.
 *
 * With union=hosts a host sends the largest of its sums alone, as many of a window as its ranks
 * have on average, as all sums are sent on or as values are coded; the leader's residual keeps the
 * rest. What is left out of the sums for this host's own part is added where other hosts have sent
 * something: it costs nothing. Coded values, too, are floats inside the host then.
 *
 * Cost, k entries per rank, U(G) in the union of a host's G ranks, U in that of all, N hosts, b
 * bytes per entry as encoded: 4 steps; sent per host to others (N-1)/N (U(G) + U) b, where the
 * direct algorithm sends G (N-1)/N (k + U) b; per rank inside its host (G-1)/G (k + U) b; k +
 * U(G)/G additions and U scattered writes per rank. With union=hosts a host sends k, not U(G), and
 * U is the union of N such lists. A vector of n values of b bytes: per host to others 2 (N-1)/N n
 * b, per rank inside its host (G-1)/G n (4 + b), (1 + 1/G) n additions.
 *
 * Data movement, 4 ranks, 2 hosts; block i of the vector belongs to part i mod 4, which is owned by
 * rank i mod 4 and collected by ranks 0 and 2 (even parts), 1 and 3 (odd ones); A(..) the sum over
 * host A, S(..) over all:
 *
 *            rank 0 (A)      rank 1 (A)      rank 2 (B)      rank 3 (B)
 *   collect  x0(1,3) to 1    x1(0,2) to 0    x2(1,3) to 3    x3(0,2) to 2    in chunks
 *   sum      A(0,2)          A(1,3)          B(0,2)          B(1,3)          in rank order
 *   between  A(2) to 2       A(3) to 3       B(0) to 0       B(1) to 1       in chunks
 *   merge    S(0)            S(1)            S(2)            S(3)            in the order of hosts
 *   tell     S(0) to 1,2     S(1) to 0,3     S(2) to 0,3     S(3) to 1,2
 *   pass on  S(2) to 1       S(3) to 0       S(0) to 3       S(1) to 2       the same bytes
 *
 * The owners' part of this, merge and what follows, is that of the other sparse allreduces, among
 * the leaders of a share: an owner's own contribution is the sum of its host. All steps work at the
 * same time: a window is summed as soon as all ranks of the host have sent it, merged as soon as
 * all hosts have, and told at once. Streams of different parts do not wait for each other.
 */
#include "collectives/sparse.h"

#include "collectives/sparse_left.h"
#include "compress/codec.h"
#include "compress/kernels/kernels.h"

/* A part of this rank's share: the sum of the host, on its way to the owner. */
struct part {
    uint32_t windows, summed;
    struct spr_stream *lists; /* [local.size] of the ranks of this host */
    /* But for the own part, which stays here: */
    struct spr_chunk_writer writer;
    char *buffer; /* chunk_bytes */
    struct spr_wire wire;
    struct spr_out out;
    uint32_t sent; /* chunks */
};

struct hosts {
    struct spr_sparse_state s; /* blocks of as many owners as there are parts */
    struct spr_group local;    /* the ranks of this host */
    int hosts, shares;
    bool leads;          /* this rank does: the share of its number on its host */
    struct part *parts;  /* [hosts] of that share */
    bool vector;         /* coded, not a list */
    enum spr_vtype type; /* of a host's sums on their way to an owner */
    /* Of a host's sum; that of `s` has what is merged so far. */
    float *accumulator; /* span */
    uint64_t *touched;  /* span bits */
    struct spr_left left;
};

/* Host `i` has which owner, of this rank's share? */
static int owner_at(const struct hosts *h, int i) { return i * h->shares + h->local.rank; }

/* Sums of this host -----------------------------------------------------------------------------
 */

/* Its window has been added: close the chunk behind the last one. */
static void close_behind(struct spr_stream *stream, uint32_t window)
{
    if (window + 1 < stream->chunk.first_window + stream->chunk.windows)
        return;
    spr_stream_close(stream);
    (void)spr_stream_withdraw(stream); /* behind the last chunk; the communicator tells if not */
}

/* Is the next window there, of all ranks? Not after a failure. */
static bool is_covered(spr_request *rq, struct part *part, int owner)
{
    const struct hosts *h = rq->state;

    for (int i = 0; i < h->local.size; i++)
        if (i != h->local.rank &&
            !spr_stream_covers(rq, &part->lists[i], spr_group_rank(&h->local, i), (uint32_t)owner,
                               part->summed))
            return false;
    return !rq->comm->error.status;
}

/* Sum the next window of a vector, which is there. Returns its length. */
static size_t sum_vector(spr_request *rq, struct part *part, int owner, float *out)
{
    const struct hosts *h = rq->state;
    const struct spr_sparse_state *s = &h->s;
    uint32_t w = part->summed++;
    size_t n = 0;

    for (int i = 0; i < h->local.size; i++) {
        struct spr_stream *theirs = &part->lists[i];
        float *val = i == 0 ? out : s->writer.val;
        if (i != h->local.rank) {
            (void)spr_chunk_values(&theirs->chunk, i == 0 ? SPR_DECODE_SET : SPR_DECODE_ADD, out);
            close_behind(theirs, w);
            continue;
        }
        n = spr_blocks_gather(&s->blocks, NULL, NULL, rq->plan.value, (uint32_t)owner, w, NULL,
                              val);
        if (i > 0)
            spr_kernels()->sum(out, out, val, n);
    }
    return n;
}

/* Sum the next window, which is there. Returns how many entries were added, of all ranks. */
static size_t sum(spr_request *rq, struct part *part, int owner)
{
    const struct hosts *h = rq->state;
    uint32_t w = part->summed++;
    size_t n = 0;

    for (int i = 0; i < h->local.size; i++) {
        struct spr_stream *list = &part->lists[i];
        if (i == h->local.rank) {
            n += spr_sparse_add_list(rq, (uint32_t)owner, w, h->s.writer.pos, h->s.writer.val,
                                     h->accumulator, h->touched);
            continue;
        }
        n += spr_chunk_add(&list->chunk, h->accumulator, h->touched);
        close_behind(list, w);
    }
    return n;
}

/* Move the sum of so many entries into these arrays, but for what is left out, which goes to
 * `left`. Returns its entries. */
static size_t harvest(const struct hosts *h, const struct part *part, int owner, size_t entries,
                      uint16_t *pos, float *val, struct spr_topk_entries *left)
{
    uint32_t len = spr_blocks_window_len(&h->s.blocks, (uint32_t)owner, part->summed - 1);
    size_t n = spr_window_harvest(h->accumulator, h->touched, len, pos, val);

    return spr_left_take(&h->left, pos, val, n, entries, h->local.size, left);
}

/* What this rank, as an owner, adds for its host: of a vector as it is. */
static bool add_own(spr_request *rq)
{
    struct hosts *h = rq->state;
    struct spr_sparse_state *s = &h->s;
    struct part *part = &h->parts[s->sources.rank];
    size_t n;

    if (!is_covered(rq, part, s->own))
        return false;
    if (h->vector) {
        float *sums = s->union_writer.val + s->union_writer.count;
        float *own = s->next_rank == 0 ? sums : h->accumulator;

        n = sum_vector(rq, part, s->own, own);
        if (own != sums)
            spr_kernels()->sum(sums, sums, own, n);
        return true;
    }
    n = sum(rq, part, s->own);
    n = harvest(h, part, s->own, n, s->writer.pos, s->writer.val, &h->left.own);
    spr_kernels()->add_at(s->accumulator, s->touched, s->writer.pos, s->writer.val, n);
    s->contributed += n;
    return true;
}

/* The chunk in the writer, which ends before window `end`. */
static void send_sum(spr_request *rq, struct part *part, int owner, uint32_t end)
{
    const struct hosts *h = rq->state;
    const struct spr_sparse_state *s = &h->s;
    struct spr_chunk_writer *w = &part->writer;
    unsigned flags = end == part->windows ? SPR_CHUNK_LAST : 0;
    size_t bytes = spr_chunk_writer_finish(w, h->type, -1, flags, part->buffer, s->chunk_bytes);

    if (h->type != SPR_V_FP32)
        spr_union_keep_rest(rq, w, h->type == SPR_V_CODED ? &s->coding : NULL, part->buffer, bytes,
                            1);
    spr_wire_begin(&part->wire);
    spr_wire_send(rq, &part->wire, &part->out, spr_sparse_owner(s, owner), part->sent++,
                  part->buffer, bytes);
    spr_chunk_writer_begin(w, end);
}

static bool is_full(const struct spr_sparse_state *s, const struct part *part)
{
    const struct spr_chunk_writer *w = &part->writer;

    return w->windows && (part->summed == part->windows || spr_sparse_is_long(w->count) ||
                          !spr_chunk_writer_room(w, s->span));
}

/* As many windows of a part as are there, to its owner. */
static void sum_for(spr_request *rq, struct part *part, int owner)
{
    struct hosts *h = rq->state;
    struct spr_chunk_writer *w = &part->writer;
    size_t n;

    while (!part->out.busy) {
        if (is_full(&h->s, part)) {
            send_sum(rq, part, owner, part->summed);
            continue;
        }
        if (part->summed == part->windows || !is_covered(rq, part, owner))
            break;
        if (h->vector) {
            spr_chunk_writer_window(w, sum_vector(rq, part, owner, w->val + w->count));
            continue;
        }
        n = sum(rq, part, owner);
        if (!spr_sparse_fits(w, h->touched, h->s.span, n))
            send_sum(rq, part, owner, part->summed - 1);
        n = harvest(h, part, owner, n, w->pos + w->count, w->val + w->count, &h->left.other);
        spr_left_keep(rq, (uint32_t)owner, part->summed - 1, &h->left.other);
        spr_chunk_writer_window(w, n);
    }
}

/* True: all that other hosts are to get of this one is on its way. */
static bool sum_for_others(spr_request *rq)
{
    struct hosts *h = rq->state;
    uint64_t begin = spr_now_ns(rq->comm->clock);
    bool all = true;

    for (int i = 1; i < h->hosts; i++) {
        int host = (h->s.sources.rank + i) % h->hosts;
        sum_for(rq, &h->parts[host], owner_at(h, host));
        all &= h->parts[host].summed == h->parts[host].windows && !h->parts[host].writer.windows;
    }
    rq->comm->counters.merge_ns += spr_now_ns(rq->comm->clock) - begin;
    return all;
}

static void ask(spr_request *rq, int host)
{
    struct hosts *h = rq->state;
    struct part *part = &h->parts[host];
    uint32_t step = spr_sparse_step(&h->s, owner_at(h, host));

    for (int i = 1; i < h->local.size && part->windows; i++) {
        int from = (h->local.rank + i) % h->local.size;
        spr_stream_ask(rq, &part->lists[from], spr_group_rank(&h->local, from), step);
    }
}

static bool advance(spr_request *rq)
{
    struct hosts *h = rq->state;
    bool given = spr_sparse_contribute(rq);
    bool over;

    if (h->leads)
        given &= sum_for_others(rq);
    if (rq->comm->error.status)
        return false;
    over = spr_sparse_go_on(rq, given);
    for (int i = 0; i < h->hosts && h->leads && !over && !rq->comm->error.status; i++)
        ask(rq, (h->s.sources.rank + i + 1) % h->hosts);
    return over;
}

/* Begin and end ---------------------------------------------------------------------------------
 */

/* Who owns what, who collects it, and who leads. False: no memory. */
static bool find_roles(spr_request *rq)
{
    struct hosts *h = rq->state;
    const struct spr_topology *t = &rq->comm->topology;
    int host = t->host[rq->comm->rank], share = t->local[rq->comm->rank];
    size_t parts = h->s.blocks.ranks;
    int *owners = spr_arena_alloc(&rq->arena, parts * sizeof *owners);
    int *collectors = spr_arena_alloc(&rq->arena, parts * sizeof *collectors);
    int *leaders = spr_arena_alloc(&rq->arena, (size_t)t->hosts * sizeof *leaders);

    if (!owners || !collectors || !leaders)
        return false;
    h->hosts = t->hosts;
    h->shares = (int)parts / t->hosts;
    h->local = spr_topology_neighbours(t, rq->comm->rank);
    h->leads = share < h->shares;
    for (int o = 0; o < (int)parts; o++) {
        owners[o] = t->ranks[t->first[o / h->shares] + o % h->shares];
        collectors[o] = t->ranks[t->first[host] + o % h->shares];
    }
    h->s.owners = owners;
    h->s.collectors = collectors;
    h->s.route = SPR_ROUTE_HOSTS;
    h->s.own = -1;
    if (!h->leads)
        return true;
    for (int i = 0; i < t->hosts; i++)
        leaders[i] = owners[owner_at(h, i)];
    h->s.own = owner_at(h, host);
    h->s.sources = (struct spr_group){leaders, t->hosts, host};
    h->s.add_own = add_own;
    return true;
}

static bool open_part(spr_request *rq, int host)
{
    struct hosts *h = rq->state;
    const struct spr_sparse_state *s = &h->s;
    struct part *part = &h->parts[host];
    uint32_t owner = (uint32_t)owner_at(h, host);
    void *scratch;

    part->windows = spr_blocks_windows(&s->blocks, owner);
    if (!spr_sparse_make_streams(rq, &part->lists, h->local.size, h->local.rank, (int)owner,
                                 SPR_SPARSE_AHEAD, NULL))
        return false;
    if (host == s->sources.rank)
        return true;
    scratch = spr_arena_buffer(&rq->arena, s->writer_bytes);
    part->buffer = spr_sparse_buffer_get(rq);
    if (!scratch || !part->buffer || !spr_wire_open(rq, &part->wire))
        return false;
    spr_sparse_writer_init(s, &part->writer, owner, scratch);
    spr_chunk_writer_begin(&part->writer, 0);
    return true;
}

static void add_left(spr_request *rq)
{
    struct hosts *h = rq->state;

    spr_left_add_own(rq, &h->left);
}

enum spr_vtype spr_hosts_sum_vtype(const struct spr_plan *plan)
{
    if (plan->vtype == SPR_V_CODED)
        return SPR_V_CODED;
    return plan->bound_hosts && plan->sum_vtype != SPR_V_CODED ? plan->sum_vtype : SPR_V_FP32;
}

static bool make(spr_request *rq)
{
    struct hosts *h = rq->state;

    h->vector = !h->s.offsets;
    h->type = spr_hosts_sum_vtype(&rq->plan);
    if (h->type == SPR_V_CODED)
        h->s.vtype = SPR_V_FP32;
    if (h->vector)
        spr_codec_sums_first(rq->codec);
    if (!find_roles(rq) || !spr_sparse_make(rq))
        return false;
    for (int i = 0; h->type == SPR_V_CODED && i < h->s.sources.size; i++)
        h->s.contributions[i].coding = &h->s.coding;
    if (!h->leads)
        return true;
    h->accumulator = spr_arena_alloc(&rq->arena, h->s.span * sizeof *h->accumulator);
    h->touched = spr_arena_alloc(&rq->arena, h->s.span / 8);
    h->parts = spr_arena_alloc(&rq->arena, (size_t)h->hosts * sizeof *h->parts);
    if (!h->accumulator || !h->touched || !h->parts)
        return false;
    if (rq->plan.bound_hosts) {
        h->s.add_left = add_left;
        if (!spr_left_make(rq, &h->left, h->s.span))
            return false;
    }
    for (int i = 0; i < h->hosts; i++)
        if (!open_part(rq, i))
            return false;
    return true;
}

static void cleanup(spr_request *rq)
{
    struct hosts *h = rq->state;

    for (int i = 0; h->parts && i < h->hosts; i++) {
        spr_sparse_free_streams(rq, h->parts[i].lists, h->local.size);
        spr_sparse_buffer_put(rq, h->parts[i].buffer);
        spr_wire_free(rq, &h->parts[i].wire);
    }
    spr_sparse_cleanup(rq);
}

static spr_status start(spr_request *rq)
{
    const struct spr_topology *t = &rq->comm->topology;
    spr_status status =
        spr_sparse_prepare(rq, sizeof(struct hosts), t->hosts * spr_topology_fewest(t));

    if (status)
        return status;
    if (!make(rq)) {
        cleanup(rq);
        return SPR_ERR_NOMEM;
    }
    return SPR_OK;
}

/* How the values of each rank's list are coded depends on blocks of as many owners as there are
 * ranks. And a union is bounded by those who own it. */
static bool usable(const struct spr_plan *plan, int size)
{
    (void)size;
    return plan->dtype == SPR_FP32 && !plan->bound_union &&
           (plan->may_sum_first || plan->bound_hosts || plan->vtype != SPR_V_CODED);
}

size_t spr_hosts_share(const spr_comm *comm, const struct spr_plan *plan, size_t count)
{
    const struct spr_topology *t = &comm->topology;
    int host = t->host[comm->rank], share = t->local[comm->rank], shares = spr_topology_fewest(t);
    bool sums = plan->sum_vtype != SPR_V_FP32;
    struct spr_blocks blocks;
    size_t n = 0;

    if (!usable(plan, comm->size) || share >= shares ||
        comm->options.determinism == SPR_DETERMINISM_CANONICAL)
        return 0;
    blocks = spr_blocks_choose(count, (uint32_t)(t->hosts * shares));
    for (int i = 0; i < t->hosts; i++)
        if (plan->bound_hosts || (i == host ? sums : plan->may_sum_first))
            n += (size_t)spr_blocks_local(&blocks, (uint32_t)(i * shares + share));
    return n;
}

const struct spr_algorithm spr_sparse_hosts = {
    .collective = SPR_C_SPARSE_ALLREDUCE,
    .name = "hosts",
    .cost = "4 steps, (N-1)/N (U(G) + U) entries per host of N, U(G) of its ranks, or k",
    .usable = usable,
    .start = start,
    .advance = advance,
    .cleanup = cleanup,
    .reorders = true,
    .predict = spr_cost_sparse_hosts};
