/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The memory that a peer hands over (transport/shm/region.c): a file descriptor that may be
 * anything. Input: mode (bits 0 to 2: seals; bit 3: right length), pages, the header's bytes, or
 * what is changed in a right one.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "tests/fuzz/fuzz.h"
#include "transport/shm/region.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { RANK = 1, SIZE = 2, EPOCH = 7 };

static struct spr_shm_header right_header(void)
{
    struct spr_shm_header h;
    struct spr_shm_layout l;

    memset(&h, 0, sizeof h);
    FUZZ_CHECK(spr_shm_layout_set(&l, SIZE, 1));
    h.magic = SPR_SHM_MAGIC;
    h.version = SPR_SHM_VERSION;
    h.epoch = EPOCH;
    h.rank = RANK;
    h.size = SIZE;
    h.large_shared = 1;
    h.bytes = l.bytes;
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int seals[3] = {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE};
    struct fuzz_in in = {data, size};
    struct spr_shm_header h = right_header(), before = h;
    uint8_t mode = fuzz_u8(&in), pages = fuzz_u8(&in);
    struct spr_shm_view view = {NULL, {0}};
    const char *why = NULL;
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING), set = 0;

    while (in.left >= 2) {
        size_t at = fuzz_u8(&in) % offsetof(struct spr_shm_header, sleeping);
        ((uint8_t *)&h)[at] ^= fuzz_u8(&in);
    }
    for (int i = 0; i < 3; i++)
        set |= mode >> i & 1 ? seals[i] : 0;
    off_t bytes = mode & 8 ? (off_t)h.bytes : (off_t)pages * 512;
    if (bytes < 0 || bytes > (off_t)1 << 30)
        bytes = 4096;
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, bytes) == 0);
    if (bytes >= (off_t)sizeof h)
        FUZZ_CHECK(pwrite(fd, &h, sizeof h, 0) == (ssize_t)sizeof h);
    FUZZ_CHECK(fcntl(fd, F_ADD_SEALS, set) == 0);
    spr_status status = spr_shm_view_map(&view, fd, RANK, SIZE, EPOCH, &why);
    if (status != SPR_OK) {
        FUZZ_CHECK((status == SPR_ERR_PROTO || status == SPR_ERR_SYSTEM) && why && *why);
        FUZZ_CHECK(!view.base);
    } else {
        FUZZ_CHECK((mode & 7) == 7 && h.magic == before.magic && h.size == SIZE && h.rank == RANK);
        FUZZ_CHECK((off_t)view.layout.bytes == bytes);
        /* The last byte of the last slot is there. */
        uint32_t last = spr_shm_slot_count(&view.layout) - 1;
        FUZZ_CHECK(spr_shm_slot_offset(&view.layout, last) +
                       spr_shm_slot_bytes(&view.layout, last) <=
                   view.layout.bytes);
        FUZZ_CHECK(view.base[view.layout.bytes - 1] == 0);
        spr_shm_view_unmap(&view);
    }
    close(fd);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct fuzz_script seeds[] = {
        {"right", {15, 0}, 2},
        {"not_sealed", {11, 0}, 2},
        {"short", {7, 8}, 2},
        {"empty", {7, 0}, 2},
        {"other_rank", {15, 0, 12, 3}, 4},
        {"other_version", {15, 0, 4, 2}, 4},
        {"more_slots", {15, 0, 20, 3}, 4},
        {"too_many_slots", {15, 0, 23, 255}, 4},
        {"other_length", {15, 0, 25, 16}, 4},
    };

    fuzz_emit_scripts(seeds, SPR_ARRAY_LEN(seeds));
}
