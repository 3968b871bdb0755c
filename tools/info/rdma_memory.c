/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a device does with memory, found out by trying.
 */
#include "tools/info/rdma_memory.h"

#ifdef HAVE_VERBS

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/util.h"

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
#define TEST_BYTES ((size_t)2 << 20) /* about what a link needs */
#define INLINE_MOST 1024u

static void try_registration(struct rdma_device *d, struct ibv_pd *pd, void *memory)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, TEST_BYTES, ACCESS);

    if (mr)
        snprintf(d->registered, sizeof d->registered, "2 MiB were registered");
    else
        snprintf(d->registered, sizeof d->registered, "no: %s%s", strerror(errno),
                 errno == ENOMEM ? " (the memlock limit)" : "");
    if (mr)
        (void)ibv_dereg_mr(mr);
}

static void try_on_demand(struct rdma_device *d, struct ibv_pd *pd, void *memory,
                          const struct ibv_odp_caps *caps)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } names[] = {{IBV_ODP_SUPPORT_SEND, "send"},
                 {IBV_ODP_SUPPORT_RECV, "receive"},
                 {IBV_ODP_SUPPORT_WRITE, "write"},
                 {IBV_ODP_SUPPORT_READ, "read"},
                 {IBV_ODP_SUPPORT_ATOMIC, "atomics"}};
    struct ibv_mr *mr;

    if (!(caps->general_caps & IBV_ODP_SUPPORT)) {
        snprintf(d->on_demand, sizeof d->on_demand, "no");
        return;
    }
    mr = ibv_reg_mr(pd, memory, TEST_BYTES, ACCESS | IBV_ACCESS_ON_DEMAND);
    snprintf(d->on_demand, sizeof d->on_demand, mr ? "yes:" : "refused (%s):", strerror(errno));
    for (size_t i = 0; i < SPR_ARRAY_LEN(names); i++)
        if (caps->per_transport_caps.rc_odp_caps & names[i].bit)
            snprintf(d->on_demand + strlen(d->on_demand),
                     sizeof d->on_demand - strlen(d->on_demand), " %s", names[i].name);
    if (mr)
        (void)ibv_dereg_mr(mr);
}

/* No such descriptor: the kernel looked for one, so driver and kernel know what to do with it. */
static void try_dmabuf(struct rdma_device *d, struct ibv_pd *pd)
{
    struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, ACCESS);

    if (mr || errno == EBADF)
        snprintf(d->dmabuf, sizeof d->dmabuf, "yes");
    else
        snprintf(d->dmabuf, sizeof d->dmabuf, "no: %s", strerror(errno));
    if (mr)
        (void)ibv_dereg_mr(mr);
}

static bool inline_works(struct ibv_pd *pd, struct ibv_cq *cq, uint32_t bytes)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp;

    attr.cap.max_inline_data = bytes;
    qp = ibv_create_qp(pd, &attr);
    if (qp)
        (void)ibv_destroy_qp(qp);
    return qp != NULL;
}

static void try_inline(struct rdma_device *d, struct ibv_pd *pd, struct ibv_context *context)
{
    struct ibv_cq *cq = ibv_create_cq(context, 2, NULL, NULL, 0);
    uint32_t works = 0;

    for (uint32_t step = INLINE_MOST; cq && step >= 4; step /= 2)
        if (works + step <= INLINE_MOST && inline_works(pd, cq, works + step))
            works += step;
    d->max_inline_bytes = works;
    if (cq)
        (void)ibv_destroy_cq(cq);
}

void rdma_memory(struct rdma_device *d, struct ibv_context *context,
                 const struct ibv_device_attr_ex *attr)
{
    struct ibv_pd *pd = ibv_alloc_pd(context);
    void *memory = spr_pages_alloc(TEST_BYTES);

    if (pd && memory) {
        try_registration(d, pd, memory);
        try_on_demand(d, pd, memory, &attr->odp_caps);
        try_dmabuf(d, pd);
        try_inline(d, pd, context);
    } else {
        snprintf(d->why_not, sizeof d->why_not, "no protection domain: %s", strerror(errno));
    }
    spr_pages_free(memory, TEST_BYTES);
    if (pd)
        (void)ibv_dealloc_pd(pd);
}

#endif
