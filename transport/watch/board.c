/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/watch/board.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE)
#define NAME "sparring-watch"
/* The kernel follows a list no further (ROBUST_LIST_LIMIT); the peers beyond see heartbeats. */
#define MOST_WORDS 2047u

static size_t board_bytes(uint32_t size)
{
    return sizeof(struct spr_board) + size * sizeof(struct spr_board_slot);
}

spr_status spr_board_create(struct spr_board_own *own, uint32_t rank, uint32_t size,
                            struct spr_error *error)
{
    uint8_t nonce[SPR_BOARD_NONCE];
    spr_status status;
    void *base;

    *own = (struct spr_board_own){.fd = -1, .bytes = board_bytes(size)};
    if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "getrandom");
    own->fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (own->fd < 0)
        return spr_error_errno(error, errno == ENOSYS ? SPR_ERR_UNSUPPORTED : SPR_ERR_SYSTEM, -1,
                               errno, "memfd_create");
    if (ftruncate(own->fd, (off_t)own->bytes) < 0) {
        status = spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "size a memfd");
        goto undo;
    }
    base = mmap(NULL, own->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own->fd, 0);
    if (base == MAP_FAILED) {
        status = spr_error_errno(error, SPR_ERR_NOMEM, -1, errno, "map a memfd");
        goto undo;
    }
    own->board = base;
    /* Sealed after the mapping: it is the last one that can write. */
    if (fcntl(own->fd, F_ADD_SEALS, SEALS) < 0) {
        status = spr_error_errno(error, SPR_ERR_UNSUPPORTED, -1, errno, "seal a memfd");
        goto undo;
    }
    own->board->magic = SPR_BOARD_MAGIC;
    own->board->version = SPR_BOARD_VERSION;
    own->board->rank = rank;
    own->board->size = size;
    memcpy(own->board->nonce, nonce, sizeof nonce);
    return SPR_OK;
undo:
    spr_board_destroy(own);
    return status;
}

void spr_board_destroy(struct spr_board_own *own)
{
    if (own->board)
        munmap(own->board, own->bytes);
    if (own->fd >= 0)
        close(own->fd);
    own->board = NULL;
    own->fd = -1;
}

/* By its name first: opening whatever a reused number stands for might have effects. */
static int open_board(uint32_t thread, uint32_t fd)
{
    char path[64], name[64] = "";
    static const char want[] = "/memfd:" NAME;

    snprintf(path, sizeof path, "/proc/%u/fd/%u", thread, fd);
    if (readlink(path, name, sizeof name - 1) < 0)
        return -1;
    if (strncmp(name, want, sizeof want - 1) != 0) {
        errno = ENOENT;
        return -1;
    }
    return open(path, O_RDONLY | O_CLOEXEC);
}

const struct spr_board *spr_board_map(uint32_t thread, uint32_t fd, uint32_t rank, uint32_t size,
                                      const uint8_t nonce[SPR_BOARD_NONCE], const char **why)
{
    struct spr_board head;
    struct stat st;
    void *base = MAP_FAILED;
    int board = open_board(thread, fd), seals;

    if (board < 0) {
        *why = errno == EACCES || errno == EPERM ? "its descriptors are not ours to open"
                                                 : "its descriptors are not in /proc here";
        return NULL;
    }
    seals = fcntl(board, F_GET_SEALS);
    /* Read, not mapped: the constants are copied before they are checked. */
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(board, &st) < 0 ||
        st.st_size != (off_t)board_bytes(size) ||
        pread(board, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        head.magic != SPR_BOARD_MAGIC || head.version != SPR_BOARD_VERSION || head.rank != rank ||
        head.size != size || memcmp(head.nonce, nonce, SPR_BOARD_NONCE) != 0)
        *why = "what is there is another's memory";
    else if ((base = mmap(NULL, board_bytes(size), PROT_READ, MAP_SHARED, board, 0)) == MAP_FAILED)
        *why = "its memory cannot be mapped";
    close(board);
    return base == MAP_FAILED ? NULL : base;
}

void spr_board_unmap(const struct spr_board *board, uint32_t size)
{
    if (board)
        munmap((void *)(uintptr_t)board, board_bytes(size));
}

void spr_board_hold(struct spr_board *board, struct robust_list_head *head,
                    struct robust_list *nodes)
{
    uint32_t words = board->size < MOST_WORDS ? board->size : MOST_WORDS;
    uint32_t mine = (uint32_t)syscall(SYS_gettid) | FUTEX_WAITERS; /* so that the kernel wakes */

    head->futex_offset = (long)((uintptr_t)board->slots - (uintptr_t)nodes);
    head->list_op_pending = NULL;
    for (uint32_t i = 0; i < words; i++) {
        /* The last one is this rank's own, if that is beyond them: its guardian sleeps on it. */
        uint32_t slot = i + 1 == words && board->rank > i ? board->rank : i;
        uint32_t next = i + 2 == words && board->rank > i + 1 ? board->rank : i + 1;

        nodes[slot].next = i + 1 < words ? &nodes[next] : &head->list;
        atomic_store_explicit(&board->slots[slot].word, mine, memory_order_relaxed);
    }
    head->list.next = &nodes[0];
    (void)syscall(SYS_set_robust_list, head, sizeof *head);
    atomic_store_explicit(&board->state, SPR_BOARD_ALIVE, memory_order_release);
}

void spr_board_release(struct spr_board *board, struct robust_list_head *head)
{
    atomic_store_explicit(&board->state, SPR_BOARD_LEFT, memory_order_release);
    head->list.next = &head->list;
    for (uint32_t i = 0; i < board->size; i++) {
        atomic_store_explicit(&board->slots[i].word, 0, memory_order_release);
        (void)syscall(SYS_futex, &board->slots[i].word, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}
