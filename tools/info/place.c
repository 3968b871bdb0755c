/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which CPUs and which memory a device is near to. By hwloc, which sees devices behind bridges and
 * in containers; what it does not see, or without it, by sysfs.
 */
#include <string.h>

#include "tools/info/report.h"

#ifdef HAVE_HWLOC
#include <hwloc.h>
#endif

static struct info_place *add(struct info_places *p, const char *name, const char *kind)
{
    struct info_place *place = &p->places[p->place_count];

    for (int i = 0; i < p->place_count; i++)
        if (!strcmp(p->places[i].name, name))
            return NULL;
    if (p->place_count == INFO_PLACES)
        return NULL;
    p->place_count++;
    *place = (struct info_place){.node = -1};
    snprintf(place->name, sizeof place->name, "%s", name);
    snprintf(place->kind, sizeof place->kind, "%s", kind);
    return place;
}

static void by_sysfs(struct info_place *place)
{
    const char *class = strcmp(place->kind, "rdma") ? "net" : "infiniband";
    uint64_t node = file_number("/sys/class/%s/%s/device/numa_node", class, place->name);

    place->node = node == INFO_NONE ? -1 : (int)node;
    file_line(place->cpus, sizeof place->cpus, "/sys/class/%s/%s/device/local_cpulist", class,
              place->name);
}

/* A soft device is where its interface is. */
static void by_interface(struct info_places *p, const char *name, const char *interface)
{
    struct info_place *device = NULL, *at = NULL;

    for (int i = 0; i < p->place_count; i++) {
        if (!strcmp(p->places[i].name, name))
            device = &p->places[i];
        if (!strcmp(p->places[i].name, interface))
            at = &p->places[i];
    }
    if (!device || !at || device->node >= 0)
        return;
    device->node = at->node;
    memcpy(device->cpus, at->cpus, sizeof device->cpus);
}

#ifdef HAVE_HWLOC

static void nodes_by_hwloc(hwloc_topology_t t, struct info_places *p)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, o));) {
        struct info_node *n = &p->nodes[p->node_count];
        if (p->node_count == INFO_NODES)
            return;
        p->node_count++;
        n->number = o->os_index;
        n->memory_bytes = o->attr->numanode.local_memory;
        hwloc_bitmap_list_snprintf(n->cpus, sizeof n->cpus, o->cpuset);
    }
}

static void place_by_hwloc(hwloc_topology_t t, struct info_place *place)
{
    hwloc_obj_t o = NULL;

    while ((o = hwloc_get_next_osdev(t, o)) && strcmp(o->name, place->name))
        ;
    o = o ? hwloc_get_non_io_ancestor_obj(t, o) : NULL;
    if (!o || !o->nodeset)
        return;
    /* Near to several nodes is near to none. */
    if (hwloc_bitmap_weight(o->nodeset) == 1)
        place->node = hwloc_bitmap_first(o->nodeset);
    hwloc_bitmap_list_snprintf(place->cpus, sizeof place->cpus, o->cpuset);
}

static bool open_topology(hwloc_topology_t *t)
{
    static const char *const unwanted[] = {"pci",  "opencl", "gl",       "cuda",
                                           "nvml", "rsmi",   "levelzero"};

    if (hwloc_topology_init(t))
        return false;
    /* They start the drivers of GPUs, or leak; /sys is enough for the rest of hwloc. */
    for (size_t i = 0; i < SPR_ARRAY_LEN(unwanted); i++)
        (void)hwloc_topology_set_components(*t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            unwanted[i]);
    hwloc_topology_set_io_types_filter(*t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(*t) == 0)
        return true;
    hwloc_topology_destroy(*t);
    return false;
}

static bool probe_by_hwloc(struct info_places *p)
{
    unsigned version = hwloc_get_api_version();
    hwloc_topology_t t;

    if (!open_topology(&t))
        return false;
    snprintf(p->source, sizeof p->source, "hwloc %u.%u", version >> 16, version >> 8 & 255);
    nodes_by_hwloc(t, p);
    for (int i = 0; i < p->place_count; i++)
        place_by_hwloc(t, &p->places[i]);
    hwloc_topology_destroy(t);
    return true;
}

#else

static bool probe_by_hwloc(struct info_places *p)
{
    (void)p;
    return false;
}

#endif

static void nodes_by_sysfs(struct info_places *p)
{
    snprintf(p->source, sizeof p->source, "sysfs");
    for (unsigned n = 0; n < INFO_NODES; n++) {
        struct info_node *node = &p->nodes[p->node_count];
        if (!file_line(node->cpus, sizeof node->cpus, "/sys/devices/system/node/node%u/cpulist", n))
            continue;
        node->number = n;
        node->memory_bytes = INFO_NONE;
        p->node_count++;
    }
}

void probe_places(struct report *r)
{
    struct info_places *p = &r->places;

    *p = (struct info_places){0};
    for (int i = 0; i < r->rdma.device_count; i++)
        (void)add(p, r->rdma.devices[i].name, "rdma");
    for (int i = 0; i < r->network.interface_count; i++)
        if (!r->network.interfaces[i].at.address.loopback)
            (void)add(p, r->network.interfaces[i].at.name, "net");
    if (!probe_by_hwloc(p))
        nodes_by_sysfs(p);
    for (int i = 0; i < p->place_count; i++)
        if (p->places[i].node < 0 && !p->places[i].cpus[0])
            by_sysfs(&p->places[i]);
    for (int i = 0; i < r->rdma.device_count; i++)
        if (r->rdma.devices[i].port_count)
            by_interface(p, r->rdma.devices[i].name, r->rdma.devices[i].ports[0].interface);
}
