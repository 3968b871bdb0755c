/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-guardian RANK: started by the library (transport/watch/guardian.h), not by people. Waits
 * for the end of the rank whose board it has, and says so on the rank's control connections when it
 * was no orderly one.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "transport/watch/board.h"
#include "transport/watch/guardian.h"

static int connections[SPR_GUARDIAN_MOST];
static int count;
static struct spr_frame last_words;

/* Has the rank died or left? Then *died says which. */
static bool has_ended(const struct spr_board *board, uint32_t value, bool *died)
{
    *died = value & FUTEX_OWNER_DIED;
    return *died || value == 0 || atomic_load(&board->state) == SPR_BOARD_LEFT;
}

/* Until the rank has sent them all and closes the socket, or has ended: one connection may never
 * come up, and a child that it forked keeps the socket open. */
static void take_connections(const struct spr_board *board)
{
    const struct timeval look = {.tv_usec = 20000};
    bool died;

    (void)setsockopt(SPR_GUARDIAN_SOCKET, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
    for (;;) {
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        struct iovec part = {.iov_base = &last_words, .iov_len = sizeof last_words};
        struct msghdr m = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
        ssize_t n = recvmsg(SPR_GUARDIAN_SOCKET, &m, MSG_CMSG_CLOEXEC);
        struct cmsghdr *h;

        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            if (has_ended(board, atomic_load(&board->slots[board->rank].word), &died))
                return;
            continue;
        }
        if (n != (ssize_t)sizeof last_words)
            return;
        h = CMSG_FIRSTHDR(&m);
        if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS &&
            count < SPR_GUARDIAN_MOST)
            memcpy(&connections[count++], CMSG_DATA(h), sizeof(int));
    }
}

static const struct spr_board *map_board(unsigned long rank)
{
    const struct spr_board *board;
    struct stat st;
    void *map;

    if (fstat(SPR_GUARDIAN_BOARD, &st) < 0 || (size_t)st.st_size < sizeof *board)
        return NULL;
    map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, SPR_GUARDIAN_BOARD, 0);
    board = map;
    if (map == MAP_FAILED || board->rank != rank || rank >= board->size ||
        (size_t)st.st_size < sizeof *board + board->size * sizeof board->slots[0])
        return NULL;
    return board;
}

/* True: it died; false: it left. */
static bool await_death(const struct spr_board *board)
{
    const _Atomic uint32_t *word = &board->slots[board->rank].word;

    for (;;) {
        uint32_t value = atomic_load(word);
        bool died;
        if (has_ended(board, value, &died))
            return died;
        (void)syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    const struct spr_board *board;
    pid_t child;

    if (argc != 2) {
        fprintf(stderr, "sparring-guardian is started by the library\n");
        return 2;
    }
    /* An orphan: nobody waits for it, and nobody has to. */
    child = fork();
    if (child)
        return child < 0;
    (void)syscall(SYS_close_range, SPR_GUARDIAN_SOCKET + 1, ~0u, 0);
    (void)signal(SIGTERM, SIG_IGN); /* it ends with its rank, and not before */
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    board = map_board(strtoul(argv[1], NULL, 10));
    if (!board)
        return 1;
    take_connections(board);
    close(SPR_GUARDIAN_SOCKET);
    if (await_death(board))
        for (int i = 0; i < count; i++)
            (void)send(connections[i], &last_words, sizeof last_words, MSG_NOSIGNAL | MSG_DONTWAIT);
    return 0;
}
