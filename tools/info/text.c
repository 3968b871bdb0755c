/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdarg.h>
#include <string.h>

#include "base/util.h"
#include "tools/info/report.h"

/* "memlock            8 MiB": an empty name goes on with the one before. */
static void row(FILE *out, const char *name, const char *format, ...) SPR_PRINTF(3, 4);
static void row(FILE *out, const char *name, const char *format, ...)
{
    va_list arguments;

    fprintf(out, "%-16s ", name);
    va_start(arguments, format);
    vfprintf(out, format, arguments);
    va_end(arguments);
    fputc('\n', out);
}

/* "8 MiB"; INFO_NONE as `none`. */
static const char *size(uint64_t bytes, const char *none, char text[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    uint64_t rest = 0;

    if (bytes == INFO_NONE) {
        snprintf(text, 32, "%s", none);
        return text;
    }
    for (; bytes >= 1024 && unit + 1 < SPR_ARRAY_LEN(units); unit++) {
        rest = bytes % 1024;
        bytes /= 1024;
    }
    if (rest)
        snprintf(text, 32, "%.1f %s", (double)bytes + (double)rest / 1024, units[unit]);
    else
        snprintf(text, 32, "%llu %s", (unsigned long long)bytes, units[unit]);
    return text;
}

static const char *number(uint64_t value, char text[32])
{
    if (value == INFO_NONE)
        snprintf(text, 32, "unlimited");
    else
        snprintf(text, 32, "%llu", (unsigned long long)value);
    return text;
}

static void print_system(const struct info_system *s, FILE *out)
{
    char a[32], b[32];

    row(out, "cpus", "%d usable of %d online; %s", s->cpus_usable, s->cpus_online,
        s->simd[0] ? s->simd : "no vector instructions that are used here");
    if (s->cpu_quota > 0)
        row(out, "", "the control group allows %.3g of them", s->cpu_quota);
    row(out, "memory", "%s; transparent huge pages: %s", size(s->memory_bytes, "unknown", a),
        s->transparent[0] ? s->transparent : "not in this kernel");
    for (int i = 0; i < s->pool_count; i++)
        row(out, "huge pages", "%s: %llu, %llu of them free", size(s->pools[i].page_bytes, "", a),
            (unsigned long long)s->pools[i].total, (unsigned long long)s->pools[i].free);
    row(out, "/dev/shm", "%s, %s free%s", size(s->shm_bytes, "missing", a),
        size(s->shm_free_bytes, "nothing", b), s->shm_writable ? "" : ", not writable");
    row(out, "memory files", "%s", s->memfd_why_not[0] ? s->memfd_why_not : "yes");
    row(out, "memlock", "%s (hard limit %s)%s", size(s->memlock.soft, "unlimited", a),
        size(s->memlock.hard, "unlimited", b),
        s->ipc_lock ? "; CAP_IPC_LOCK: it does not bind" : "");
    row(out, "open files", "%s (hard limit %s)", number(s->files.soft, a),
        number(s->files.hard, b));
    for (int i = 0; i < s->module_count; i++)
        if (s->modules[i].state == MODULE_THERE)
            row(out, "module", "%s (%s)", s->modules[i].name, s->modules[i].purpose);
}

static void print_network(const struct info_network *n, FILE *out)
{
    char where[SPR_TCP_ADDRESS_TEXT], speed[32];

    fprintf(out, "# network interfaces: * is the one that TCP uses\n");
    for (int i = 0; i < n->interface_count; i++) {
        const struct info_interface *at = &n->interfaces[i];
        snprintf(where, sizeof where, "no address");
        if (at->at.address.family)
            spr_tcp_address_print(&at->at.address, where, sizeof where);
        speed[0] = '\0';
        if (at->speed_mbit != INFO_NONE)
            snprintf(speed, sizeof speed, ", %llu Mb/s", (unsigned long long)at->speed_mbit);
        fprintf(out, "%c %-14s %s, MTU %llu%s%s%s: %s\n", at->chosen ? '*' : ' ', at->at.name,
                where, (unsigned long long)at->mtu_bytes, speed, at->driver[0] ? ", " : "",
                at->driver, at->at.why);
    }
    if (n->why_none[0])
        row(out, "none", "%s", n->why_none);
    row(out, "congestion", "%s (there are: %s)%s%s", n->congestion, n->available,
        n->congestion_why_not[0] ? "; " : "", n->congestion_why_not);
}

static void print_uring(const struct info_uring *u, FILE *out)
{
    fprintf(out, "# io_uring\n");
    if (!u->usable)
        row(out, "no", "%s", u->why_not);
    if (!u->survey.feature_count)
        return;
    row(out, "ring", "%s", u->survey.ring);
    for (int i = 0; i < u->survey.feature_count; i++) {
        const struct spr_uring_feature *f = &u->survey.features[i];
        row(out, f->name, "%s", f->there ? "yes" : f->needed ? "no: needed" : "no: no zero copy");
    }
}

static void print_gid(const struct rdma_gid *g, FILE *out)
{
    fprintf(out, "%c   GID %-3u       %s %s%s%s, %s: %s\n", g->chosen ? '*' : ' ', g->index,
            g->type, g->address, g->interface[0] ? " of " : "", g->interface,
            g->usable ? "usable" : "not usable", g->why);
}

static void print_port(const struct rdma_port *p, FILE *out)
{
    char most[32];

    fprintf(out, "  port %-11u %s, %s, MTU %u of %u", p->number, p->state, p->layer, p->mtu_bytes,
            p->max_mtu_bytes);
    if (p->speed_gbit > 0)
        fprintf(out, ", %g Gb/s", p->speed_gbit);
    fprintf(out, ", messages up to %s, LID %u, %u pkey%s%s%s%s%s\n",
            size(p->max_message_bytes, "?", most), p->lid, p->pkeys, spr_plural(p->pkeys),
            p->interface[0] ? ", over " : "", p->interface, p->why_not[0] ? ": " : "", p->why_not);
    for (int i = 0; i < p->gid_count; i++)
        print_gid(&p->gids[i], out);
    if (p->gid_total > p->gid_count)
        fprintf(out, "    ... and %d GID%s more\n", p->gid_total - p->gid_count,
                spr_plural((uint64_t)(p->gid_total - p->gid_count)));
}

static void print_device(const struct rdma_device *d, FILE *out)
{
    char most[32];

    row(out, d->name, "%s, firmware %s, driver %s, GUID %s, /dev/infiniband/%s", d->node,
        d->firmware[0] ? d->firmware : "-", d->driver[0] ? d->driver : "-", d->guid, d->file);
    if (d->why_not[0]) {
        row(out, "  no", "%s", d->why_not);
        if (!d->max_qp)
            return;
    }
    row(out, "  limits", "%llu queue pairs of %llu work requests and %llu pieces each, inline %u",
        (unsigned long long)d->max_qp, (unsigned long long)d->max_qp_wr,
        (unsigned long long)d->max_sge, d->max_inline_bytes);
    row(out, "", "completion queues of %llu, %llu regions of up to %s",
        (unsigned long long)d->max_cqe, (unsigned long long)d->max_mr,
        size(d->max_mr_bytes, "any size", most));
    row(out, "  registration", "%s", d->registered);
    row(out, "  on demand", "%s", d->on_demand);
    row(out, "  dmabuf", "%s", d->dmabuf);
    for (int i = 0; i < d->port_count; i++)
        print_port(&d->ports[i], out);
}

static void print_rdma(const struct info_rdma *r, FILE *out)
{
    fprintf(out, "# RDMA devices: * is the GID that verbs uses\n");
    if (r->why_none[0])
        row(out, "none", "%s", r->why_none);
    for (int i = 0; i < r->device_count; i++)
        print_device(&r->devices[i], out);
    if (r->device_count)
        row(out, r->usable ? "chosen" : "not usable", "%s", r->chosen);
}

static void print_places(const struct info_places *p, FILE *out)
{
    char memory[32];

    fprintf(out, "# NUMA, by %s\n", p->source);
    for (int i = 0; i < p->node_count; i++) {
        const struct info_node *n = &p->nodes[i];
        row(out, "node", "%u: CPUs %s, %s", n->number, n->cpus[0] ? n->cpus : "none",
            size(n->memory_bytes, "memory unknown", memory));
    }
    for (int i = 0; i < p->place_count; i++) {
        const struct info_place *d = &p->places[i];
        if (d->node >= 0)
            row(out, d->name, "%s, at node %d, CPUs %s", d->kind, d->node, d->cpus);
        else
            row(out, d->name, "%s, near to no node in particular", d->kind);
    }
}

static void print_choice(const struct info_choice *c, FILE *out)
{
    fprintf(out, "# transports, of '%s'\n", c->asked);
    for (size_t k = 0; k < spr_transport_kinds_count; k++)
        row(out, spr_transport_kinds[k].name, "%s",
            c->offers[k].open ? "can be used" : c->offers[k].why_not);
    if (c->error[0])
        row(out, "error", "%s", c->error);
    if (c->in_job)
        fprintf(out, "# what links the %d rank%s of this job\n", c->size,
                spr_plural((uint64_t)c->size));
    else
        fprintf(out, "# what would link two ranks of a job that has a secret\n");
    for (size_t i = 0; i < c->pair_count; i++) {
        const struct info_pair *p = &c->pairs[i];
        fprintf(out, "%s - %s", p->from, p->to);
        if (c->in_job)
            fprintf(out, " (%llu)", (unsigned long long)p->pairs);
        fprintf(out, ": %s", p->kind ? p->kind->name : "nothing");
        if (p->kind && p->back && p->back != p->kind)
            fprintf(out, " (%s at the other end)", p->back->name);
        fputc('\n', out);
        for (size_t k = 0; k < spr_transport_kinds_count; k++)
            if (p->why_not[k])
                row(out, "", "not %s: %s", spr_transport_kinds[k].name, p->why_not[k]);
    }
}

void text_report(const struct report *r, FILE *out)
{
    fprintf(out, "# sparring-info %s on %s (%s, %s)\n", PACKAGE_VERSION, r->system.host,
            r->system.kernel, r->system.machine);
    print_system(&r->system, out);
    print_places(&r->places, out);
    print_network(&r->network, out);
    print_uring(&r->uring, out);
    print_rdma(&r->rdma, out);
    print_choice(&r->choice, out);
}

const char *const finding_words[] = {"ok", "does not apply", "advice", "problem"};

int text_doctor(const struct report *r, FILE *out)
{
    int problems = 0, advice = 0;

    for (int i = 0; i < r->doctor_count; i++) {
        const struct findings *f = &r->doctor[i];
        for (int k = 0; k < f->count; k++) {
            const struct finding *one = &f->all[k];
            bool good = one->state == FINDING_OK || one->state == FINDING_NONE;
            problems += one->state == FINDING_PROBLEM;
            advice += one->state == FINDING_ADVICE;
            /* Of a job only what is wrong: the rest is the same on all hosts. */
            if (good && r->doctor_count > 1)
                continue;
            if (r->doctor_count > 1)
                fprintf(out, "rank %d (host %s): ", f->rank, f->host);
            fprintf(out, "%-15s %s: %s\n", one->check, finding_words[one->state], one->text);
            if (one->remedy[0])
                fprintf(out, "%-15s   remedy: %s\n", "", one->remedy);
        }
    }
    if (r->doctor_count > 1)
        fprintf(out, "# %d ranks: ", r->doctor_count);
    fprintf(out, "%s%d problem%s, %d piece%s of advice\n", r->doctor_count > 1 ? "" : "# ",
            problems, spr_plural((uint64_t)problems), advice, spr_plural((uint64_t)advice));
    return problems;
}
