/* SPDX-License-Identifier: BSD-2-Clause
 *
 * RDMA devices as sparring-info shows them.
 */
#ifndef SPR_TOOLS_INFO_RDMA_H
#define SPR_TOOLS_INFO_RDMA_H

#include <stdbool.h>
#include <stdint.h>

enum { RDMA_DEVICES = 16, RDMA_PORTS = 4, RDMA_GIDS = 32, RDMA_TEXT = 200 };

struct rdma_gid {
    uint32_t index;
    char type[16];             /* "RoCE v2", "RoCE v1", "InfiniBand" */
    char gid[48], address[48]; /* address: IPv4 of a mapped GID, else the GID */
    char interface[16];
    bool usable, chosen;
    char why[RDMA_TEXT];
};

struct rdma_port {
    unsigned number;
    char state[24], layer[16];
    unsigned mtu_bytes, max_mtu_bytes, lid, pkeys;
    double speed_gbit; /* 0: not known */
    uint64_t max_message_bytes;
    char interface[16];
    char why_not[RDMA_TEXT]; /* "": usable */
    struct rdma_gid gids[RDMA_GIDS];
    int gid_count, gid_total; /* shown, valid */
};

struct rdma_device {
    bool suits; /* InfiniBand or RoCE, which the verbs transport needs */
    char name[64], node[32], firmware[64], file[64], guid[24], driver[32];
    char why_not[RDMA_TEXT]; /* cannot be opened, or is no verbs device */
    uint64_t max_qp, max_qp_wr, max_sge, max_cqe, max_mr, max_mr_bytes;
    unsigned max_inline_bytes;
    char on_demand[96];         /* what can be paged on demand: "no", or a list */
    char dmabuf[96];            /* "yes", or "no: reason" */
    char registered[RDMA_TEXT]; /* a region of test_bytes could be registered: "yes", or why not */
    struct rdma_port ports[RDMA_PORTS];
    int port_count;
};

struct info_rdma {
    bool built;               /* with libibverbs */
    char why_none[RDMA_TEXT]; /* no device */
    struct rdma_device devices[RDMA_DEVICES];
    int device_count, suiting;
    char chosen[RDMA_TEXT]; /* what the library would use, or why it cannot */
    bool usable;
    uint64_t locked_bytes, locked_per_peer; /* registered before any bucket (survey.h) */
};

struct spr_options;
struct spr_tcp_interface;
/* `interface`: the one that TCP uses, whose GID is preferred. */
void probe_rdma(const struct spr_options *options, const struct spr_tcp_interface *interface,
                struct info_rdma *r);

#endif
