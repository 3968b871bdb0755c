/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Zero-copy sends, and bucket memory registered for them. Only between hosts: on loopback the
 * kernel copies after all and charges for the notification, 3 to 20 times slower than a plain send.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "transport/uring/uring.h"

/* Later than liburing 2.3; the kernel may know them all the same. */
#ifndef IORING_SEND_ZC_REPORT_USAGE
#define IORING_SEND_ZC_REPORT_USAGE (1U << 3)
#endif
#ifndef IORING_NOTIF_USAGE_ZC_COPIED
#define IORING_NOTIF_USAGE_ZC_COPIED (1U << 31)
#endif

#define COPIED_IN_A_ROW 8
#define REFUSED 8

void uring_zc_attach(struct uring_transport *t, struct uring_link *l)
{
    l->zc = t->zc && !l->tcp.same_host;
    for (size_t i = 0; i < URING_ZC_SLOTS; i++) {
        l->slots[i].op.kind = URING_ZC;
        l->slots[i].op.link = l;
    }
}

bool uring_zc_wanted(const struct uring_link *l)
{
    const struct spr_transport_params *p = &l->tcp.link.transport->params;

    return l->zc && !l->zc_skip && l->tcp.conn.tx_first->header.bytes >= p->options->zerocopy_bytes;
}

bool uring_zc_busy(const struct uring_link *l)
{
    for (size_t i = 0; i < URING_ZC_SLOTS; i++)
        if (l->slots[i].op.in_flight)
            return true;
    return false;
}

static int find_region(const struct uring_transport *t, const uint8_t *data, size_t bytes)
{
    for (int i = 0; i < URING_REGIONS; i++) {
        const struct uring_region *r = &t->regions[i];
        const uint8_t *begin = r->memory;
        if (r->state == REGION_READY && data >= begin && data + bytes <= begin + r->bytes)
            return i;
    }
    return -1;
}

bool uring_zc_prepare(struct uring_transport *t, struct uring_link *l)
{
    struct spr_tcp_conn *c = &l->tcp.conn;
    size_t skip = c->tx_done - SPR_FRAME_BYTES, left = c->tx_first->header.bytes - skip;
    const uint8_t *data = (const uint8_t *)c->tx_first->data + skip;
    unsigned report = t->zc_report ? IORING_SEND_ZC_REPORT_USAGE : 0;
    int region = find_region(t, data, left);
    struct uring_zc *z = NULL;
    struct io_uring_sqe *sqe;

    for (size_t i = 0; i < URING_ZC_SLOTS && !z; i++)
        if (!l->slots[i].op.in_flight)
            z = &l->slots[i];
    sqe = z ? uring_sqe(t) : NULL;
    if (!sqe)
        return false;
    if (region >= 0)
        io_uring_prep_send_zc_fixed(sqe, l->tcp.fd, data, left, MSG_NOSIGNAL | MSG_WAITALL, report,
                                    (unsigned)region);
    else
        io_uring_prep_send_zc(sqe, l->tcp.fd, data, left, MSG_NOSIGNAL | MSG_WAITALL, report);
    io_uring_sqe_set_data(sqe, &z->op);
    l->tx_bytes = left;
    z->tx = l->zc_tx = c->tx_first;
    z->op.in_flight = l->tx.in_flight = true;
    t->tcp.base.params.counters->zerocopy_sends++;
    return true;
}

bool uring_zc_failed(struct uring_transport *t, struct uring_link *l, int error)
{
    t->tcp.base.params.counters->zerocopy_sends--;
    switch (error) {
    case EFAULT: /* no pages that could be held, such as a device's */
        l->zc_skip = true;
        return true;
    case ENOMEM: /* memory that is not registered counts as locked */
    case ENOBUFS:
        l->zc_skip = true;
        if (++l->zc_refused >= REFUSED) {
            l->zc = false;
            spr_info(SPR_SUB_NET,
                     "rank %d: zero-copy sends are off: the limit of locked memory is too low "
                     "(ulimit -l)",
                     l->tcp.link.peer);
        }
        return true;
    case EINVAL:
        if (t->zc_report) {
            t->zc_report = false; /* a kernel without that flag */
            return true;
        }
        t->zc = false;
        l->zc = false;
        return true;
    case EOPNOTSUPP:
        l->zc = false;
        return true;
    default:
        return false;
    }
}

/* A held frame whose last slot is free again. */
static struct spr_tx *take_held(struct uring_link *l, const struct spr_tx *tx)
{
    for (size_t i = 0; i < URING_ZC_SLOTS; i++)
        if (l->slots[i].op.in_flight && l->slots[i].tx == tx)
            return NULL;
    for (struct spr_tx **p = &l->held; *p; p = &(*p)->next) {
        if (*p == tx) {
            struct spr_tx *found = *p;
            *p = found->next;
            found->next = NULL;
            return found;
        }
    }
    return NULL;
}

int uring_zc_free(struct uring_zc *z, bool quiet)
{
    struct uring_link *l = z->op.link;
    const struct spr_tx *tx = z->tx;

    z->op.in_flight = false;
    z->tx = NULL;
    /* A link that is over gives its frames back in finish(). */
    if (quiet || l->ending || l->tcp.over)
        return 0;
    return spr_tcp_tell_sent(&l->tcp, take_held(l, tx));
}

int uring_zc_notified(struct uring_transport *t, struct uring_zc *z, int result, bool quiet)
{
    struct uring_link *l = z->op.link;

    if (!((unsigned)result & IORING_NOTIF_USAGE_ZC_COPIED)) {
        l->zc_copied = 0;
        return uring_zc_free(z, quiet);
    }
    t->tcp.base.params.counters->copied_sends++;
    if (++l->zc_copied == COPIED_IN_A_ROW && l->zc) {
        l->zc = false;
        spr_info(SPR_SUB_NET, "rank %d: zero-copy sends are off: the kernel copies on this path",
                 l->tcp.link.peer);
    }
    return uring_zc_free(z, quiet);
}

struct spr_tx *uring_zc_hold(struct uring_link *l, struct spr_tx *sent)
{
    struct spr_tx *free_now = NULL, **last = &free_now;

    while (sent) {
        struct spr_tx *tx = sent;
        bool held = false;
        sent = tx->next;
        for (size_t i = 0; i < URING_ZC_SLOTS; i++)
            held |= l->slots[i].op.in_flight && l->slots[i].tx == tx;
        tx->next = held ? l->held : NULL;
        if (held) {
            l->held = tx;
        } else {
            *last = tx;
            last = &tx->next;
        }
    }
    return free_now;
}

struct spr_tx *uring_zc_fail_held(struct uring_link *l)
{
    struct spr_tx *held = l->held;

    for (struct spr_tx *tx = held; tx; tx = tx->next)
        tx->failed = true;
    l->held = NULL;
    return held;
}

/* ---- Bucket memory ----------------------------------------------------------------------------
 */

void uring_regions_update(struct uring_transport *t)
{
    if (!t->regions_changed)
        return;
    t->regions_changed = false;
    if (!t->regions_table)
        t->regions_table = io_uring_register_buffers_sparse(&t->ring, URING_REGIONS) == 0;
    for (unsigned i = 0; i < URING_REGIONS; i++) {
        struct uring_region *r = &t->regions[i];
        struct iovec iov = {r->memory, r->bytes}, none = {NULL, 0};
        if (r->state == REGION_ASKED) {
            int result = t->regions_table
                             ? io_uring_register_buffers_update_tag(&t->ring, i, &iov, NULL, 1)
                             : -EINVAL;
            r->state = result == 1 ? REGION_READY : REGION_REFUSED;
            if (result != 1)
                spr_debug(SPR_SUB_MEM, "io_uring does not register %zu bytes: %s", r->bytes,
                          strerrordesc_np(-result));
        } else if (r->state == REGION_GONE) {
            /* Sends in flight keep the pages on their own account. */
            (void)io_uring_register_buffers_update_tag(&t->ring, i, &none, NULL, 1);
            *r = (struct uring_region){.state = REGION_FREE};
        }
    }
}

/* Receives and plain sends copy anyway; registered memory spares zero copy the pinning. */
spr_status uring_mem_register(struct spr_transport *base, void *memory, size_t bytes, bool writable)
{
    struct uring_transport *t = uring_of(base);

    (void)writable;
    if (!t->zc)
        return SPR_OK;
    for (size_t i = 0; i < URING_REGIONS; i++) {
        struct uring_region *r = &t->regions[i];
        if (r->state != REGION_FREE)
            continue;
        *r = (struct uring_region){.state = REGION_ASKED, .memory = memory, .bytes = bytes};
        t->regions_changed = true;
        return SPR_OK;
    }
    return SPR_ERR_UNSUPPORTED;
}

void uring_mem_deregister(struct spr_transport *base, void *memory, size_t bytes)
{
    struct uring_transport *t = uring_of(base);

    for (size_t i = 0; i < URING_REGIONS; i++) {
        struct uring_region *r = &t->regions[i];
        if (r->memory != memory || r->bytes != bytes || r->state == REGION_GONE)
            continue;
        /* From now on nothing is found in it; the ring's thread takes it out of the table. */
        r->state = r->state == REGION_READY ? REGION_GONE : REGION_FREE;
        r->memory = NULL;
        r->bytes = 0;
        t->regions_changed = true;
        return;
    }
}
