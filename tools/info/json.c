/* SPDX-License-Identifier: BSD-2-Clause
 *
 * JSON, schema 1, as sparring-info(1) describes it. What is unknown or unlimited is null.
 */
#include <errno.h>
#include <string.h>

#include "tools/info/report.h"

#ifdef HAVE_JANSSON

#include "tools/json.h"

static json_t *whole(uint64_t value)
{
    return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *text(const char *value) { return json_text(value && value[0] ? value : NULL); }

/* [function(0), function(1), ...] */
static json_t *list(size_t count, json_t *(*function)(const void *of, size_t i), const void *of)
{
    json_t *all = json_array();

    for (size_t i = 0; all && i < count; i++)
        if (json_array_append_new(all, function(of, i))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

static json_t *limit(const struct info_limit *l)
{
    return OBJECT({"soft", whole(l->soft)}, {"hard", whole(l->hard)});
}

static json_t *pool(const void *of, size_t i)
{
    const struct info_pool *p = &((const struct info_system *)of)->pools[i];

    return OBJECT({"page_bytes", whole(p->page_bytes)}, {"total", whole(p->total)},
                  {"free", whole(p->free)});
}

static json_t *module(const void *of, size_t i)
{
    const struct info_module *m = &((const struct info_system *)of)->modules[i];

    return OBJECT({"name", text(m->name)}, {"purpose", text(m->purpose)},
                  {"loaded", json_boolean(m->state == MODULE_THERE)});
}

static json_t *system_of(const struct info_system *s)
{
    return OBJECT(
        {"host", text(s->host)}, {"kernel", text(s->kernel)}, {"machine", text(s->machine)},
        {"cpus_online", json_integer(s->cpus_online)},
        {"cpus_usable", json_integer(s->cpus_usable)},
        {"cpu_quota", s->cpu_quota > 0 ? json_real(s->cpu_quota) : json_null()},
        {"simd", text(s->simd)}, {"memory_bytes", whole(s->memory_bytes)},
        {"memlock_bytes", limit(&s->memlock)}, {"open_files", limit(&s->files)},
        {"ipc_lock", json_boolean(s->ipc_lock)}, {"transparent_huge_pages", text(s->transparent)},
        {"huge_pages", list((size_t)s->pool_count, pool, s)},
        {"dev_shm", OBJECT({"bytes", whole(s->shm_bytes)}, {"free_bytes", whole(s->shm_free_bytes)},
                           {"writable", json_boolean(s->shm_writable)})},
        {"memory_files", json_boolean(!s->memfd_why_not[0])},
        {"modules", list((size_t)s->module_count, module, s)});
}

static json_t *node(const void *of, size_t i)
{
    const struct info_node *n = &((const struct info_places *)of)->nodes[i];

    return OBJECT({"node", json_integer(n->number)}, {"cpus", text(n->cpus)},
                  {"memory_bytes", whole(n->memory_bytes)});
}

static json_t *place(const void *of, size_t i)
{
    const struct info_place *p = &((const struct info_places *)of)->places[i];

    return OBJECT({"name", text(p->name)}, {"kind", text(p->kind)},
                  {"node", p->node >= 0 ? json_integer(p->node) : json_null()},
                  {"cpus", text(p->cpus)});
}

static json_t *interface(const void *of, size_t i)
{
    const struct info_interface *at = &((const struct info_network *)of)->interfaces[i];
    char where[SPR_TCP_ADDRESS_TEXT] = "";

    if (at->at.address.family)
        spr_tcp_address_print(&at->at.address, where, sizeof where);
    return OBJECT({"name", text(at->at.name)}, {"address", text(where)},
                  {"up", json_boolean(at->up)}, {"chosen", json_boolean(at->chosen)},
                  {"why", text(at->at.why)}, {"mtu_bytes", whole(at->mtu_bytes)},
                  {"speed_mbit", whole(at->speed_mbit)}, {"driver", text(at->driver)});
}

static json_t *feature(const void *of, size_t i)
{
    const struct spr_uring_feature *f = &((const struct info_uring *)of)->survey.features[i];

    return OBJECT({"name", text(f->name)}, {"there", json_boolean(f->there)},
                  {"needed", json_boolean(f->needed)});
}

static json_t *gid(const void *of, size_t i)
{
    const struct rdma_gid *g = &((const struct rdma_port *)of)->gids[i];

    return OBJECT({"index", json_integer(g->index)}, {"type", text(g->type)}, {"gid", text(g->gid)},
                  {"address", text(g->address)}, {"interface", text(g->interface)},
                  {"usable", json_boolean(g->usable)}, {"chosen", json_boolean(g->chosen)},
                  {"why", text(g->why)});
}

static json_t *port(const void *of, size_t i)
{
    const struct rdma_port *p = &((const struct rdma_device *)of)->ports[i];

    return OBJECT({"port", json_integer(p->number)}, {"state", text(p->state)},
                  {"link_layer", text(p->layer)}, {"mtu_bytes", json_integer(p->mtu_bytes)},
                  {"max_mtu_bytes", json_integer(p->max_mtu_bytes)},
                  {"speed_gbit", p->speed_gbit > 0 ? json_real(p->speed_gbit) : json_null()},
                  {"max_message_bytes", whole(p->max_message_bytes)}, {"lid", json_integer(p->lid)},
                  {"pkeys", json_integer(p->pkeys)}, {"interface", text(p->interface)},
                  {"why_not", text(p->why_not)}, {"gids", list((size_t)p->gid_count, gid, p)});
}

static json_t *device(const void *of, size_t i)
{
    const struct rdma_device *d = &((const struct info_rdma *)of)->devices[i];

    return OBJECT({"name", text(d->name)}, {"node_type", text(d->node)},
                  {"driver", text(d->driver)}, {"firmware", text(d->firmware)},
                  {"guid", text(d->guid)}, {"why_not", text(d->why_not)},
                  {"max_qp", whole(d->max_qp)}, {"max_qp_wr", whole(d->max_qp_wr)},
                  {"max_sge", whole(d->max_sge)}, {"max_cqe", whole(d->max_cqe)},
                  {"max_mr", whole(d->max_mr)}, {"max_mr_bytes", whole(d->max_mr_bytes)},
                  {"max_inline_bytes", json_integer(d->max_inline_bytes)},
                  {"registration", text(d->registered)}, {"on_demand_paging", text(d->on_demand)},
                  {"dmabuf", text(d->dmabuf)}, {"ports", list((size_t)d->port_count, port, d)});
}

static json_t *offer(const void *of, size_t k)
{
    const struct spr_transport_offer *o = &((const struct info_choice *)of)->offers[k];

    return OBJECT({"name", text(spr_transport_kinds[k].name)}, {"open", json_boolean(o->open)},
                  {"refused", json_boolean(o->refused)}, {"why_not", text(o->why_not)});
}

static json_t *why_not(const void *of, size_t k)
{
    const struct info_pair *p = of;

    return OBJECT({"transport", text(spr_transport_kinds[k].name)}, {"why", text(p->why_not[k])});
}

static json_t *pair(const void *of, size_t i)
{
    const struct info_pair *p = &((const struct info_choice *)of)->pairs[i];
    size_t passed_over = 0;

    while (passed_over < spr_transport_kinds_count && p->why_not[passed_over])
        passed_over++;
    return OBJECT({"from", text(p->from)}, {"to", text(p->to)}, {"pairs", whole(p->pairs)},
                  {"transport", text(p->kind ? p->kind->name : NULL)},
                  {"other_end", text(p->back ? p->back->name : NULL)},
                  {"passed_over", list(passed_over, why_not, p)});
}

static json_t *finding(const void *of, size_t k)
{
    const struct findings *f = of;
    const struct finding *one = &f->all[k];

    return OBJECT({"check", text(one->check)}, {"state", text(finding_words[one->state])},
                  {"text", text(one->text)}, {"remedy", text(one->remedy)});
}

static json_t *doctor(const void *of, size_t i)
{
    const struct findings *f = &((const struct report *)of)->doctor[i];

    return OBJECT({"rank", json_integer(f->rank)}, {"host", text(f->host)},
                  {"findings", list((size_t)f->count, finding, f)});
}

static json_t *whole_report(const struct report *r)
{
    const struct info_network *n = &r->network;

    return OBJECT(
        {"schema", json_integer(1)}, {"version", text(PACKAGE_VERSION)},
        {"system", system_of(&r->system)},
        {"numa", OBJECT({"source", text(r->places.source)},
                        {"nodes", list((size_t)r->places.node_count, node, &r->places)},
                        {"devices", list((size_t)r->places.place_count, place, &r->places)})},
        {"network", OBJECT({"interfaces", list((size_t)n->interface_count, interface, n)},
                           {"why_none", text(n->why_none)}, {"congestion", text(n->congestion)},
                           {"available", text(n->available)})},
        {"io_uring",
         OBJECT({"usable", json_boolean(r->uring.usable)}, {"why_not", text(r->uring.why_not)},
                {"ring", text(r->uring.survey.ring)},
                {"features", list((size_t)r->uring.survey.feature_count, feature, &r->uring)})},
        {"rdma",
         OBJECT({"built", json_boolean(r->rdma.built)}, {"why_none", text(r->rdma.why_none)},
                {"usable", json_boolean(r->rdma.usable)}, {"chosen", text(r->rdma.chosen)},
                {"devices", list((size_t)r->rdma.device_count, device, &r->rdma)})},
        {"choice",
         OBJECT({"in_job", json_boolean(r->choice.in_job)}, {"ranks", json_integer(r->choice.size)},
                {"asked", text(r->choice.asked)}, {"error", text(r->choice.error)},
                {"transports", list(spr_transport_kinds_count, offer, &r->choice)},
                {"pairs", list(r->choice.pair_count, pair, &r->choice)})},
        {"doctor", r->doctor ? list((size_t)r->doctor_count, doctor, r) : json_null()});
}

bool json_report(const struct report *r, const char *path)
{
    bool standard = !strcmp(path, "-");
    FILE *out = standard ? stdout : fopen(path, "we");
    bool done = out && json_print(out, whole_report(r));

    if (out && (standard ? fflush(out) : fclose(out)))
        done = false;
    if (!done)
        fprintf(stderr, "sparring-info: cannot write JSON to %s: %s\n", path, strerror(errno));
    return done;
}

#else

bool json_report(const struct report *r, const char *path)
{
    (void)r;
    (void)path;
    fprintf(stderr, "sparring-info: built without jansson, so there is no --json\n");
    return false;
}

#endif
