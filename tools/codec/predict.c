/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/predict.h"

#include <math.h>

struct prediction predict(const struct work *work, const struct network *network)
{
    double ranks = network->ranks, part = (ranks - 1) / ranks;
    struct prediction p = {
        .sent_bytes = part * (work->bytes + work->sum_bytes),
        .encode_us = network->share * work->encode_us,
        .decode_us =
            network->share * (work->merge_us + work->sum_encode_us / ranks + work->sum_decode_us),
    };

    p.wire_us = p.sent_bytes * 8e6 / network->link_bps + 2 * work->rounds * network->latency_us;
    p.total_us = p.encode_us + p.wire_us + p.decode_us;
    return p;
}

double union_entries(double n, double entries, int ranks)
{
    /* 1 - (1 - d)^P, exact for small d. */
    return entries < n ? -n * expm1(ranks * log1p(-entries / n)) : n;
}

double faster_below_bps(const struct work *work, const struct work *dense,
                        const struct network *network)
{
    struct network fastest = *network;

    fastest.link_bps = (double)INFINITY;
    struct prediction a = predict(work, &fastest), b = predict(dense, &fastest);
    double saved = b.sent_bytes - a.sent_bytes, later_us = a.total_us - b.total_us;
    if (saved < 0)
        return later_us < 0 ? (double)NAN : 0;
    if (later_us < 0)
        return (double)INFINITY;
    return saved > 0 ? saved * 8e6 / later_us : 0;
}
