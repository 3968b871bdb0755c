/* SPDX-License-Identifier: BSD-2-Clause
 *
 * link_speed [--crc] TRANSPORT [ITERATIONS [MOST_BYTES]]: latency and bandwidth of one link between
 * two processes of this host, below the collectives: what ib_write_lat and ib_write_bw measure,
 * with frames. Both ends poll without a pause: on soft-RoCE, where the sender's CPU also does the
 * receiver's part of the protocol, it would have to wake a receiver that sleeps with every frame
 * (docs/benchmarks.md), which that of ib_write_bw, who is never told, does not cost.
 * Latency is half a round trip, the median; bandwidth is one way, out of and into registered
 * memory, straight where the transport can.
 * Messages of more than 256 KiB are several frames; MOST_BYTES is at most 8 MiB. At most 64 MiB are
 * moved for one figure. --crc: payloads have a checksum, which the receiver compares; what one
 * CPU's checksums take is printed, too.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/opt.h"
#include "transport/transport.h"

#define WINDOW 8
#define PLACED_BYTES 8192u /* smaller ones go by way of slots */
#define CHUNK_BYTES (256u << 10)
#define MESSAGE_BYTES (8u << 20)
#define ENOUGH_BYTES (64u << 20) /* for a measurement */

/* What both processes see. */
struct board {
    struct spr_peer_info info[2];
    struct spr_place place[2]; /* of what each receives into, if the other may write it */
    bool exposed[2];
    _Atomic int written;
};

struct end {
    struct spr_transport *t;
    struct spr_link *link;
    struct spr_transport_params params;
    struct spr_options options;
    struct spr_auth_key key;
    struct spr_counters counters;
    struct spr_trace trace;
    struct spr_tx tx[WINDOW];
    bool busy[WINDOW];
    bool crc;
    uint8_t *out, *in; /* registered, MESSAGE_BYTES each */
    uint32_t sent, received, awaited;
    bool up;
    const struct spr_place *place; /* at the other end, or NULL */
};

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "link_speed: %s: %s\n", what, why);
    exit(1);
}

static void on_up(struct spr_link *link) { ((struct end *)link->channel)->up = true; }

static spr_status on_header(struct spr_link *link, const struct spr_frame *f, struct spr_rx *rx)
{
    const char *why = "";
    spr_status status = spr_frame_check(f, &why);

    if (status || f->arg64 > MESSAGE_BYTES - f->bytes)
        return status ? status : SPR_ERR_PROTO;
    rx->sink = SPR_SINK_INTO;
    rx->into = ((struct end *)link->channel)->in + f->arg64;
    return SPR_OK;
}

static void on_payload(struct spr_link *link, const struct spr_frame *f, const void *data,
                       void *token)
{
    (void)token;
    if ((f->flags & SPR_FRAME_CRC) && spr_crc32c(0, data, f->bytes) != f->payload_crc)
        die("payload", "its checksum does not match");
    ((struct end *)link->channel)->received++;
}

static void on_sent(struct spr_link *link, struct spr_tx *tx)
{
    struct end *e = link->channel;

    e->busy[tx - e->tx] = false;
}

static void on_down(struct spr_link *link, spr_status why, const char *text)
{
    if (((struct end *)link->channel)->up)
        die(spr_status_string(why), text);
}

static const struct spr_link_events events = {on_up, on_header, on_payload, on_sent, on_down};

static const struct {
    const struct spr_transport_ops *ops;
    int id;
} kinds[] = {
    {&spr_transport_shm, SPR_T_SHM},
    {&spr_transport_epoll, SPR_T_EPOLL},
#ifdef HAVE_URING
    {&spr_transport_uring, SPR_T_URING},
#endif
#ifdef HAVE_VERBS
    {&spr_transport_verbs, SPR_T_VERBS},
#endif
};

static void open_end(struct end *e, const char *name, int rank)
{
    struct spr_error error = {0};

    if (spr_opt_load(spr_options_table, spr_options_count, &e->options, &error))
        die("options", error.text);
    e->key = (struct spr_auth_key){
        .secret = "x", .secret_bytes = 1, .job = 1, .epoch = 1, .rank = rank, .size = 2};
    e->params = (struct spr_transport_params){.rank = rank,
                                              .size = 2,
                                              .epoch = 1,
                                              .key = &e->key,
                                              .options = &e->options,
                                              .events = &events,
                                              .clock = &spr_clock_monotonic,
                                              .counters = &e->counters,
                                              .trace = &e->trace,
                                              .loopback_only = true,
                                              .one_thread = true};
    e->out = spr_pages_alloc(MESSAGE_BYTES);
    e->in = spr_pages_alloc(MESSAGE_BYTES);
    if (!e->out || !e->in)
        die(name, "no memory");
    memset(e->out, 1, MESSAGE_BYTES);
    memset(e->in, 1, MESSAGE_BYTES);
    for (size_t k = 0; k < SPR_ARRAY_LEN(kinds); k++)
        if (!strcmp(kinds[k].ops->name, name) && kinds[k].ops->open(&e->params, &e->t, &error))
            die(name, error.text);
    if (!e->t)
        die(name, "no such transport");
}

/* A child that has ended will not come: it has said why, unless it was killed. main() reaps it. */
static void check_child(void)
{
    siginfo_t info = {0};

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid == 0)
        return;
    if (info.si_code != CLD_EXITED)
        die("the other end", strsignal(info.si_status));
    exit(1);
}

static void meet(struct end *e, struct board *b)
{
    int rank = e->params.rank;
    struct spr_error error = {0};

    for (size_t k = 0; k < SPR_ARRAY_LEN(kinds); k++) {
        if (kinds[k].ops != e->t->ops)
            continue;
        b->info[rank].transports = 1u << kinds[k].id;
        e->t->ops->address(e->t, b->info[rank].address[kinds[k].id]);
    }
    b->written++;
    while (b->written < 2) {
        check_child();
        usleep(1000);
    }
    if (e->t->ops->connect(e->t, !rank, &b->info[!rank], &e->link, &error))
        die("connect", error.text);
    e->link->channel = e;
    while (!e->up) {
        check_child();
        (void)e->t->ops->progress(e->t);
    }
    (void)e->t->ops->mem_register(e->t, e->out, MESSAGE_BYTES, false);
    (void)e->t->ops->mem_register(e->t, e->in, MESSAGE_BYTES, true);
    b->exposed[rank] =
        e->t->ops->expose && e->t->ops->expose(e->link, e->in, MESSAGE_BYTES, &b->place[rank]);
    b->written++;
    while (b->written < 4)
        (void)e->t->ops->progress(e->t);
    e->place = b->exposed[!rank] ? &b->place[!rank] : NULL;
}

static void send_frame(struct end *e, uint32_t offset, uint32_t bytes)
{
    uint32_t slot = e->sent % WINDOW;
    struct spr_tx *tx = &e->tx[slot];

    while (e->busy[slot])
        (void)e->t->ops->progress(e->t);
    memset(tx, 0, sizeof *tx);
    tx->header.type = SPR_FRAME_DATA;
    tx->header.sequence = e->sent++;
    tx->header.bytes = bytes;
    tx->header.arg64 = offset;
    tx->data = e->out + offset;
    if (e->place && bytes >= PLACED_BYTES) {
        tx->header.flags = SPR_FRAME_PLACED;
        tx->place = *e->place;
        tx->place.address += offset;
    }
    if (e->crc)
        spr_frame_seal_payload(&tx->header, tx->data);
    else
        spr_frame_seal(&tx->header);
    e->busy[slot] = true;
    e->t->ops->send(e->link, tx);
    (void)e->t->ops->progress(e->t);
}

static void send_message(struct end *e, uint32_t bytes)
{
    for (uint32_t offset = 0; offset < bytes; offset += CHUNK_BYTES)
        send_frame(e, offset, bytes - offset < CHUNK_BYTES ? bytes - offset : CHUNK_BYTES);
}

/* That many more frames; the first may have come long ago. */
static void await(struct end *e, uint32_t more)
{
    e->awaited += more;
    while ((int32_t)(e->received - e->awaited) < 0)
        (void)e->t->ops->progress(e->t);
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void latency(struct end *e, uint32_t bytes, uint32_t iterations, bool tell)
{
    uint64_t *ns = spr_calloc(iterations, sizeof *ns), begin = spr_monotonic_ns();

    for (uint32_t i = 0; ns && i < iterations; i++) {
        uint64_t end;
        if (e->params.rank == 0)
            send_frame(e, 0, bytes);
        await(e, 1);
        if (e->params.rank == 1)
            send_frame(e, 0, bytes);
        end = spr_monotonic_ns();
        ns[i] = end - begin;
        begin = end;
    }
    if (ns && tell && e->params.rank == 0) {
        qsort(ns, iterations, sizeof *ns, by_time);
        printf("%9u bytes: latency %8.2f us median, %8.2f us least\n", bytes,
               (double)ns[iterations / 2] / 2e3, (double)ns[0] / 2e3);
    }
    spr_free(ns);
}

static void bandwidth(struct end *e, uint32_t bytes, uint32_t iterations)
{
    uint64_t begin = spr_monotonic_ns();
    uint32_t frames = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;

    if (iterations > ENOUGH_BYTES / bytes)
        iterations = ENOUGH_BYTES / bytes;
    if (e->params.rank == 0) {
        for (uint32_t i = 0; i < iterations; i++)
            send_message(e, bytes);
        await(e, 1);
        printf("%9u bytes: %10.2f MB/s one way\n", bytes,
               (double)bytes * iterations * 1e3 / (double)(spr_monotonic_ns() - begin));
    } else {
        await(e, frames * iterations);
        send_frame(e, 0, 8);
    }
}

/* Of a buffer that stays in the cache, as chunks do. */
static void checksum_speed(const struct end *e)
{
    enum { BYTES = 64u << 10, TIMES = 200 };
    uint64_t begin = spr_monotonic_ns();
    uint32_t sum = 0;

    for (int i = 0; i < TIMES; i++)
        sum = spr_crc32c(sum, e->out, BYTES);
    printf("%9u bytes: %10.2f MB/s checksum (%08x)\n", BYTES,
           (double)BYTES * TIMES * 1e3 / (double)(spr_monotonic_ns() - begin), sum);
}

static void measure(const char *name, struct board *b, int rank, uint32_t iterations, uint32_t most,
                    bool crc)
{
    static const uint32_t sizes[] = {4096, 16384, 65536, CHUNK_BYTES, 1u << 20, MESSAGE_BYTES};
    struct end *e = spr_calloc(1, sizeof *e);

    if (!e)
        die(name, "no memory");
    e->crc = crc;
    open_end(e, name, rank);
    meet(e, b);
    for (uint32_t bytes = 8; bytes <= 4096 && bytes <= most; bytes *= 8) {
        latency(e, bytes, 10, false);
        latency(e, bytes, iterations, true);
    }
    for (size_t i = 0; i < SPR_ARRAY_LEN(sizes) && sizes[i] <= most; i++)
        bandwidth(e, sizes[i], iterations);
    if (crc && rank == 0)
        checksum_speed(e);
    fflush(stdout);
    while (!e->t->ops->idle(e->t))
        (void)e->t->ops->progress(e->t);
    e->up = false; /* who is first may go */
    b->written++;
    while (b->written < 6)
        (void)e->t->ops->progress(e->t);
    e->t->ops->close(e->t);
    spr_free(e);
}

int main(int argc, char **argv)
{
    bool crc = argc > 1 && !strcmp(argv[1], "--crc");
    char **words = argv + crc;
    int count = argc - crc;
    uint32_t iterations = count > 2 ? (uint32_t)strtoul(words[2], NULL, 10) : 1000;
    uint32_t most = count > 3 ? (uint32_t)strtoul(words[3], NULL, 10) : CHUNK_BYTES;
    struct board *b =
        mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = 0;
    pid_t pid;

    if (count < 2 || iterations == 0 || b == MAP_FAILED) {
        fprintf(stderr, "usage: link_speed [--crc] TRANSPORT [ITERATIONS [MOST_BYTES]]\n");
        return 2;
    }
    pid = fork();
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (pid < 0)
        die("fork", "refused");
    measure(words[1], b, pid == 0, iterations, most, crc);
    if (pid > 0)
        waitpid(pid, &status, 0);
    return status != 0;
}
