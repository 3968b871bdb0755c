/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A sparse allreduce by unions of supports begins, with memory and with what ranks tell each other
 * about their supports; and it ends.
 */
#include "collectives/sparse_supports.h"

#define TELL_STEP 0x20000000u

static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* words[owner], of this rank's positions in the blocks of each. */
static void hash_supports(const spr_request *rq, uint64_t *words)
{
    const struct spr_sparse_state *s = rq->state;
    size_t blocks = spr_blocks_count(&s->blocks), owner = 0;

    for (int r = 0; r < rq->comm->size; r++)
        words[r] = 0x9e3779b97f4a7c15u;
    for (size_t b = 0; b < blocks; b++) {
        uint64_t h = words[owner];
        for (size_t i = s->offsets[b]; i < s->offsets[b + 1]; i++)
            h = fold(h ^ rq->plan.index[i], 0xd6e8feb86659fd93u);
        words[owner] = h;
        owner = owner + 1 < (size_t)rq->comm->size ? owner + 1 : 0;
    }
}

static void tell(spr_request *rq)
{
    struct spr_supports_state *u = rq->state;
    int size = rq->comm->size, rank = rq->comm->rank;
    bool eager = sizeof(struct spr_supports) <= rq->comm->options.eager_bytes;

    for (int i = 1; i < size; i++) {
        struct spr_supports_peer *p = &u->peers[(rank + size - i) % size];
        spr_post_receive(rq, &p->heard, (rank + size - i) % size, TELL_STEP, &p->theirs,
                         sizeof p->theirs, eager);
    }
    for (int i = 1; i < size; i++) {
        struct spr_supports_peer *p = &u->peers[(rank + i) % size];
        spr_post_send(rq, &p->told, (rank + i) % size, TELL_STEP, &p->mine, sizeof p->mine, eager);
    }
}

void spr_supports_hear(spr_request *rq)
{
    struct spr_supports_state *u = rq->state;

    for (int r = 0; r < rq->comm->size && !rq->comm->error.status; r++) {
        struct spr_supports_peer *p = &u->peers[r];
        if (p->heard.state != SPR_IN_ARRIVED)
            continue;
        if (p->heard.recv.bytes != sizeof p->theirs) {
            spr_comm_fail(rq->comm, SPR_ERR_PROTO, r, -1, "sent a message of another size");
            return;
        }
        p->same_there = p->mine.there == p->theirs.here;
        p->same_here = p->mine.here == p->theirs.there;
        p->known = true;
        spr_in_release(&p->heard);
    }
}

static bool open_peer(spr_request *rq, int r)
{
    struct spr_supports_state *u = rq->state;
    struct spr_supports_peer *p = &u->peers[r];

    p->support = spr_arena_buffer(&rq->arena, u->memory * (size_t)u->s.span / 8);
    for (int i = 0; i < SPR_SPARSE_AHEAD; i++)
        if (!(p->union_buffer[i] = spr_sparse_buffer_get(rq)))
            return false;
    return p->support != NULL;
}

static bool make_writers(spr_request *rq)
{
    struct spr_supports_state *u = rq->state;
    struct spr_sparse_state *s = &u->s;
    struct spr_chunk_writer *writers[] = {&s->union_writer, &u->lack};

    for (size_t i = 0; i < SPR_ARRAY_LEN(writers); i++) {
        void *scratch = spr_arena_buffer(&rq->arena, s->writer_bytes);
        if (!scratch)
            return false;
        spr_chunk_writer_init(writers[i], &s->blocks, (uint32_t)rq->comm->rank, u->memory,
                              s->writer.max_entries, scratch);
        spr_chunk_writer_begin(writers[i], 0);
    }
    u->whole = spr_sparse_buffer_get(rq);
    u->own_pos = spr_arena_buffer(&rq->arena, (s->span + 16) * sizeof *u->own_pos);
    u->own_val = spr_arena_buffer(&rq->arena, (s->span + 16) * sizeof *u->own_val);
    u->lack_index = spr_arena_buffer(&rq->arena, (s->span + 16) * sizeof *u->lack_index);
    u->lack_value = spr_arena_buffer(&rq->arena, (s->span + 16) * sizeof *u->lack_value);
    return u->whole && u->own_pos && u->own_val && u->lack_index && u->lack_value;
}

void spr_supports_cleanup(spr_request *rq)
{
    struct spr_supports_state *u = rq->state;

    spr_sparse_buffer_put(rq, u->whole);
    for (int r = 0; u->peers && r < rq->comm->size; r++) {
        struct spr_supports_peer *p = &u->peers[r];
        if (p->heard.state == SPR_IN_ARRIVED)
            spr_in_release(&p->heard);
        for (int i = 0; i < SPR_SPARSE_AHEAD; i++)
            spr_sparse_buffer_put(rq, p->union_buffer[i]);
    }
    spr_sparse_cleanup(rq);
}

spr_status spr_supports_start(spr_request *rq)
{
    spr_status status = spr_sparse_prepare(rq, sizeof(struct spr_supports_state), rq->comm->size);
    struct spr_supports_state *u = rq->state;
    size_t size = (size_t)rq->comm->size;
    uint64_t *words;
    bool good;

    if (status)
        return status;
    u->s.way = &spr_supports_way;
    u->s.packs = false;
    spr_sparse_each_owns(rq);
    u->memory = (uint32_t)spr_min_size(u->s.most_windows, SPR_UNION_WINDOWS);
    u->own_window = UINT32_MAX;
    u->peers = spr_arena_alloc(&rq->arena, size * sizeof *u->peers);
    words = spr_arena_alloc(&rq->arena, size * sizeof *words);
    good = u->peers && words && make_writers(rq) && spr_sparse_make_links(rq);
    for (int r = 0; good && r < rq->comm->size; r++)
        good = open_peer(rq, r);
    if (!good) {
        spr_supports_cleanup(rq);
        return SPR_ERR_NOMEM;
    }
    hash_supports(rq, words);
    for (size_t r = 0; r < size; r++)
        u->peers[r].mine = (struct spr_supports){words[r], words[rq->comm->rank]};
    tell(rq);
    return SPR_OK;
}
