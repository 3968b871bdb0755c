/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Sparse allreduce, exact, for entries in clusters: as the direct one, but what travels are tiles
 * of 256 positions (collectives/sparse_tiles.h), whole when they have an entry, as in OmniReduce
 * (Fei et al. 2021). Canonical: owners add in rank order, and a sum that +0 is added to stays.
 *
 * Cost, of n positions in n/256 tiles: t tiles with an entry per rank, T with an entry of any of P
 * ranks: 2 steps; sent per rank (P-1)/P (t + T) 1056 bytes; (P-1)/P 256 t additions, by vectors.
 * For rows of embeddings, where tiles are nearly full: 4.1 bytes per entry in full ones, instead of
 * up to 6 with positions. Of entries spread evenly with density d a tile is hit with 1 - (1-d)^256:
 * 92 % at d = 1 %, and nearly the whole vector travels.
 *
 * Data movement, 4 ranks; block i of the vector belongs to rank i mod 4; xr(s) = rank r's tiles in
 * the blocks of rank s, S(s) = their sum over ranks:
 *
 *            rank 0        rank 1        rank 2        rank 3
 *   send     x0(1..3)      x1(0,2,3)     x2(0,1,3)     x3(0..2)
 *   merge    S(0)          S(1)          S(2)          S(3)          by window, in rank order
 *   send     S(0) to all   S(1) to all   S(2) to all   S(3) to all
 *
 * Memory is bounded: SPR_SPARSE_AHEAD messages per peer and step that are received,
 * SPR_SPARSE_UNIONS of sums.
 */
#include <string.h>

#include "collectives/sparse_lane.h"
#include "collectives/sparse_tiles.h"
#include "compress/kernels/kernels.h"

struct tiled {
    struct spr_sparse_state s;
    struct spr_tiles *theirs;     /* [size] of the message that is open of contributions */
    float *accumulator;           /* span, in whole tiles */
    uint64_t *touched;            /* as many bits */
    struct spr_lane sums;         /* ours, to all */
    struct spr_tiles_writer open; /* of them, the message that is made; out NULL: none */
    char *chunk;                  /* scratch for a window of a list result */
};

/* Sender: our entries to the owners ------------------------------------------------------------
 */

/* The n entries of a window in s.writer, as tiles. */
static void write_entries(const struct spr_sparse_state *s, size_t n, struct spr_tiles_writer *w)
{
    const uint16_t *pos = s->writer.pos;
    struct spr_tile *tile = NULL;

    spr_tiles_window(w);
    for (size_t i = 0; i < n; i++) {
        uint32_t at = pos[i] % SPR_TILE;
        if (!tile || pos[i] / SPR_TILE != pos[i - 1] / SPR_TILE) {
            tile = spr_tiles_add(w, pos[i] / SPR_TILE);
            memset(tile, 0, sizeof *tile);
        }
        tile->present[at / 64] |= UINT64_C(1) << at % 64;
        tile->value[at] = s->writer.val[i];
    }
}

static size_t tiles_of(uint32_t len) { return spr_div_ceil(len, SPR_TILE); }

/* The next message for an owner: as many windows as fit for certain. Returns the bytes. */
static size_t encode(spr_request *rq, uint32_t owner, uint32_t *next_window, char *out)
{
    const struct spr_sparse_state *s = rq->state;
    uint32_t windows = spr_blocks_windows(&s->blocks, owner), w = *next_window;
    struct spr_tiles_writer writer;

    spr_tiles_begin(&writer, out, w);
    for (; w < windows && writer.bytes <= SPR_SPARSE_TARGET_BYTES; w++) {
        size_t n = spr_blocks_gather_count(&s->blocks, s->offsets, owner, w);
        size_t tiles = spr_min_size(n, tiles_of(spr_blocks_window_len(&s->blocks, owner, w)));
        if (w > *next_window && writer.bytes + spr_tiles_window_bytes(tiles) > s->chunk_bytes)
            break;
        n = spr_blocks_gather(&s->blocks, s->offsets, rq->plan.index, rq->plan.value, owner, w,
                              s->writer.pos, s->writer.val);
        write_entries(s, n, &writer);
    }
    *next_window = w;
    return spr_tiles_end(&writer, w == windows);
}

/* What comes in --------------------------------------------------------------------------------
 */

/* Open the message of `from`, in the blocks of an owner, which begins with the stream's window.
 * False: it is wrong, and the communicator fails. */
static bool open_message(spr_request *rq, struct spr_stream *stream, const struct spr_in *in,
                         struct spr_tiles *tiles, int from, uint32_t owner)
{
    const struct spr_sparse_state *s = rq->state;
    const char *why =
        spr_tiles_open(tiles, in->recv.data, in->recv.bytes, &s->blocks, owner, stream->window);

    if (why) {
        spr_comm_fail(rq->comm, SPR_ERR_PROTO, from, -1, why);
        return false;
    }
    stream->open = true;
    stream->window += tiles->windows;
    stream->last = tiles->last;
    return true;
}

/* A tile of a window, into the dense result: a run for each block of the vector that it is in. */
static void write_tile(const struct spr_sparse_state *s, uint32_t owner, uint64_t local,
                       uint32_t len, const float *value, float *dense)
{
    uint32_t block = 1u << s->blocks.block_log2, n;

    for (uint32_t i = 0; i < len; i += n, local += n) {
        float *out = dense + spr_blocks_global(&s->blocks, owner, local);
        n = (uint32_t)spr_min_size(spr_min_size(block, SPR_TILE), len - i);
        if (value)
            memcpy(out, value + i, n * sizeof *out);
        else
            spr_kernels()->clear(out, n);
    }
}

static void write_window(spr_request *rq, uint32_t owner, uint32_t w, struct spr_tiles_map map,
                         const struct spr_tile *tile)
{
    const struct spr_sparse_state *s = rq->state;
    uint32_t len = spr_blocks_window_len(&s->blocks, owner, w);
    uint32_t next = (uint32_t)spr_tiles_take(&map);

    for (uint32_t i = 0; i < tiles_of(len); i++) {
        uint32_t first = i * SPR_TILE, n = (uint32_t)spr_min_size(SPR_TILE, len - first);
        uint64_t local = ((uint64_t)w << SPR_WINDOW_LOG2) + first;
        write_tile(s, owner, local, n, i == next ? tile->value : NULL, rq->plan.dense);
        if (i != next)
            continue;
        tile++;
        next = (uint32_t)spr_tiles_take(&map);
    }
}

/* Entries of a window as a chunk, which is kept for the list. */
static bool keep_window(spr_request *rq, uint32_t owner, uint32_t w, struct spr_tiles_map map,
                        const struct spr_tile *tile)
{
    struct tiled *t = rq->state;
    struct spr_chunk_writer *out = &t->s.writer; /* scratch between two messages */
    struct spr_chunk c;
    const char *why;
    size_t n = 0, bytes;

    spr_chunk_writer_init(out, &t->s.blocks, owner, t->s.most_windows, out->max_entries,
                          t->s.writer_scratch);
    spr_chunk_writer_begin(out, w);
    for (int number; (number = spr_tiles_take(&map)) >= 0; tile++) {
        size_t before = n;
        n += spr_kernels()->positions(tile->present, SPR_TILE_WORDS, (uint32_t)number * SPR_TILE,
                                      out->pos + n);
        for (size_t i = before; i < n; i++)
            out->val[i] = tile->value[out->pos[i] % SPR_TILE];
    }
    spr_chunk_writer_window(out, n);
    bytes = spr_chunk_writer_finish(out, SPR_V_FP32, -1, 0, t->chunk, t->s.chunk_bytes);
    (void)spr_chunk_open(&c, t->chunk, bytes, &t->s.blocks, owner, w, NULL,
                         &why); /* our own: cannot fail */
    return spr_sparse_take(rq, &c, t->chunk, bytes) == SPR_OK;
}

static size_t entries_of(const struct spr_tiles_map *map, const struct spr_tile *tile)
{
    size_t tiles = (size_t)spr_kernels()->popcount(map->tile, SPR_ARRAY_LEN(map->tile)), n = 0;

    for (size_t i = 0; i < tiles; i++)
        n += (size_t)spr_kernels()->popcount(tile[i].present, SPR_TILE_WORDS);
    return n;
}

/* All windows of a message of sums go into the result. */
static bool take_windows(spr_request *rq, uint32_t owner, struct spr_tiles *tiles)
{
    struct tiled *t = rq->state;

    for (uint32_t i = 0; i < tiles->windows; i++) {
        const struct spr_tiles_map *map;
        const struct spr_tile *first = spr_tiles_next(tiles, &map);
        uint32_t w = tiles->first_window + i;
        t->s.union_entries += entries_of(map, first);
        if (rq->plan.list && !keep_window(rq, owner, w, *map, first))
            return false;
        if (rq->plan.dense && !rq->plan.list)
            write_window(rq, owner, w, *map, first);
    }
    return true;
}

/* Owner ----------------------------------------------------------------------------------------
 */

static void add_own(spr_request *rq)
{
    struct tiled *t = rq->state;
    struct spr_sparse_state *s = &t->s;
    size_t n = spr_blocks_gather(&s->blocks, s->offsets, rq->plan.index, rq->plan.value,
                                 (uint32_t)rq->comm->rank, s->merged, s->writer.pos, s->writer.val);

    spr_kernels()->add_at(t->accumulator, t->touched, s->writer.pos, s->writer.val, n);
}

/* The tiles of one rank. False: they are not there. */
static bool add(spr_request *rq, int from)
{
    struct tiled *t = rq->state;
    struct spr_stream *stream = &t->s.contributions[from];
    const struct spr_tiles_map *map;
    const struct spr_tile *tile;
    struct spr_tiles_map left;
    int number;

    if (from == rq->comm->rank) {
        add_own(rq);
        return true;
    }
    if (!stream->open) {
        const struct spr_in *in = spr_stream_next(stream);
        if (!in || !open_message(rq, stream, in, &t->theirs[from], from, (uint32_t)rq->comm->rank))
            return false;
    }
    tile = spr_tiles_next(&t->theirs[from], &map);
    for (left = *map; (number = spr_tiles_take(&left)) >= 0; tile++) {
        float *at = t->accumulator + number * SPR_TILE;
        spr_kernels()->sum(at, at, tile->value, SPR_TILE);
        for (int i = 0; i < SPR_TILE_WORDS; i++)
            t->touched[number * SPR_TILE_WORDS + i] |= tile->present[i];
    }
    if (t->s.merged + 1 == stream->window)
        spr_stream_close(stream);
    return true;
}

static bool is_touched(const struct tiled *t, uint32_t number)
{
    const uint64_t *bits = t->touched + (size_t)number * SPR_TILE_WORDS;
    uint64_t any = 0;

    for (int i = 0; i < SPR_TILE_WORDS; i++)
        any |= bits[i];
    return any != 0;
}

static void harvest_tile(spr_request *rq, uint32_t number)
{
    struct tiled *t = rq->state;
    struct spr_tile *tile = spr_tiles_add(&t->open, number);
    float *sums = t->accumulator + (size_t)number * SPR_TILE;
    uint64_t *bits = t->touched + (size_t)number * SPR_TILE_WORDS;

    memcpy(tile->present, bits, sizeof tile->present);
    memcpy(tile->value, sums, sizeof tile->value);
    spr_sparse_average(rq, tile->value, SPR_TILE);
    memset(sums, 0, sizeof tile->value);
    memset(bits, 0, sizeof tile->present);
}

/* The message that is open, which ends before window `end`, goes to all, and into our result. */
static bool send_sums(spr_request *rq, uint32_t end)
{
    struct tiled *t = rq->state;
    uint32_t rank = (uint32_t)rq->comm->rank;
    size_t bytes = spr_tiles_end(&t->open, end == t->s.windows);
    struct spr_tiles tiles;

    (void)spr_tiles_open(&tiles, t->open.out, bytes, &t->s.blocks, rank,
                         t->open.header.first_window); /* our own: cannot fail */
    t->open.out = NULL;
    spr_lane_send(rq, &t->sums, bytes, spr_union_step(&t->s, t->s.own));
    return take_windows(rq, rank, &tiles);
}

/* The window is complete. At most two messages are sent. */
static bool harvest(spr_request *rq)
{
    struct tiled *t = rq->state;
    struct spr_sparse_state *s = &t->s;
    uint32_t w = s->merged, all, tiles = 0;

    all = (uint32_t)tiles_of(spr_blocks_window_len(&s->blocks, (uint32_t)rq->comm->rank, w));
    for (uint32_t i = 0; i < all; i++)
        tiles += is_touched(t, i);
    if (t->open.out && t->open.bytes + spr_tiles_window_bytes(tiles) > s->chunk_bytes &&
        !send_sums(rq, w))
        return false;
    if (!t->open.out)
        spr_tiles_begin(&t->open, spr_lane_buffer(&t->sums), w);
    spr_tiles_window(&t->open);
    for (uint32_t i = 0; i < all; i++)
        if (is_touched(t, i))
            harvest_tile(rq, i);
    s->next_rank = 0;
    s->merged++;
    return (s->merged < s->windows && t->open.bytes <= SPR_SPARSE_TARGET_BYTES) ||
           send_sums(rq, s->merged);
}

/* At most two messages are sent for a window. */
static bool has_room(const spr_request *rq)
{
    return spr_lane_has_two(&((struct tiled *)rq->state)->sums);
}

/* Everybody's sums ------------------------------------------------------------------------------
 */

static bool take(spr_request *rq, int owner, struct spr_in *in)
{
    struct spr_sparse_state *s = rq->state;
    struct spr_tiles tiles;

    if (!open_message(rq, &s->unions[owner], in, &tiles, owner, (uint32_t)owner) ||
        !take_windows(rq, (uint32_t)owner, &tiles))
        return false;
    spr_stream_close(&s->unions[owner]);
    return true;
}

static const struct spr_sparse_way in_tiles = {
    .encode = encode, .has_room = has_room, .add = add, .harvest = harvest, .take = take};

static bool advance(spr_request *rq) { return spr_sparse_go_on(rq, spr_sparse_contribute(rq)); }

static void cleanup(spr_request *rq)
{
    struct tiled *t = rq->state;

    spr_lane_free(rq, &t->sums);
    spr_sparse_buffer_put(rq, t->chunk);
    spr_sparse_cleanup(rq);
}

static bool make_memory(spr_request *rq)
{
    struct tiled *t = rq->state;
    size_t size = (size_t)rq->comm->size, positions = spr_align_up(t->s.span, SPR_TILE);
    size_t window = sizeof(struct spr_tiles_header) + spr_tiles_window_bytes(tiles_of(t->s.span));

    t->s.chunk_bytes = spr_max_size(t->s.chunk_bytes, window);
    t->sums.first_peer = (rq->comm->rank + 1) % rq->comm->size;
    t->sums.peers = rq->comm->size - 1;
    t->theirs = spr_arena_alloc(&rq->arena, size * sizeof *t->theirs);
    t->accumulator = spr_arena_alloc(&rq->arena, positions * sizeof *t->accumulator);
    t->touched = spr_arena_alloc(&rq->arena, positions / 8);
    t->chunk = spr_sparse_buffer_get(rq);
    return t->theirs && t->accumulator && t->touched && t->chunk && spr_lane_open(rq, &t->sums) &&
           spr_sparse_make_links(rq);
}

static spr_status start(spr_request *rq)
{
    spr_status status = spr_sparse_prepare(rq, sizeof(struct tiled), rq->comm->size);
    struct tiled *t = rq->state;

    if (status)
        return status;
    t->s.way = &in_tiles;
    t->s.packs = false;
    spr_sparse_each_owns(rq);
    if (!make_memory(rq)) {
        cleanup(rq);
        return SPR_ERR_NOMEM;
    }
    return SPR_OK;
}

const struct spr_algorithm spr_sparse_blocks = {
    .collective = SPR_C_SPARSE_ALLREDUCE,
    .name = "blocks",
    .cost = "2 steps, (P-1)/P (t + T) blocks of 256 positions, canonical",
    .usable = spr_sparse_is_uncoded,
    .start = start,
    .advance = advance,
    .cleanup = cleanup,
    .predict = spr_cost_sparse_blocks};
