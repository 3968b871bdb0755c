/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Buckets that are part of a DMA-BUF. No device here takes one (soft-RoCE does not either), so
 * ibv_reg_dmabuf_mr() is this program's: one that registers what the descriptor stands for by a
 * mapping of its own, one that refuses, and the real one. Sums are right with each of them, and
 * over transports that know nothing of a DMA-BUF.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef HAVE_VERBS
#include <infiniband/verbs.h>
#endif

#include "tests/multi/job.h"

#define SECONDS 60
#define PAGE ((size_t)4096)
#define OFFSET (3 * PAGE)
#define BYTES ((size_t)2 << 20)
enum { RANKS = 2, COUNT = BYTES / sizeof(float) };

static enum { TAKES, REFUSES, REAL } kind;
static int asked;

#ifdef HAVE_VERBS
typedef struct ibv_mr *register_fn(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                   int fd, int access);

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access)
{
    register_fn *real;
    char *all;

    asked++;
    if (kind == REFUSES) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    if (kind == REAL) {
        *(void **)&real = dlsym(RTLD_NEXT, "ibv_reg_dmabuf_mr");
        return real(pd, offset, length, iova, fd, access);
    }
    all = mmap(NULL, offset + length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return all == MAP_FAILED ? NULL
                             : ibv_reg_mr_iova2(pd, all + offset, length, iova, (unsigned)access);
}
#endif

/* As a GPU's driver would give it. */
static float *map_bucket(int *fd)
{
    char *memory;

    *fd = memfd_create("dmabuf", MFD_CLOEXEC);
    RANK_CHECK(*fd >= 0 && ftruncate(*fd, (off_t)(OFFSET + BYTES)) == 0);
    memory = mmap(NULL, OFFSET + BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    RANK_CHECK(memory != MAP_FAILED);
    return (float *)(void *)(memory + OFFSET);
}

static int descriptors(void)
{
    int open = 0;

    for (int fd = 0; fd < 1024; fd++)
        open += fcntl(fd, F_GETFD) >= 0;
    return open;
}

static void sum(spr_comm *comm, float *bucket)
{
    int rank = spr_comm_rank(comm);

    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < COUNT; i++)
            bucket[i] = (float)((int)(i % 1000) + rank + step);
        RANK_CHECK(spr_allreduce(comm, bucket, bucket, COUNT, SPR_FP32, SPR_SUM, NULL) == SPR_OK);
        for (size_t i = 0; i < COUNT; i++)
            RANK_CHECK(bucket[i] == (float)(2 * (int)(i % 1000) + 1 + 2 * step));
    }
}

static void run_bucket(struct job *job, int rank, spr_comm *comm)
{
    int fd;
    float *bucket = map_bucket(&fd);
    bool over_verbs = !strcmp(spr_comm_transport(comm, !rank), "verbs");

    (void)job;
    int before = descriptors();

    asked = 0;
    RANK_CHECK(spr_mem_register_dmabuf(comm, bucket, BYTES, fd, OFFSET) == SPR_OK);
    RANK_CHECK(descriptors() == before); /* none is kept */
    RANK_CHECK(close(fd) == 0);
    RANK_CHECK((asked > 0) == over_verbs);
    sum(comm, bucket);
    RANK_CHECK(spr_mem_register(comm, bucket, BYTES) == SPR_ERR_INVALID); /* it is there */
    RANK_CHECK(spr_mem_deregister(comm, bucket) == SPR_OK);
    sum(comm, bucket);
}

static void run_everywhere(void) { job_on_all_transports(RANKS, run_bucket, NULL, SECONDS); }

static void a_bucket_of_a_dmabuf_is_registered_by_its_descriptor(void **state)
{
    (void)state;
    kind = TAKES;
    run_everywhere();
}

static void where_a_device_refuses_its_mapping_is_used(void **state)
{
    (void)state;
    kind = REFUSES;
    run_everywhere();
}

static void what_the_kernel_says_to_no_dmabuf_is_no_failure(void **state)
{
    (void)state;
    kind = REAL;
    run_everywhere();
}

static void run_wrong(struct job *job, int rank, spr_comm *comm)
{
    static float bucket[1024];

    (void)job;
    (void)rank;
    RANK_CHECK(spr_mem_register_dmabuf(comm, bucket, sizeof bucket, -1, 0) == SPR_ERR_INVALID);
    RANK_CHECK(strstr(spr_last_error(NULL), "-1 is no open descriptor"));
    RANK_CHECK(spr_mem_register_dmabuf(comm, NULL, sizeof bucket, 0, 0) == SPR_ERR_INVALID);
    RANK_CHECK(spr_mem_register_dmabuf(NULL, bucket, sizeof bucket, 0, 0) == SPR_ERR_INVALID);
    RANK_CHECK(spr_mem_deregister(comm, bucket) == SPR_ERR_INVALID);
}

static void wrong_arguments_are_refused(void **state)
{
    struct job job;

    (void)state;
    job_start(&job, 1, "auto", run_wrong, NULL);
    job_expect_success(&job, SECONDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_of_a_dmabuf_is_registered_by_its_descriptor),
        cmocka_unit_test(where_a_device_refuses_its_mapping_is_used),
        cmocka_unit_test(what_the_kernel_says_to_no_dmabuf_is_no_failure),
        cmocka_unit_test(wrong_arguments_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
