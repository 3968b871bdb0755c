/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Counters of a communicator, from one table (names, order and meaning of spr_stats).
 * Written under the communicator's lock.
 */
#ifndef SPR_BASE_COUNTERS_H
#define SPR_BASE_COUNTERS_H

#include <stdint.h>

#define SPR_COUNTER_TABLE(X)                                                                       \
    X(sent_bytes)                                                                                  \
    X(received_bytes)                                                                              \
    X(sent_frames)                                                                                 \
    X(received_frames)                                                                             \
    X(collectives)                                                                                 \
    X(failures)                                                                                    \
    X(fallbacks)                                                                                   \
    X(sleeps)                                                                                      \
    X(zerocopy_sends)                                                                              \
    X(copied_sends)                                                                                \
    X(select_ns)                                                                                   \
    X(encode_ns)                                                                                   \
    X(merge_ns)                                                                                    \
    X(decode_ns)                                                                                   \
    X(reduce_ns)                                                                                   \
    X(last_reduce_scatter_ns)                                                                      \
    X(last_allgather_ns)                                                                           \
    X(last_total_ns)                                                                               \
    X(last_union)                                                                                  \
    X(placed_sends)                                                                                \
    X(posted_chains)                                                                               \
    X(registrations)                                                                               \
    X(shared_windows)

struct spr_counters {
#define X(name) uint64_t name;
    SPR_COUNTER_TABLE(X)
#undef X
};

#endif
