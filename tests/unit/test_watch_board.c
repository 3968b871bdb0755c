/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The board of a rank: what peers may see of it, and what they may not take for it.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/watch/board.h"

enum { RANK = 3, SIZE = 5 };

static struct spr_board_own own;

static int create(void **state)
{
    struct spr_error error = {0};

    (void)state;
    return spr_board_create(&own, RANK, SIZE, &error);
}

static int destroy(void **state)
{
    (void)state;
    spr_board_destroy(&own);
    return 0;
}

static const struct spr_board *map(int fd, uint32_t rank, uint32_t size, uint8_t salt)
{
    uint8_t nonce[SPR_BOARD_NONCE];
    const char *why = NULL;
    const struct spr_board *board;

    memcpy(nonce, own.board->nonce, sizeof nonce);
    nonce[15] ^= salt;
    board = spr_board_map((uint32_t)getpid(), (uint32_t)fd, rank, size, nonce, &why);
    assert_true(board || why);
    return board;
}

static void a_peer_sees_what_the_owner_writes_and_cannot_write(void **state)
{
    const struct spr_board *board = map(own.fd, RANK, SIZE, 0);

    (void)state;
    assert_non_null(board);
    atomic_store(&own.board->beats, 17);
    atomic_store(&own.board->slots[4].verdict, SPR_VERDICT_EXPELLED);
    assert_int_equal(atomic_load(&board->beats), 17);
    assert_int_equal(atomic_load(&board->slots[4].verdict), SPR_VERDICT_EXPELLED);
    assert_int_not_equal(mprotect((void *)(uintptr_t)board, 4096, PROT_READ | PROT_WRITE), 0);
    assert_ptr_equal(mmap(NULL, own.bytes, PROT_WRITE, MAP_SHARED, own.fd, 0), MAP_FAILED);
    assert_int_not_equal(ftruncate(own.fd, 0), 0);
    spr_board_unmap(board, SIZE);
}

static void anothers_memory_is_not_taken_for_it(void **state)
{
    struct spr_error error = {0};
    struct spr_board_own other;
    int unsealed = memfd_create("sparring-watch", MFD_CLOEXEC),
        null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)state;
    assert_null(map(own.fd, RANK, SIZE, 1)); /* another nonce: a number that was used again */
    assert_null(map(own.fd, RANK + 1, SIZE, 0));
    assert_null(map(own.fd, RANK, SIZE + 1, 0));
    assert_int_equal(spr_board_create(&other, RANK, SIZE, &error), SPR_OK);
    assert_null(map(other.fd, RANK, SIZE, 0));
    /* The owner's bytes, but in memory that could shrink under the reader. */
    assert_int_equal(write(unsealed, own.board, own.bytes), own.bytes);
    assert_null(map(unsealed, RANK, SIZE, 0));
    assert_null(map(null, RANK, SIZE, 0));
    assert_null(map(1000000, RANK, SIZE, 0));
    spr_board_destroy(&other);
    close(unsealed);
    close(null);
}

static void held_words_name_their_thread_until_they_are_released(void **state)
{
    struct robust_list_head head;
    struct robust_list nodes[SIZE];
    struct robust_list_head *before = NULL;
    uint32_t mine = (uint32_t)syscall(SYS_gettid) | FUTEX_WAITERS;
    size_t bytes = 0;

    (void)state;
    syscall(SYS_get_robust_list, 0, &before, &bytes);
    spr_board_hold(own.board, &head, nodes);
    assert_int_equal(atomic_load(&own.board->state), SPR_BOARD_ALIVE);
    for (int r = 0; r < SIZE; r++)
        assert_int_equal(atomic_load(&own.board->slots[r].word), mine);
    spr_board_release(own.board, &head);
    assert_int_equal(atomic_load(&own.board->state), SPR_BOARD_LEFT);
    for (int r = 0; r < SIZE; r++)
        assert_int_equal(atomic_load(&own.board->slots[r].word), 0);
    syscall(SYS_set_robust_list, before, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_peer_sees_what_the_owner_writes_and_cannot_write, create,
                                        destroy),
        cmocka_unit_test_setup_teardown(anothers_memory_is_not_taken_for_it, create, destroy),
        cmocka_unit_test_setup_teardown(held_words_name_their_thread_until_they_are_released,
                                        create, destroy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
