/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Board: a small piece of shared memory in which a rank shows its peers on the same host that it
 * lives. Only its owner can write it (a sealed memfd); the peers map it read-only.
 *
 *      0   magic, version, rank, size, nonce
 *     64   state: starting, alive, left | beats: one more with each heartbeat
 *    128   progress: the operation that was posted last << 32 | one more with each thing that the
 *          data path does
 *    192   slots, one per rank of the job:
 *            word      a robust futex, held by the owner's watch thread. The kernel marks it with
 *                      FUTEX_OWNER_DIED and wakes its waiter when that thread ends, before it takes
 *                      down the memory of the process. It wakes one waiter per word, so each peer
 *                      has a word of its own to wait on.
 *            verdict   the owner has expelled that rank
 *
 * A peer finds the memfd as /proc/<thread>/fd/<descriptor> and knows it by its nonce; thread,
 * descriptor and nonce come over the authenticated bootstrap (struct spr_watch_card).
 */
#ifndef SPR_TRANSPORT_WATCH_BOARD_H
#define SPR_TRANSPORT_WATCH_BOARD_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/error.h"
#include "base/util.h"

#define SPR_BOARD_MAGIC 0x44425053u /* "SPBD" */
#define SPR_BOARD_VERSION 1u
#define SPR_BOARD_NONCE 16

enum spr_board_state { SPR_BOARD_STARTING, SPR_BOARD_ALIVE, SPR_BOARD_LEFT };
enum { SPR_VERDICT_NONE, SPR_VERDICT_EXPELLED };

/* As long as a pointer: the list that the kernel walks has the same stride in private memory. */
struct spr_board_slot {
    _Atomic uint32_t word;
    _Atomic uint32_t verdict;
};
_Static_assert(sizeof(struct spr_board_slot) == sizeof(struct robust_list), "one stride");

struct spr_board {
    uint32_t magic, version, rank, size;
    uint8_t nonce[SPR_BOARD_NONCE];
    _Alignas(SPR_CACHE_LINE) _Atomic uint32_t state;
    _Atomic uint32_t unused;
    _Atomic uint64_t beats;
    _Alignas(SPR_CACHE_LINE) _Atomic uint64_t progress;
    _Alignas(SPR_CACHE_LINE) struct spr_board_slot slots[];
};
_Static_assert(sizeof(struct spr_board) == 192, "board layout");

struct spr_board_own {
    int fd; /* -1 = none */
    size_t bytes;
    struct spr_board *board;
};

/* Create, map and seal. SYSTEM, NOMEM, UNSUPPORTED. */
spr_status spr_board_create(struct spr_board_own *own, uint32_t rank, uint32_t size,
                            struct spr_error *error);
void spr_board_destroy(struct spr_board_own *own);

/* Map the board of rank `rank`, read-only. NULL: *why is a static text. */
const struct spr_board *spr_board_map(uint32_t thread, uint32_t fd, uint32_t rank, uint32_t size,
                                      const uint8_t nonce[SPR_BOARD_NONCE], const char **why);
void spr_board_unmap(const struct spr_board *board, uint32_t size);

/* Hold all words of the board from the calling thread, which must not use robust mutexes: its list
 * of them is replaced. `nodes` has one entry per rank and lives, like *head, until the release. */
void spr_board_hold(struct spr_board *board, struct robust_list_head *head,
                    struct robust_list *nodes);
/* From the same thread: let them go in order, so that nobody takes its end for a death. */
void spr_board_release(struct spr_board *board, struct robust_list_head *head);

#endif
