/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What the model says of each algorithm. P ranks, N hosts of G ranks, n positions, k entries of a
 * rank, U of the union; L(m, l): bytes of a list of m entries in l positions. Sent bytes, steps and
 * sums are those of the cost lines of the algorithms' own files.
 */
#include <math.h>

#include "collectives/collective.h"
#include "collectives/direct.h"
#include "collectives/indices.h"
#include "collectives/model.h"
#include "collectives/sparse.h"
#include "collectives/sparse_tiles.h"
#include "compress/chunk.h"
#include "transport/frame.h"

/* Where there are more than two, ports wait for each other: chunks of lists differ in size, and two
 * of them are on their way from rank to rank. As seen in the simulated network, where it is 1.2,
 * and over TCP, which has queues, 1.1. */
#define UNEVEN 1.15

/* Chunks stream, so mostly the first and the last of them are exposed; but where a link is as fast
 * as the CPU that serves it, that CPU does one thing after the other. */
static double join(const struct spr_estimate *e, double wire, double cpu)
{
    return fmax(wire, cpu) + e->model->exposed * fmin(wire, cpu);
}

static double rounds(const struct spr_estimate *e) { return ceil(log2(e->ranks)); }

/* Of steps to ranks at the distances 1, 2, 4 ..: those that leave a host. Inside a host a message
 * takes no time worth counting beside that of one between hosts. */
static double far_rounds(const struct spr_estimate *e)
{
    return floor(log2(e->ranks)) - (e->hosts > 1 && !e->scattered ? floor(log2(e->local)) : 0);
}

/* Every rank sends the others, all alike, so many bytes in all, each of them in so many streams of
 * that many chunks at most, of which one and the grants of two are the least. */
static double to_all(const struct spr_estimate *e, double bytes, double streams, double chunks)
{
    double frame = (1 + fmin(chunks, 2)) * SPR_FRAME_BYTES + SPR_CHUNK_HEADER_BYTES;
    double frames = (e->ranks - 1) * streams * frame;
    double leaving = e->hosts > 1 ? e->local * (e->ranks - e->local) / (e->ranks - 1) : 1;

    return e->model->byte * leaving * (bytes + frames);
}

/* ... of which the part for ranks of its own host is on its way at the same time. */
static double to_all_inside(const struct spr_estimate *e, double bytes)
{
    return e->hosts > 1 ? e->model->copy * (e->local - 1) / (e->ranks - 1) * bytes : 0;
}

/* Every rank sends those of its host, all alike, bytes / local. */
static double inside_host(const struct spr_estimate *e, double bytes)
{
    return e->model->copy * (e->local - 1) / e->local * bytes;
}

/* Every rank sends its right neighbour so many bytes, all at the same time: of a host, one rank
 * sends them away. */
static double to_neighbour(const struct spr_estimate *e, double bytes)
{
    if (e->hosts > 1 && e->local > 1 && !e->scattered)
        return fmax(e->model->byte, e->model->copy) * bytes;
    return e->model->byte * bytes * (e->scattered ? e->local : 1);
}

/* Every rank exchanges so many bytes with the one at that distance. */
static double to_partner(const struct spr_estimate *e, double distance, double bytes)
{
    if (e->hosts <= 1)
        return e->model->byte * bytes;
    return bytes *
           (distance >= e->local || e->scattered ? e->model->byte * e->local : e->model->copy);
}

/* Steps of small messages, of which a rank sends so many. */
static double steps(const struct spr_estimate *e, double count, double messages)
{
    return count * e->model->latency + fmax(messages - count, 0) * e->model->message;
}

/* ... of messages that wait for grants. Those are asked for ahead: the first one is waited for. */
static double bulk_steps(const struct spr_estimate *e, double count, double messages)
{
    return e->model->grant + steps(e, count, messages);
}

/* Twice round a ring, but for a step each: between hosts every so many steps. */
static double laps(const struct spr_estimate *e)
{
    double count = 2 * (e->ranks - 1), every = e->hosts > 1 && !e->scattered ? e->local : 1;

    return bulk_steps(e, count / every, count);
}

/* Dense ---------------------------------------------------------------------------------------- */

double spr_cost_flat(const struct spr_estimate *e)
{
    double bytes = (e->ranks - 1) * e->bytes;

    return steps(e, 1, e->ranks - 1) +
           join(e, to_all(e, bytes, 0, 1),
                to_all_inside(e, bytes) + e->model->reduce * e->ranks * e->bytes);
}

/* Between hosts the sums of the last chunk are sent to all when all else has been. Where links are
 * not alike, and each is of one rank, segments are as long as they are worth. */
double spr_cost_direct(const struct spr_estimate *e)
{
    bool cut = e->gain < 1 && e->hosts >= e->ranks;
    double bytes = 2 * (e->ranks - 1) / e->ranks * e->bytes;
    double chunk = fmin(e->bytes / e->ranks / SPR_DIRECT_CHUNKS, SPR_CHUNK_BYTES);
    double chunks = ceil(e->bytes / e->ranks / SPR_DIRECT_LEAST_BYTES);
    double last = e->hosts > 1 && chunks > 1 ? to_all(e, (e->ranks - 1) * chunk, 0, 1) : 0;

    return bulk_steps(e, 2, 2 * (e->ranks - 1)) +
           join(e, (cut ? e->gain : 1) * to_all(e, bytes, 2, chunks),
                to_all_inside(e, bytes) + e->model->reduce * e->bytes * (cut ? e->most : 1)) +
           last;
}

double spr_cost_ring(const struct spr_estimate *e)
{
    return laps(e) + join(e, to_neighbour(e, 2 * (e->ranks - 1) / e->ranks * e->bytes),
                          e->model->reduce * e->bytes);
}

double spr_cost_halving(const struct spr_estimate *e)
{
    double wire = 0, part = 1;
    bool uneven = exp2(rounds(e)) > e->ranks;

    /* Neighbours exchange the longest parts. */
    for (double distance = 1; 2 * distance <= e->ranks; distance *= 2) {
        part /= 2;
        wire += 2 * to_partner(e, distance, part * e->bytes);
    }
    /* Of neighbours without a partner of their own one is added before, and told after. */
    if (uneven)
        wire += to_partner(e, 1, e->bytes);
    return bulk_steps(e, 2 * far_rounds(e) + (uneven ? 2 : 0), 0) +
           join(e, wire, e->model->reduce * e->bytes * (uneven ? 2 : 1));
}

double spr_cost_doubling(const struct spr_estimate *e)
{
    double wire = 0, sums = floor(log2(e->ranks));
    bool uneven = exp2(rounds(e)) > e->ranks;

    for (double distance = 1; 2 * distance <= e->ranks; distance *= 2)
        wire += to_partner(e, distance, e->bytes);
    if (uneven)
        wire += 1.5 * to_partner(e, 1, e->bytes);
    return bulk_steps(e, far_rounds(e) + (uneven ? 2 : 0), 0) +
           join(e, wire, e->model->reduce * e->bytes * (sums + (uneven ? 1 : 0)));
}

/* How often the vector leaves the host that sends most of a tree, up and down: that of its root,
 * whose ranks have all those below them on other hosts but for the first, or the next one, whose
 * ranks have those above them there, too. */
static double tree_leaving(const struct spr_estimate *e)
{
    double local = e->scattered ? 1 : e->local, last = e->ranks - 1;
    double root = fmin(2 * local, last) - local + 1;
    double next = local + fmin(fmax(last - 2 * local, 0), 2 * local);

    return fmax(root, next) * (e->scattered ? e->local : 1);
}

double spr_cost_tree(const struct spr_estimate *e)
{
    double depth = log2(e->ranks + 1) - 1,
           chunk = fmin(e->bytes, fmin(fmax(e->bytes / 8, 16 << 10), SPR_CHUNK_BYTES));
    /* An inner rank takes from two and sends to two, and so does a chunk on its way up and down at
     * each level; inside a host it is the sum of all that counts. */
    double busiest = tree_leaving(e);
    double bytes = e->hosts > 1 ? busiest * e->bytes + fmax(4 * depth - busiest, 0) * chunk
                                : 2 * (e->ranks - 1) / e->ranks * e->bytes;
    /* The first host has the root and those right below it. */
    double inside = e->hosts > 1 && !e->scattered ? inside_host(e, 2 * e->bytes) : 0;

    return bulk_steps(e, 2 * depth, 0) +
           join(e, e->model->byte * bytes + inside, 2 * e->model->reduce * e->bytes);
}

/* Of a host's shards each owner has a part of 64 elements or more: of a short vector some hosts own
 * nothing, and others the more. Sums of halves are floats on their way to the owner. */
double spr_cost_hierarchical(const struct spr_estimate *e)
{
    double part = fmax(e->bytes / e->local / e->hosts, 64 * e->bytes / e->n);
    double sums = part * fmax(4 * e->n / e->bytes, 1);

    if (e->hosts <= 1 || e->hosts >= e->ranks)
        return INFINITY;
    return bulk_steps(e, 2, 2 * (e->local - 1) + 2 * (e->hosts - 1)) +
           join(e,
                e->gain * e->model->byte * (e->hosts - 1) * e->local *
                        (sums + part + 2 * SPR_FRAME_BYTES) +
                    inside_host(e, 2 * e->bytes),
                e->model->reduce * e->bytes * (2 + e->most / e->local));
}

/* Sparse --------------------------------------------------------------------------------------- */

/* The cheapest of the formats U16, PACKED, BITMAP and DENSE. */
static double list_bytes(const struct spr_estimate *e, double m, double l, double value)
{
    double windows = ceil(l / 65536), headers = 4 * windows;
    double positions = 2 * m;

    if (e->indices != SPR_INDICES_PLAIN && 5 * m < l)
        positions = fmin(positions, m * spr_indices_bytes(e->indices, l / m));
    return headers + fmin(m * value + fmin(positions, l / 8), m < l ? INFINITY : l * value);
}

/* Entries in the union of so many ranks' lists: it grows with the same power all the way. */
static double union_of(const struct spr_estimate *e, double ranks)
{
    return e->k * pow(e->u / e->k, log2(ranks) / log2(e->ranks));
}

/* A port is that of a host; on one host, of a rank. */
static double uneven(const struct spr_estimate *e)
{
    return (e->hosts > 1 ? e->hosts : e->ranks) > 2 ? UNEVEN : 1;
}

static double stream(const struct spr_estimate *e, double wire, double cpu)
{
    return join(e, uneven(e) * wire, cpu);
}

static double clearing(const struct spr_estimate *e)
{
    bool streams = e->n * sizeof(float) >= SPR_STREAM_BYTES;

    return (streams ? e->model->stream : e->model->clear) * e->n;
}

/* Of an owner's part: a chunk has one at least. */
static double windows(const struct spr_estimate *e) { return ceil(e->n / e->ranks / SPR_WINDOW); }

/* The union is known, and becomes the result. */
static double result(const struct spr_estimate *e) { return e->model->take * e->u + clearing(e); }

static double owners(const struct spr_estimate *e)
{
    return e->model->encode * (e->k + e->u / e->ranks) + e->model->merge * e->k + result(e);
}

double spr_cost_sparse_direct(const struct spr_estimate *e)
{
    double bytes = (e->ranks - 1) / e->ranks * e->share *
                   (list_bytes(e, e->k, e->n, e->value) + list_bytes(e, e->u, e->n, e->sum));

    return bulk_steps(e, 2, 2 * (e->ranks - 1)) +
           stream(e, to_all(e, bytes, 2, windows(e)), to_all_inside(e, bytes) + owners(e));
}

double spr_cost_sparse_hierarchical(const struct spr_estimate *e)
{
    double lists = (e->ranks - 1) / e->ranks * e->share * list_bytes(e, e->k, e->n, e->value);
    double sums = e->share * list_bytes(e, e->u, e->n, e->sum);

    if (e->hosts <= 1 || e->hosts >= e->ranks)
        return INFINITY;
    return bulk_steps(e, 2, 2 * (e->ranks - 1)) +
           stream(e,
                  to_all(e, lists, 1, windows(e)) +
                      e->model->byte * e->local * (e->hosts - 1) / e->ranks * sums,
                  to_all_inside(e, lists) + inside_host(e, sums) + owners(e));
}

/* What a host tells the next one is in nobody's way. */
double spr_cost_sparse_relay(const struct spr_estimate *e)
{
    double lists = (e->ranks - 1) / e->ranks * e->share * list_bytes(e, e->k, e->n, e->value);
    double sums = e->share * list_bytes(e, e->u, e->n, e->sum);
    double wire = uneven(e) * to_all(e, lists, 1, windows(e)) +
                  e->model->byte * e->local * (e->hosts - 1) / e->ranks * sums;

    if (e->hosts <= 1)
        return INFINITY;
    /* While one union is on its way from host to host, others of the host's ranks are, too. */
    return bulk_steps(e, 1 + (e->hosts - 1) / e->local, 2 * (e->ranks - 1)) +
           join(e, wire, to_all_inside(e, lists) + inside_host(e, sums) + owners(e));
}

double spr_cost_sparse_hosts(const struct spr_estimate *e)
{
    double of_host = e->bound_hosts ? e->k : union_of(e, e->local);
    double lists = e->share * list_bytes(e, e->k, e->n, e->host_value);
    double of_hosts = e->share * list_bytes(e, of_host, e->n, e->host_sum);
    double sums = e->share * list_bytes(e, e->u, e->n, e->sum);
    double cpu = e->model->encode * (e->k + of_host / e->local + e->u / e->ranks) +
                 e->model->merge * (e->k + of_host / e->local) + result(e);

    if (e->hosts <= 1 || e->hosts >= e->ranks)
        return INFINITY;
    return bulk_steps(e, 2, 2 * (e->local - 1) + 2 * (e->hosts - 1)) +
           stream(e, e->model->byte * (e->hosts - 1) / e->hosts * (of_hosts + sums),
                  cpu + inside_host(e, lists + sums));
}

double spr_cost_sparse_allgather(const struct spr_estimate *e)
{
    double list = list_bytes(e, e->k, e->n, e->value);
    double wire = to_all(e, (e->ranks - 1) * list, 1, ceil(e->n / SPR_WINDOW));
    double cpu = to_all_inside(e, (e->ranks - 1) * list) +
                 (e->model->encode + e->model->merge * e->ranks) * e->k + result(e);

    /* Lists of one chunk are all on their way at once. */
    return bulk_steps(e, 1, e->ranks - 1) +
           (list <= SPR_SPARSE_TARGET_BYTES ? join(e, wire, cpu) : stream(e, wire, cpu));
}

double spr_cost_sparse_doubling(const struct spr_estimate *e)
{
    bool uneven = exp2(rounds(e)) > e->ranks;
    double wire = 0, cpu = result(e), of = 1;

    for (; 2 * of <= e->ranks; of *= 2) {
        double m = union_of(e, of);
        wire += to_partner(e, of, list_bytes(e, m, e->n, of > 1 ? 4 : e->value));
        cpu += (e->model->encode + 2 * e->model->merge) * m;
    }
    if (uneven) {
        wire +=
            to_partner(e, 1, list_bytes(e, e->k, e->n, e->value) + list_bytes(e, e->u, e->n, 4));
        cpu += (e->model->encode + 2 * e->model->merge) * e->k;
    }
    return bulk_steps(e, far_rounds(e) + (uneven ? 2 : 0), 0) + stream(e, wire, cpu);
}

double spr_cost_sparse_ring(const struct spr_estimate *e)
{
    double part = e->n / e->ranks, wire, cpu = result(e);

    wire = (e->ranks - 1) * list_bytes(e, e->u / e->ranks, part, 4);
    /* Of many hops a part is looked at. */
    for (double of = 1, some = fmax(1, floor(e->ranks / 64)); of < e->ranks; of += some) {
        double m = union_of(e, of) / e->ranks;
        wire += some * list_bytes(e, m, part, of > 1 ? 4 : e->value);
        cpu += some * (e->model->encode * m + e->model->merge * (m + e->k / e->ranks));
    }
    return laps(e) + stream(e, to_neighbour(e, e->share * wire), cpu);
}

/* All have the positions of the last union, or each sends what others lack with positions. */
double spr_cost_sparse_union(const struct spr_estimate *e)
{
    bool same = e->u <= e->k;
    double lists = same ? 4 * e->k : list_bytes(e, e->k, e->n, e->value);
    double sums = 4 * e->k + (same ? 0 : list_bytes(e, e->u - e->k, e->n, 4));
    double bytes = (e->ranks - 1) / e->ranks * e->share * (lists + sums);
    /* Positions are hashed, and what each rank lacks is encoded and taken for it alone. */
    double cpu = to_all_inside(e, bytes) + owners(e) + e->model->encode * e->k +
                 (same ? 0 : (e->model->encode + e->model->merge) * e->u);

    /* They tell each other about their supports while they wait for grants. */
    return bulk_steps(e, 2, 3 * (e->ranks - 1)) + stream(e, to_all(e, bytes, 2, windows(e)), cpu);
}

double spr_cost_sparse_server(const struct spr_estimate *e)
{
    double away = e->hosts > 1 ? e->ranks - e->local : e->ranks - 1;
    double list = list_bytes(e, e->k, e->n, e->value), sums = list_bytes(e, e->u, e->n, 4);
    double in = away * list, out = away * sums;
    /* Both ways at once, but for the first chunks. */
    double bytes = fmax(in, out) + fmin(fmin(in, out), away * SPR_SPARSE_TARGET_BYTES);
    double wire = e->model->byte * bytes, inside = (e->ranks - 1 - away) * (list + sums);
    /* The others wait for the server, and leave it their CPUs. */
    double alone = e->model->encode * (e->k + e->u) + e->model->merge * e->ranks * e->k;
    double cpu = e->model->copy * inside + alone / fmax(e->model->load, 1) + result(e);

    return bulk_steps(e, 2, 2 * (e->ranks - 1)) + join(e, wire, cpu);
}

/* Tiles with one of so many entries: positions are taken for independent, and in clusters there
 * are fewer. */
static double tiles(const struct spr_estimate *e, double entries)
{
    return e->n / SPR_TILE * -expm1(SPR_TILE * log1p(-fmin(entries / e->n, 1)));
}

double spr_cost_sparse_blocks(const struct spr_estimate *e)
{
    double mine = tiles(e, e->k);
    double bytes = (e->ranks - 1) / e->ranks * e->share * (mine + tiles(e, e->u)) *
                   (double)sizeof(struct spr_tile);
    /* Entries are put into tiles that are clear, and those are summed. */
    double cpu = to_all_inside(e, bytes) +
                 (e->model->clear + e->model->reduce * sizeof(float)) * mine * SPR_TILE +
                 e->model->take * e->k + result(e);

    return bulk_steps(e, 2, 2 * (e->ranks - 1)) + stream(e, to_all(e, bytes, 2, windows(e)), cpu);
}

double spr_cost_sparse_dense(const struct spr_estimate *e)
{
    struct spr_estimate dense = *e;
    double before = clearing(e) + e->model->take * e->k;

    dense.bytes = 4 * e->n;
    if (e->in_order)
        return before + spr_cost_direct(&dense);
    return before + fmin(fmin(spr_cost_direct(&dense), spr_cost_ring(&dense)),
                         spr_cost_hierarchical(&dense));
}
