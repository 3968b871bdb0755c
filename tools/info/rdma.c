/* SPDX-License-Identifier: BSD-2-Clause
 *
 * RDMA devices: facts of libibverbs. What can be used, and which GID is, the verbs transport says.
 */
#include "tools/info/rdma.h"

#include <string.h>

#include "tools/info/report.h"

#ifdef HAVE_VERBS

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

#include "base/mem.h"
#include "tools/info/rdma_memory.h"
#include "transport/verbs/gids.h"
#include "transport/verbs/rate.h"
#include "transport/verbs/survey.h"

static unsigned mtu_bytes(enum ibv_mtu mtu) { return mtu > 0 && mtu < 6 ? 128u << mtu : 0; }

static const char *layer_name(const struct ibv_port_attr *a)
{
    return a->link_layer == IBV_LINK_LAYER_ETHERNET     ? "Ethernet"
           : a->link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
                                                        : "unknown";
}

static void take_gid(const struct rdma_device *d, struct rdma_port *p,
                     const struct ibv_gid_entry *e)
{
    static const char *const types[] = {"InfiniBand", "RoCE v1", "RoCE v2"};
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    const uint8_t *raw = e->gid.raw;
    struct rdma_gid *g = &p->gids[p->gid_count];

    p->gid_total++;
    if (p->gid_count == RDMA_GIDS)
        return;
    p->gid_count++;
    *g = (struct rdma_gid){.index = e->gid_index};
    snprintf(g->type, sizeof g->type, "%s", e->gid_type < 3 ? types[e->gid_type] : "unknown");
    inet_ntop(AF_INET6, raw, g->gid, sizeof g->gid);
    if (memcmp(raw, mapped, sizeof mapped) != 0)
        inet_ntop(AF_INET6, raw, g->address, sizeof g->address);
    else
        inet_ntop(AF_INET, raw + 12, g->address, sizeof g->address);
    file_line(g->interface, sizeof g->interface,
              "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%u", d->name, p->number,
              e->gid_index);
    if (!p->interface[0])
        memcpy(p->interface, g->interface, sizeof p->interface);
}

static void take_port(struct rdma_device *d, struct ibv_context *context, uint8_t number)
{
    struct rdma_port *p = &d->ports[d->port_count];
    struct ibv_gid_entry *all;
    struct ibv_port_attr a;
    size_t count;

    if (d->port_count == RDMA_PORTS)
        return;
    d->port_count++;
    *p = (struct rdma_port){.number = number};
    if (ibv_query_port(context, number, &a)) {
        snprintf(p->why_not, sizeof p->why_not, "it does not answer: %s", strerror(errno));
        return;
    }
    snprintf(p->state, sizeof p->state, "%s", ibv_port_state_str(a.state));
    snprintf(p->layer, sizeof p->layer, "%s", layer_name(&a));
    p->mtu_bytes = mtu_bytes(a.active_mtu);
    p->max_mtu_bytes = mtu_bytes(a.max_mtu);
    p->lid = a.lid;
    p->pkeys = a.pkey_tbl_len;
    p->speed_gbit = spr_verbs_gbit(&a);
    p->max_message_bytes = a.max_msg_sz;
    count = spr_verbs_gids(context, &all);
    for (size_t i = 0; i < count; i++)
        if (all[i].port_num == number)
            take_gid(d, p, &all[i]);
    spr_free(all);
}

static void take_limits(struct rdma_device *d, const struct ibv_device_attr *a)
{
    d->max_qp = (uint64_t)a->max_qp;
    d->max_qp_wr = (uint64_t)a->max_qp_wr;
    d->max_sge = (uint64_t)a->max_sge;
    d->max_cqe = (uint64_t)a->max_cqe;
    d->max_mr = (uint64_t)a->max_mr;
    d->max_mr_bytes = a->max_mr_size;
    snprintf(d->firmware, sizeof d->firmware, "%s", a->fw_ver);
}

static void take_names(struct rdma_device *d, struct ibv_device *device)
{
    uint64_t guid = be64toh(ibv_get_device_guid(device));
    char parent[32];

    snprintf(d->name, sizeof d->name, "%s", ibv_get_device_name(device));
    snprintf(d->file, sizeof d->file, "%s", device->dev_name);
    snprintf(d->node, sizeof d->node, "%s", ibv_node_type_str(device->node_type));
    snprintf(d->guid, sizeof d->guid, "%04x:%04x:%04x:%04x", (unsigned)(guid >> 48),
             (unsigned)(guid >> 32) & 0xffff, (unsigned)(guid >> 16) & 0xffff,
             (unsigned)guid & 0xffff);
    /* Soft devices hang on a network interface instead of a bus. */
    if (!file_link(d->driver, sizeof d->driver, "/sys/class/infiniband/%s/device/driver",
                   d->name) &&
        file_line(parent, sizeof parent, "/sys/class/infiniband/%s/parent", d->name))
        snprintf(d->driver, sizeof d->driver, "soft, on %.16s", parent);
}

static void take_device(struct info_rdma *r, struct ibv_device *device)
{
    struct rdma_device *d = &r->devices[r->device_count];
    struct ibv_context *context;
    struct ibv_device_attr_ex attr;

    if (r->device_count == RDMA_DEVICES)
        return;
    r->device_count++;
    *d = (struct rdma_device){.suits = device->transport_type == IBV_TRANSPORT_IB};
    r->suiting += d->suits;
    take_names(d, device);
    context = ibv_open_device(device);
    if (!context) {
        snprintf(d->why_not, sizeof d->why_not, "cannot be opened: %s", strerror(errno));
        return;
    }
    if (ibv_query_device_ex(context, NULL, &attr) == 0) {
        take_limits(d, &attr.orig_attr);
        rdma_memory(d, context, &attr);
        for (unsigned p = 1; p <= attr.orig_attr.phys_port_cnt; p++)
            take_port(d, context, (uint8_t)p);
    } else {
        snprintf(d->why_not, sizeof d->why_not, "does not answer: %s", strerror(errno));
    }
    (void)ibv_close_device(context);
}

/* What the transport thinks of them --------------------------------------------------------------
 */

static void take_candidate(void *ctx, const struct spr_verbs_candidate *c)
{
    struct info_rdma *r = ctx;

    for (int i = 0; i < r->device_count; i++) {
        struct rdma_device *d = &r->devices[i];
        if (strcmp(d->name, c->device))
            continue;
        if (!c->port && !d->why_not[0])
            snprintf(d->why_not, sizeof d->why_not, "%s", c->why);
        for (int p = 0; p < d->port_count; p++) {
            struct rdma_port *port = &d->ports[p];
            if (port->number != c->port)
                continue;
            if (c->gid < 0)
                snprintf(port->why_not, sizeof port->why_not, "%s", c->why);
            for (int g = 0; g < port->gid_count; g++) {
                struct rdma_gid *gid = &port->gids[g];
                if (c->gid < 0 || gid->index != (uint32_t)c->gid)
                    continue;
                gid->usable = c->usable;
                gid->chosen = c->chosen;
                snprintf(gid->why, sizeof gid->why, "%s", c->why);
            }
        }
    }
}

/* GIDs of a port that was passed over as a whole were not looked at. */
static void fill_in(struct info_rdma *r)
{
    for (int i = 0; i < r->device_count; i++)
        for (int p = 0; p < r->devices[i].port_count; p++) {
            struct rdma_port *port = &r->devices[i].ports[p];
            for (int g = 0; g < port->gid_count; g++)
                if (!port->gids[g].why[0])
                    snprintf(port->gids[g].why, sizeof port->gids[g].why, "not looked at");
        }
}

void probe_rdma(const struct spr_options *options, const struct spr_tcp_interface *interface,
                struct info_rdma *r)
{
    static const struct spr_tcp_interface none;
    struct spr_error error = {0};
    struct ibv_device **list;
    int n = 0;

    *r = (struct info_rdma){.built = true};
    list = ibv_get_device_list(&n);
    for (int i = 0; list && i < n; i++)
        take_device(r, list[i]);
    if (list)
        ibv_free_device_list(list);
    r->usable = spr_verbs_survey(options, interface ? interface : &none, take_candidate, r,
                                 r->chosen, sizeof r->chosen, &error) == SPR_OK;
    if (!r->usable)
        snprintf(r->chosen, sizeof r->chosen, "%.*s", (int)sizeof r->chosen - 1, error.text);
    if (!r->device_count)
        snprintf(r->why_none, sizeof r->why_none, "%s",
                 file_there("/sys/class/infiniband") && !file_there("/sys/class/infiniband_verbs")
                     ? "the kernel has RDMA devices, but not the module ib_uverbs"
                     : "this host has none, or its driver is not loaded");
    r->locked_bytes = spr_verbs_locked_bytes(options, 0);
    r->locked_per_peer = spr_verbs_locked_bytes(options, 1) - r->locked_bytes;
    fill_in(r);
}

#else

void probe_rdma(const struct spr_options *options, const struct spr_tcp_interface *interface,
                struct info_rdma *r)
{
    (void)options;
    (void)interface;
    *r = (struct info_rdma){0};
    snprintf(r->why_none, sizeof r->why_none, "built without libibverbs");
}

#endif
