/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Shared-memory transport: a rank that writes nonsense, into its own memory since it can write no
 * other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/multi/shm_node.h"
#include "transport/shm/private.h"

static struct node nodes[2];
static uint64_t seed;

static void open_mesh(int size)
{
    for (int i = 0; i < size; i++)
        node_open(&nodes[i], i, size, seed);
    node_mesh(nodes, size);
}

static void close_mesh(int size)
{
    for (int i = 0; i < size; i++)
        node_close(&nodes[i]);
}

static bool rank_1_is_down(void *ctx)
{
    (void)ctx;
    return nodes[1].peers[0].down;
}

static void nobody_can_write_or_resize_the_memory_of_a_rank(void **state)
{
    struct spr_shm *t;
    int fd;

    (void)state;
    open_mesh(2);
    t = spr_shm_of(nodes[0].t);
    fd = t->own.fd;
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_int_equal(ftruncate(fd, (off_t)t->own.layout.bytes + 4096), -1);
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(mprotect((void *)(uintptr_t)spr_shm_of(nodes[1].t)->by_rank[0]->view.base,
                              4096, PROT_READ | PROT_WRITE),
                     -1);
    close_mesh(2);
}

static struct spr_shm_entry *next_entry(struct spr_shm_link *link)
{
    return &link->out->ring[link->published % SPR_SHM_RING];
}

static void publish_raw(struct spr_shm_link *link, struct spr_frame f, uint32_t slot)
{
    struct spr_shm_entry *e = next_entry(link);

    memcpy((void *)e->header, &f, sizeof(f));
    atomic_store(&e->slot, slot);
    atomic_store(&e->turn, ++link->published);
}

static struct spr_frame frame_of(uint32_t bytes)
{
    struct spr_frame f = {.type = SPR_FRAME_DATA, .epoch = 7, .bytes = bytes};

    spr_frame_seal(&f);
    return f;
}

static void random_header(struct spr_shm_link *link)
{
    struct spr_frame f;

    for (size_t i = 0; i < sizeof(f); i++)
        ((unsigned char *)&f)[i] = (unsigned char)spr_rng_next(&nodes[0].rng);
    publish_raw(link, f, 0);
}
static void damaged_header(struct spr_shm_link *link)
{
    struct spr_frame f = frame_of(0);

    f.arg ^= 1;
    publish_raw(link, f, SPR_SHM_NO_SLOT);
}
static void slot_out_of_range(struct spr_shm_link *link)
{
    publish_raw(link, frame_of(100), spr_shm_slot_count(&spr_shm_of_link(link)->own.layout));
}
static void slot_far_out_of_range(struct spr_shm_link *link)
{
    publish_raw(link, frame_of(100), UINT32_MAX - 1);
}
static void longer_than_its_slot(struct spr_shm_link *link)
{
    publish_raw(link, frame_of(SPR_SHM_SMALL_BYTES + 1), 0);
}
static void longer_than_a_descriptor(struct spr_shm_link *link)
{
    publish_raw(link, frame_of(SPR_SHM_INLINE + 1), SPR_SHM_NO_SLOT);
}
static void longer_than_any_slot(struct spr_shm_link *link)
{
    publish_raw(link, frame_of(UINT32_MAX),
                spr_shm_slot_count(&spr_shm_of_link(link)->own.layout) - 1);
}
static void consumed_runs_ahead(struct spr_shm_link *link)
{
    atomic_store(&link->out->consumed, link->consumed + 1000);
}
static void consumed_runs_back(struct spr_shm_link *link)
{
    atomic_store(&link->out->consumed, link->consumed - 1);
}
static void releases_what_it_does_not_hold(struct spr_shm_link *link)
{
    atomic_store(&link->out->released, link->released + 1);
}
static void releases_a_slot_of_nobody(struct spr_shm_link *link)
{
    atomic_store(&link->out->releases[link->released % SPR_SHM_RELEASES], 77777);
    atomic_store(&link->out->released, ++link->released);
}
static void writes_on_the_socket(struct spr_shm_link *link)
{
    assert_int_equal(send(link->socket, "hello", 5, MSG_NOSIGNAL), 5);
}

static bool rank_1_is_down_or_sends(void *ctx)
{
    (void)ctx;
    if (!nodes[1].peers[0].down && nodes[1].peers[0].posted < 40)
        node_send_next(&nodes[1], 0); /* so that it looks at acknowledgements */
    return nodes[1].peers[0].down;
}

static void nonsense_takes_the_link_down(void **state)
{
    static const struct {
        const char *what;
        void (*write)(struct spr_shm_link *link);
        spr_status status;
    } cases[] = {
        {"random header", random_header, SPR_ERR_PROTO},
        {"damaged header", damaged_header, SPR_ERR_CORRUPT},
        {"slot out of range", slot_out_of_range, SPR_ERR_PROTO},
        {"slot far out of range", slot_far_out_of_range, SPR_ERR_PROTO},
        {"longer than its slot", longer_than_its_slot, SPR_ERR_PROTO},
        {"longer than a descriptor", longer_than_a_descriptor, SPR_ERR_PROTO},
        {"longer than any slot", longer_than_any_slot, SPR_ERR_PROTO},
        {"consumed runs ahead", consumed_runs_ahead, SPR_ERR_PROTO},
        {"consumed runs back", consumed_runs_back, SPR_ERR_PROTO},
        {"releases what it does not hold", releases_what_it_does_not_hold, SPR_ERR_PROTO},
        {"releases a slot of nobody", releases_a_slot_of_nobody, SPR_ERR_PROTO},
        {"writes on the socket", writes_on_the_socket, SPR_ERR_PROTO},
    };

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        bool acknowledges = strstr(cases[i].what, "consumed") || strstr(cases[i].what, "release");

        open_mesh(2);
        cases[i].write(spr_shm_of(nodes[0].t)->by_rank[1]);
        assert_true(node_drive_until(
            &nodes[1], 1, acknowledges ? rank_1_is_down_or_sends : rank_1_is_down, NULL));
        if (nodes[1].peers[0].why != cases[i].status)
            fail_msg("%s: %d, %s", cases[i].what, nodes[1].peers[0].why, nodes[1].peers[0].text);
        assert_int_equal(nodes[1].peers[0].received, 0);
        close_mesh(2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(nobody_can_write_or_resize_the_memory_of_a_rank),
        NODE_TEST(nonsense_takes_the_link_down),
    };

    seed = spr_rng_test_seed();
    print_message("SPARRING_SEED=%llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests_name("transport/shm hostile", tests, NULL, NULL);
}
