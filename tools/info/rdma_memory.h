/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SPR_TOOLS_INFO_RDMA_MEMORY_H
#define SPR_TOOLS_INFO_RDMA_MEMORY_H

#include "tools/info/rdma.h"

struct ibv_context;
struct ibv_device_attr_ex;

/* Registration, on-demand paging, dmabuf, inline data: each is tried. */
void rdma_memory(struct rdma_device *d, struct ibv_context *context,
                 const struct ibv_device_attr_ex *attr);

#endif
