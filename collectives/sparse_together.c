/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Windows of a sparse allreduce that are summed by several threads. When several windows of this
 * owner have come from all sources, they are dealt out: a part is a run of windows, summed in an
 * accumulator of its own and encoded as one chunk of the union. Each window is summed as by one
 * thread (sparse.c), in the order of ranks, so its bits are the same; only where chunks end may
 * differ. What a peer sent is opened, and so checked, by the thread that drives the request.
 *
 *   sources' chunks that are here   |--0--|--1--|    |----0----|    ...  checked, in order
 *   windows                         0  1  2  3  4  5                     as far as all cover
 *   parts                           |-A-||-B-||-C-|                      at most `most` of them
 *   chunks of the union             A, B, C                              sent in order
 *
 * Where a window can be added when it has come, but more are on their way, it waits for them: two
 * threads need two windows.
 *
 * Cost: a pass over the positions of chunks to know how many entries a window has (none for U16, of
 * bits for BITMAP), and a copy of the cursors per window. Memory: 1.1 MiB per part, AHEAD_BYTES for
 * messages, and per source some 1.3 KiB for each part and each message.
 */
#include <string.h>

#include "collectives/sparse.h"

/* Entries of all sources in a window, on average, from which on two windows are worth a thread's
 * time to wake up; and of those that are summed together. An entry takes 1 to 3 ns. */
#define WORTH_A_PART 4096
#define WORTH_HELP ((size_t)32 << 10)
/* Of buffers for messages that come, of all sources. */
#define AHEAD_BYTES ((size_t)16 << 20)

/* Where a window begins in what a source has sent. */
struct cursor {
    struct spr_chunk chunk; /* its next window is that one, if `open` */
    uint32_t message;       /* ... the chunk of this message; if not, it begins with the window */
    bool open;
};

struct part {
    uint32_t first, windows;
    size_t entries;    /* of all sources */
    size_t most;       /* ... of their union, at most */
    struct cursor *at; /* [sources], of the first window */
    struct spr_chunk_writer writer;
    void *scratch;      /* the writer's */
    float *accumulator; /* span; zeros between windows, once they are cleared */
    uint64_t *touched;
    bool cleared;
    char *out;    /* the encoded chunk */
    size_t bytes; /* of it */
};

struct spr_together {
    unsigned most;           /* parts */
    uint32_t ahead;          /* messages that are awaited of each source */
    struct cursor *next;     /* [sources], behind the windows that were looked at */
    struct spr_chunk *known; /* [sources][ahead]: chunks that were opened, see known_chunk() */
    uint32_t *opened;        /* [sources]: messages of which that is so */
    size_t entries;          /* of the parts, of all sources */
    int lacking;             /* whose message ended the parts, as it is not here; -1: none's did */
    uint32_t message;        /* ... that one */
    struct part part[SPR_SPARSE_MOST_UNIONS + 1]; /* [most]; and where a further one would begin */
};

/* Memory ----------------------------------------------------------------------------------------
 */

/* Coded values go through common scratch, as does the choice of a bounded union. */
static bool is_worth_it(const spr_request *rq)
{
    const struct spr_sparse_state *s = rq->state;
    uint64_t windows = spr_div_ceil(rq->plan.count, SPR_WINDOW);

    return s->workers && s->offsets && s->way == &spr_sparse_chunks &&
           s->add_own == spr_sparse_add_own && !s->packs && !rq->plan.bound_union &&
           rq->plan.vtype != SPR_V_CODED && rq->plan.sum_vtype != SPR_V_CODED &&
           spr_blocks_windows(&s->blocks, (uint32_t)s->own) >= 4 &&
           rq->plan.entries / windows * (uint64_t)s->sources.size >= WORTH_A_PART;
}

static bool open_part(spr_request *rq, struct part *p)
{
    const struct spr_sparse_state *s = rq->state;

    p->scratch = spr_arena_buffer(&rq->arena, s->writer_bytes);
    p->accumulator = spr_arena_buffer(&rq->arena, s->span * sizeof *p->accumulator);
    p->touched = spr_arena_buffer(&rq->arena, s->span / 8);
    return p->scratch && p->accumulator && p->touched;
}

static bool open_parts(spr_request *rq, struct spr_together *t)
{
    const struct spr_sparse_state *s = rq->state;
    size_t sources = (size_t)s->sources.size;

    for (unsigned i = 0; i <= t->most; i++) {
        t->part[i].at = spr_arena_buffer(&rq->arena, sources * sizeof *t->part[i].at);
        if (!t->part[i].at || (i < t->most && !open_part(rq, &t->part[i])))
            return false;
    }
    return true;
}

bool spr_sparse_together_open(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    size_t sources = (size_t)s->sources.size;
    struct spr_together *t;

    if (s->own < 0 || !is_worth_it(rq))
        return true;
    t = spr_arena_alloc(&rq->arena, sizeof *t);
    if (!t)
        return false;
    t->most = (unsigned)spr_min_size(2 * spr_workers_width(s->workers), SPR_SPARSE_MOST_UNIONS);
    t->ahead = (uint32_t)spr_min_size(
        spr_max_size(AHEAD_BYTES / (sources * s->chunk_bytes), SPR_SPARSE_AHEAD), t->most);
    t->next = spr_arena_buffer(&rq->arena, sources * sizeof *t->next);
    t->known = spr_arena_buffer(&rq->arena, sources * t->ahead * sizeof *t->known);
    t->opened = spr_arena_alloc(&rq->arena, sources * sizeof *t->opened);
    if (!t->next || !t->known || !t->opened || !open_parts(rq, t))
        return false;
    t->lacking = -1;
    s->slot_count = (uint32_t)spr_max_size(t->most, SPR_SPARSE_UNIONS);
    s->together = t;
    return true;
}

uint32_t spr_sparse_together_ahead(const struct spr_sparse_state *s)
{
    return s->together ? s->together->ahead : SPR_SPARSE_AHEAD;
}

/* What is here ----------------------------------------------------------------------------------
 */

/* Where the chunk of a source's message is kept, once it is opened. */
static struct spr_chunk *known_chunk(const struct spr_sparse_state *s, int source, uint32_t message)
{
    const struct spr_together *t = s->together;

    return &t->known[(uint32_t)source * t->ahead + message % s->contributions[source].ahead];
}

/* Is a window of a source here? Then its cursor is there. Not after a failure. */
static bool covers(spr_request *rq, int source, uint32_t window)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_together *t = s->together;
    struct spr_stream *stream = &s->contributions[source];
    struct cursor *c = &t->next[source];
    struct spr_chunk *known;
    const struct spr_in *in;

    if (source == s->sources.rank || c->open)
        return true;
    if (c->message == stream->asked)
        return false;
    in = &stream->in[c->message % stream->ahead];
    known = known_chunk(s, source, c->message);
    if (c->message == t->opened[source]) {
        if (in->state != SPR_IN_ARRIVED ||
            spr_sparse_check(rq, known, in->recv.data, in->recv.bytes,
                             spr_group_rank(&s->sources, source), (uint32_t)s->own, window,
                             NULL) != SPR_OK)
            return false;
        stream->last |= known->flags & SPR_CHUNK_LAST;
        t->opened[source]++;
    }
    c->chunk = *known;
    c->open = true;
    return true;
}

static bool all_cover(spr_request *rq, uint32_t window)
{
    const struct spr_sparse_state *s = rq->state;

    s->together->lacking = -1;
    for (int i = 0; i < s->sources.size; i++)
        if (!covers(rq, i, window)) {
            s->together->lacking = i;
            s->together->message = s->together->next[i].message;
            return false;
        }
    return true;
}

/* Will what is lacking come before anything is added? All that has come of that source is opened,
 * and the last message was not among it: a place for a message that is empty will be filled. */
static bool is_coming(const struct spr_sparse_state *s)
{
    const struct spr_stream *stream = &s->contributions[s->together->lacking];

    for (uint32_t i = 0; i < stream->ahead; i++)
        if (stream->in[i].state != SPR_IN_ARRIVED)
            return true;
    return false;
}

static bool has_come(const struct spr_sparse_state *s)
{
    const struct spr_stream *stream = &s->contributions[s->together->lacking];

    return stream->in[s->together->message % stream->ahead].state == SPR_IN_ARRIVED;
}

/* The cursor's next window is the next one. */
static void step(struct cursor *c)
{
    if (c->chunk.next_window < c->chunk.first_window + c->chunk.windows)
        return;
    c->open = false;
    c->message++;
}

/* Pass over a window of all sources. Returns its entries. */
static size_t pass_over(const spr_request *rq, uint32_t window)
{
    const struct spr_sparse_state *s = rq->state;
    size_t n = 0;

    for (int i = 0; i < s->sources.size; i++) {
        struct cursor *c = &s->together->next[i];
        if (i == s->sources.rank) {
            n += spr_blocks_gather_count(&s->blocks, s->offsets, (uint32_t)s->own, window);
            continue;
        }
        n += spr_chunk_skip(&c->chunk);
        step(c);
    }
    return n;
}

/* May a window of so many entries join a part? As where spr_union_window() closes chunks. */
static bool joins(const struct spr_sparse_state *s, const struct part *p, size_t n)
{
    return !spr_sparse_is_long(p->most) && p->windows < s->most_windows &&
           p->most + n <= SPR_SPARSE_MOST_JOINED;
}

static bool is_full(const struct spr_sparse_state *s, const struct part *p)
{
    return p->first + p->windows == s->windows || !joins(s, p, 0);
}

static void look_from(const spr_request *rq, const struct cursor *at)
{
    const struct spr_sparse_state *s = rq->state;

    memcpy(s->together->next, at, (size_t)s->sources.size * sizeof *at);
}

/* Deal out windows that are here, from `merged` on; the first part's chunk is the first-th from
 * now on. Returns the parts: the last one only if no other window will join it. */
static unsigned deal_out(spr_request *rq, uint32_t first)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_together *t = s->together;
    unsigned parts = 0;

    for (uint32_t w = s->merged; w < s->windows && all_cover(rq, w); w++) {
        struct part *p = &t->part[parts];
        size_t n;
        memcpy(p->at, t->next, (size_t)s->sources.size * sizeof *p->at);
        n = pass_over(rq, w);
        if (parts == 0 || !joins(s, &t->part[parts - 1], n)) {
            p->out = parts < t->most ? spr_union_buffer(rq, first + parts) : NULL;
            if (!p->out) {
                look_from(rq, p->at);
                break;
            }
            p->first = w;
            p->windows = 0;
            p->most = p->entries = 0;
            parts++;
        }
        p = &t->part[parts - 1];
        p->windows++;
        p->most += n < s->span ? n : s->span;
        p->entries += n;
        t->entries += n;
    }
    if (parts > 0 && t->lacking >= 0 && is_coming(s) && !is_full(s, &t->part[parts - 1])) {
        look_from(rq, t->part[--parts].at);
        t->entries -= t->part[parts].entries;
    }
    return parts;
}

/* Sums ------------------------------------------------------------------------------------------
 */

/* Add a window of all sources. */
static void add_all(const spr_request *rq, struct part *p, uint32_t window)
{
    const struct spr_sparse_state *s = rq->state;
    const struct spr_chunk_writer *w = &p->writer;

    for (int i = 0; i < s->sources.size; i++) {
        struct cursor *c = &p->at[i];
        if (i == s->sources.rank) {
            spr_sparse_add_list(rq, (uint32_t)s->own, window, w->pos + w->count, w->val + w->count,
                                p->accumulator, p->touched);
            continue;
        }
        if (!c->open) {
            c->chunk = *known_chunk(s, i, c->message);
            c->open = true;
        }
        spr_chunk_add(&c->chunk, p->accumulator, p->touched);
        step(c);
    }
}

static void sum_part(void *ctx, unsigned i)
{
    const spr_request *rq = ctx;
    const struct spr_sparse_state *s = rq->state;
    struct part *p = &s->together->part[i];
    struct spr_chunk_writer *w = &p->writer;

    if (!p->cleared) {
        memset(p->accumulator, 0, s->span * sizeof *p->accumulator);
        memset(p->touched, 0, s->span / 8);
        p->cleared = true;
    }
    spr_sparse_writer_init(s, w, (uint32_t)s->own, p->scratch);
    spr_chunk_writer_begin(w, p->first);
    for (uint32_t k = 0; k < p->windows; k++) {
        uint32_t len = spr_blocks_window_len(&s->blocks, (uint32_t)s->own, p->first + k);
        size_t n;
        add_all(rq, p, p->first + k);
        n = spr_window_harvest(p->accumulator, p->touched, len, w->pos + w->count,
                               w->val + w->count);
        spr_sparse_average(rq, w->val + w->count, n);
        spr_chunk_writer_window(w, n);
    }
    p->bytes = spr_union_encode(rq, w, p->out);
}

/* The chunks of sources that are added are closed; the others go on where the next window is. */
static void move_on(spr_request *rq)
{
    const struct spr_sparse_state *s = rq->state;

    for (int i = 0; i < s->sources.size; i++) {
        struct spr_stream *stream = &s->contributions[i];
        const struct cursor *c = &s->together->next[i];
        if (i == s->sources.rank)
            continue;
        while (stream->taken < c->message)
            spr_stream_close(stream);
        stream->open = c->open;
        if (c->open)
            stream->chunk = c->chunk;
    }
}

/* The first message of a source that is not added, opened or not. */
static void begin(spr_request *rq)
{
    const struct spr_sparse_state *s = rq->state;
    struct spr_together *t = s->together;

    t->entries = 0;
    for (int i = 0; i < s->sources.size; i++) {
        const struct spr_stream *stream = &s->contributions[i];
        struct cursor *c = &t->next[i];
        c->open = stream->open;
        c->message = stream->taken;
        if (c->open)
            c->chunk = stream->chunk;
        if (t->opened[i] < stream->taken + stream->open)
            t->opened[i] = stream->taken + stream->open; /* by one thread */
    }
}

enum spr_together_next spr_sparse_sum_together(spr_request *rq)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_together *t = s->together;
    struct spr_workers *workers = s->workers;
    uint32_t pending;
    unsigned parts;
    bool waits;

    if (!t)
        return SPR_TOGETHER_ALONE;
    if (t->lacking >= 0 && !has_come(s)) /* nothing has changed */
        return SPR_TOGETHER_WAIT;
    begin(rq);
    pending = s->union_writer.windows > 0; /* summed by one thread, and not sent yet */
    parts = deal_out(rq, pending);
    waits = t->lacking >= 0 && is_coming(s);
    if (rq->comm->error.status || (waits && (parts < 2 || t->entries < WORTH_HELP)))
        return SPR_TOGETHER_WAIT;
    t->lacking = -1;
    if (parts == 0)
        return SPR_TOGETHER_ALONE;
    if (pending && !spr_union_close(rq))
        return SPR_TOGETHER_WAIT;
    spr_union_make_room(rq, parts);
    if (t->entries < WORTH_HELP)
        workers = NULL;
    spr_workers_run(workers, parts, sum_part, rq);
    move_on(rq);
    for (unsigned i = 0; i < parts; i++) {
        const struct part *p = &t->part[i];
        s->union_entries += p->writer.count;
        s->merged += p->windows;
        if (workers && parts > 1)
            rq->comm->counters.shared_windows += p->windows;
        if (!spr_union_send(rq, &p->writer, p->bytes))
            return SPR_TOGETHER_WAIT;
    }
    spr_chunk_writer_begin(&s->union_writer, s->merged);
    return SPR_TOGETHER_DONE;
}
