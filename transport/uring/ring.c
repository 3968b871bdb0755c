/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/uring/survey.h"
#include "transport/uring/uring.h"

#define SETTLE_S 1.0
/* Pieces of deferred work that the kernel does at least when it is asked (its limit is 20). */
#define WORK_PER_CALL 16

/*
 * From best to oldest. SINGLE_ISSUER and DEFER_TASKRUN (6.1): completions are worked off when we
 * ask, not in the middle of the user's computation, without locks; only one thread may then enter
 * the ring, so it is created disabled and belongs to the thread that enables it. COOP_TASKRUN
 * (5.19): no inter-processor interrupts. TASKRUN_FLAG: without it io_uring_peek_cqe() would not see
 * deferred work. SUBMIT_ALL: one refused entry does not hold back the others.
 */
static const struct {
    unsigned flags;
    bool one_thread;
    const char *name;
} ladder[] = {
    {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
         IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE |
         IORING_SETUP_R_DISABLED,
     true, "one thread, work when asked for (6.1)"},
    {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL |
         IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE,
     false, "any thread, work without interrupts (5.19)"},
    {IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE, false, "plain, with a queue of chosen size (5.6)"},
    {0, false, "plain"},
};

static spr_status refused(int error, struct spr_error *e)
{
    const char *remedy = "";
    char text[64];

    switch (error) {
    case EPERM:
    case EACCES:
        remedy = "; kernel.io_uring_disabled or the container's seccomp profile forbids it";
        break;
    case ENOSYS:
        remedy = "; the kernel or the container's seccomp profile does not have it";
        break;
    case ENOMEM:
        remedy = "; raise the limit of locked memory (ulimit -l)";
        break;
    default:
        return spr_error_errno(e, SPR_ERR_SYSTEM, -1, error, "cannot set io_uring up");
    }
    return spr_error_set(e, SPR_ERR_UNSUPPORTED, -1, "io_uring is refused: %s%s",
                         spr_tcp_errno_text(error, text, sizeof text), remedy);
}

static unsigned power_of_two(unsigned n)
{
    unsigned p = 1;

    while (p < n)
        p *= 2;
    return p;
}

/* The best ring that the kernel gives. *name: what it is like. */
static spr_status create_ring(struct io_uring *ring, unsigned entries, unsigned completions,
                              bool one_thread, bool *single_issuer, const char **name,
                              struct spr_error *error)
{
    int result = -EINVAL;

    for (size_t i = 0; i < SPR_ARRAY_LEN(ladder) && result == -EINVAL; i++) {
        struct io_uring_params up = {.flags = ladder[i].flags, .cq_entries = completions};
        if (ladder[i].one_thread && !one_thread)
            continue;
        result = io_uring_queue_init_params(entries, ring, &up);
        *single_issuer = ladder[i].one_thread;
        *name = ladder[i].name;
    }
    return result ? refused(-result, error) : SPR_OK;
}

static spr_status check_features(const struct io_uring *ring, struct spr_error *error)
{
    if ((ring->features & IORING_FEAT_NODROP) && (ring->features & IORING_FEAT_FAST_POLL))
        return SPR_OK;
    return spr_error_set(error, SPR_ERR_UNSUPPORTED, -1,
                         "io_uring of this kernel is too old; 5.7 or later is needed");
}

spr_status uring_create(struct uring_transport *t, struct spr_error *error)
{
    const struct spr_transport_params *p = &t->tcp.base.params;
    unsigned peers = (unsigned)p->size;
    /* Receive and send of each link; a place in the completion queue for all that can be in flight,
     * notifications and cancellations included, so that it never overflows. */
    unsigned entries = power_of_two(2 * peers + 16); /* at most what CLAMP makes of it */
    unsigned completions = power_of_two((4 + URING_ZC_SLOTS) * peers + 64);
    const char *name;
    spr_status status =
        create_ring(&t->ring, entries, completions, p->one_thread, &t->single_issuer, &name, error);

    if (status)
        return status;
    t->open = true;
    t->enabled = !t->single_issuer;
    /* Forks of the user's must not share the rings. */
    (void)io_uring_ring_dontfork(&t->ring);
    status = check_features(&t->ring, error);
    if (status)
        return status;
    if (t->single_issuer) {
        t->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (t->event_fd < 0)
            return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "cannot create an eventfd");
    }
    t->backlog_most = *t->ring.cq.kring_entries + 64;
    t->backlog = spr_calloc(t->backlog_most, sizeof *t->backlog);
    return t->backlog ? SPR_OK : spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for io_uring");
}

/* What the transport asks of the kernel, in the order of data.c and zerocopy.c. */
static const struct {
    const char *name;
    int operation;
    bool needed; /* else for zero copy only */
} operations[] = {
    {"poll_add", IORING_OP_POLL_ADD, true},   {"recv", IORING_OP_RECV, true},
    {"recvmsg", IORING_OP_RECVMSG, true},     {"sendmsg", IORING_OP_SENDMSG, true},
    {"cancel", IORING_OP_ASYNC_CANCEL, true}, {"send_zc", IORING_OP_SEND_ZC, false},
};

spr_status spr_uring_survey(bool one_thread, struct spr_uring_survey *s, struct spr_error *error)
{
    struct io_uring ring;
    struct io_uring_probe *probe;
    bool single_issuer;
    spr_status status = create_ring(&ring, 16, 64, one_thread, &single_issuer, &s->ring, error);

    s->feature_count = 0;
    if (status)
        return status;
    status = check_features(&ring, error);
    s->features[s->feature_count++] =
        (struct spr_uring_feature){"nodrop", ring.features & IORING_FEAT_NODROP, true};
    s->features[s->feature_count++] =
        (struct spr_uring_feature){"fast_poll", ring.features & IORING_FEAT_FAST_POLL, true};
    probe = io_uring_get_probe_ring(&ring);
    for (size_t i = 0; probe && i < SPR_ARRAY_LEN(operations); i++)
        s->features[s->feature_count++] = (struct spr_uring_feature){
            operations[i].name, io_uring_opcode_supported(probe, operations[i].operation),
            operations[i].needed};
    if (probe)
        io_uring_free_probe(probe);
    s->features[s->feature_count++] = (struct spr_uring_feature){
        "registered_buffers", io_uring_register_buffers_sparse(&ring, URING_REGIONS) == 0, false};
    io_uring_queue_exit(&ring);
    return status;
}

void uring_destroy(struct uring_transport *t)
{
    if (t->open)
        io_uring_queue_exit(&t->ring);
    t->open = false;
    if (t->event_fd >= 0)
        close(t->event_fd);
    t->event_fd = -1;
    spr_free(t->backlog);
    t->backlog = NULL;
}

bool uring_enable(struct uring_transport *t)
{
    int result;

    if (t->enabled)
        return true;
    /* By number: io_uring_enable_rings() is not exported by liburing 2.3. */
    result = io_uring_register((unsigned)t->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
    if (!result) {
        (void)io_uring_cq_eventfd_toggle(&t->ring, false);
        result = io_uring_register_eventfd(&t->ring, t->event_fd);
    }
    if (result) {
        spr_err(SPR_SUB_NET, "cannot enable io_uring: %s", strerrordesc_np(-result));
        return false;
    }
    /* The ring's descriptor is not registered, as it might be: that belongs to one thread, and a
     * ring that another thread closes would take that thread's registration of another ring away.
     */
    t->enabled = true;
    return true;
}

int uring_pollable(const struct uring_transport *t)
{
    return t->single_issuer ? t->event_fd : t->ring.ring_fd;
}

static bool has_deferred(const struct uring_transport *t)
{
    return *(volatile unsigned *)t->ring.sq.kflags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

/* Do what the kernel has put off. Its flag may stay set for nothing: it is set after the work was
 * queued, and we may have done that in between. So the flag only says that it is worth a look; what
 * counts is whether there are completions when all that may have been queued is done. False: it
 * could not be done. */
static bool run_deferred(struct uring_transport *t)
{
    unsigned calls = *t->ring.cq.kring_entries / WORK_PER_CALL + 1;

    while (calls-- > 0 && has_deferred(t) && !io_uring_cq_ready(&t->ring))
        if (io_uring_get_events(&t->ring) < 0)
            return false;
    return true;
}

bool uring_arm(struct uring_transport *t)
{
    if (t->single_issuer) {
        (void)io_uring_cq_eventfd_toggle(&t->ring, true);
        t->armed = true;
        /* Signals on before the flags are looked at: work that is added later signals. */
        atomic_thread_fence(memory_order_seq_cst);
    }
    return run_deferred(t) && !io_uring_cq_ready(&t->ring);
}

void uring_disarm(struct uring_transport *t)
{
    uint64_t signals;

    if (!t->armed)
        return;
    t->armed = false;
    (void)io_uring_cq_eventfd_toggle(&t->ring, false);
    if (read(t->event_fd, &signals, sizeof signals) < 0)
        return; /* nothing came */
}

struct io_uring_sqe *uring_sqe(struct uring_transport *t)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&t->ring);

    if (!sqe) {
        (void)io_uring_submit(&t->ring);
        sqe = io_uring_get_sqe(&t->ring);
    }

    return sqe;
}

void uring_submit(struct uring_transport *t)
{
    /* What is not taken now (EAGAIN, EBUSY) stays in the queue for the next call; arm() sees it. */
    int result = io_uring_submit_and_get_events(&t->ring);

    if (result == -EEXIST && !t->told_thread) {
        t->told_thread = true;
        spr_err(SPR_SUB_NET, "io_uring: progress is made by another thread than at first");
    }
}

bool uring_next(struct uring_transport *t, struct io_uring_cqe *cqe)
{
    struct io_uring_cqe *p;

    if (t->backlog_count) {
        *cqe = t->backlog[t->backlog_first++];
        if (--t->backlog_count == 0)
            t->backlog_first = 0;
        return true;
    }
    /* Enters the kernel only when the ring's flags say that there is deferred work or an overflow.
     */
    if (io_uring_peek_cqe(&t->ring, &p) || !p)
        return false;
    *cqe = *p;
    io_uring_cqe_seen(&t->ring, p);
    return true;
}

/* A completion of a link that is over: only the books. */
static void take_quietly(struct uring_transport *t, const struct io_uring_cqe *cqe)
{
    struct uring_op *op = io_uring_cqe_get_data(cqe);
    struct uring_link *l = op->link;

    if (op->kind == URING_ZC && (cqe->flags & IORING_CQE_F_NOTIF)) {
        (void)uring_zc_notified(t, (struct uring_zc *)op, cqe->res, true);
        return;
    }
    if (op->kind == URING_ZC) {
        l->tx.in_flight = false;
        if (!(cqe->flags & IORING_CQE_F_MORE))
            (void)uring_zc_free((struct uring_zc *)op, true);
        return;
    }
    op->in_flight = false;
}

/* Empty the ring; what does not belong to the link waits in the backlog. */
static void sort_out(struct uring_transport *t, const struct uring_link *l)
{
    struct io_uring_cqe *p;
    unsigned n = t->backlog_first + t->backlog_count, kept = 0;

    for (unsigned i = t->backlog_first; i < n; i++) {
        const struct uring_op *op = io_uring_cqe_get_data(&t->backlog[i]);
        if (op && op->link == l)
            take_quietly(t, &t->backlog[i]);
        else
            t->backlog[kept++] = t->backlog[i];
    }
    t->backlog_first = 0;
    while (kept < t->backlog_most && !io_uring_peek_cqe(&t->ring, &p) && p) {
        const struct uring_op *op = io_uring_cqe_get_data(p);
        if (op && op->link == l)
            take_quietly(t, p);
        else if (op)
            t->backlog[kept++] = *p;
        io_uring_cqe_seen(&t->ring, p);
    }
    t->backlog_count = kept;
}

static void cancel(struct uring_transport *t, struct uring_op *op)
{
    struct io_uring_sqe *sqe = op->in_flight ? uring_sqe(t) : NULL;

    if (!sqe)
        return;
    io_uring_prep_cancel(sqe, op, 0);
    io_uring_sqe_set_data(sqe, NULL);
}

bool uring_settle(struct uring_transport *t, struct uring_link *l)
{
    uint64_t end = spr_monotonic_ns() + spr_tcp_seconds_ns(SETTLE_S);
    int result;

    sort_out(t, l);
    while (uring_busy(l)) {
        struct pollfd ring = {.fd = uring_pollable(t), .events = POLLIN};
        cancel(t, &l->rx);
        cancel(t, &l->tx);
        result = io_uring_submit_and_get_events(&t->ring);
        if (result == -EEXIST)
            return false; /* close() on another thread than the ring's: the ring's end cancels */
        sort_out(t, l);
        if (!uring_busy(l))
            break;
        if (spr_monotonic_ns() > end)
            return false;
        /* Without SINGLE_ISSUER the thread that submitted it has to pass through the kernel. */
        (void)poll(&ring, 1, 1);
        sort_out(t, l);
    }
    return true;
}
