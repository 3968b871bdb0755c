/* SPDX-License-Identifier: BSD-2-Clause
 *
 * How long an allreduce of P ranks takes with a codec, from what the codec costs one rank. Pure.
 *
 *   T = E + W + D                        nothing overlaps
 *   E = s e                              own step: selected, encoded
 *   W = (P-1)/P (b + u) 8 / L + 2 R a    b bytes to the owners, u bytes of the sum to all
 *   D = s (m + f / P + d)                own share of P steps, which is one step: merged; its sum
 *                                        encoded; the whole sum decoded
 *
 * L link rate in bit/s, a latency, R rounds (two steps each), s ranks that share a CPU. W is the
 * cost of collectives/direct.c (vectors: u = b, so 2 (P-1)/P b, the lower bound of Patarasuk and
 * Yuan 2009) and of collectives/sparse.c (lists: u is the union, values as
 * in b, or fp32 where sums stay exact). The CPU time of the
 * transport is in no term, nor is waiting for the slowest rank; vectors that are small enough to be
 * summed in one step (collectives/flat.c) take less.
 *
 * Union of P lists, each with a part d of n positions, if ranks choose independently and uniformly:
 * U = n (1 - (1 - d)^P). Where ranks choose the same positions, it is smaller: down to d n.
 */
#ifndef SPR_TOOLS_CODEC_PREDICT_H
#define SPR_TOOLS_CODEC_PREDICT_H

/* Of one rank with a CPU of its own; times in microseconds. */
struct work {
    int rounds;           /* allreduces one after the other */
    double bytes;         /* b */
    double sum_bytes;     /* u */
    double encode_us;     /* e */
    double merge_us;      /* m */
    double sum_encode_us; /* f */
    double sum_decode_us; /* d */
};

struct network {
    int ranks;         /* P, at least 1 */
    double link_bps;   /* L */
    double latency_us; /* a */
    double share;      /* s */
};

struct prediction {
    double sent_bytes; /* by each rank */
    double encode_us, wire_us, decode_us, total_us;
};

struct prediction predict(const struct work *work, const struct network *network);
/* U, of n positions of which each rank has so many. */
double union_entries(double n, double entries, int ranks);
/* Below this link rate, in bit/s, `work` takes less time than `dense`. INFINITY: at any rate; 0: at
 * none. NAN: above some rate, as it sends more. Of the network all but the rate counts. */
double faster_below_bps(const struct work *work, const struct work *dense,
                        const struct network *network);

#endif
