/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/run/job.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "tools/run/recorder.h"

static const struct {
    int number;
    const char *name;
} signals[] = {
    {SIGINT, "INT"},   {SIGTERM, "TERM"}, {SIGHUP, "HUP"},   {SIGQUIT, "QUIT"},
    {SIGUSR1, "USR1"}, {SIGUSR2, "USR2"}, {SIGTSTP, "TSTP"}, {SIGCONT, "CONT"},
};

enum { SIGNAL_COUNT = sizeof signals / sizeof signals[0] };

void watched_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (int i = 0; i < SIGNAL_COUNT; i++)
        sigaddset(set, signals[i].number);
}

const char *signal_name(int number)
{
    for (int i = 0; i < SIGNAL_COUNT; i++) {
        if (signals[i].number == number)
            return signals[i].name;
    }
    return "TERM";
}

/* The descriptors of one poll. Slots: signals, the front, both sinks, and then the streams of ranks
 * that are open: poll() takes no more slots than there may be descriptors. */
enum { SLOT_SIGNALS, SLOT_FRONT, SLOT_OUTPUT, SLOT_ERROR, SLOT_STREAMS };

struct polled {
    struct pollfd *slots;
    struct stream **streams; /* of the slots from SLOT_STREAMS on */
    nfds_t count;            /* of them */
};

static struct stream *stream_of(struct job *job, int index)
{
    struct rank *rank = &job->ranks[index / 2];
    return index % 2 == 0 ? &rank->output : &rank->error;
}

static bool open_polled(struct polled *polled, size_t streams)
{
    *polled = (struct polled){.slots = calloc(SLOT_STREAMS + streams, sizeof *polled->slots),
                              .streams = calloc(streams, sizeof(struct stream *))};
    if (polled->slots != NULL && polled->streams != NULL)
        return true;
    say("out of memory");
    return false;
}

static void fill_slots(struct job *job, struct polled *polled)
{
    struct pollfd *slots = polled->slots;

    polled->count = 0;
    slots[SLOT_SIGNALS] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    slots[SLOT_FRONT] = (struct pollfd){.fd = job->front_fd, .events = POLLIN};
    slots[SLOT_OUTPUT] =
        (struct pollfd){.fd = output_sink.length > 0 ? output_sink.fd : -1, .events = POLLOUT};
    slots[SLOT_ERROR] =
        (struct pollfd){.fd = error_sink.length > 0 ? error_sink.fd : -1, .events = POLLOUT};
    for (int i = 0; i < 2 * job->count; i++) {
        struct stream *stream = stream_of(job, i);
        if (stream->fd < 0 || stream->sink->length >= SINK_FULL_BYTES)
            continue;
        slots[SLOT_STREAMS + polled->count] = (struct pollfd){.fd = stream->fd, .events = POLLIN};
        polled->streams[polled->count++] = stream;
    }
}

static int wait_ms(const struct job *job)
{
    int64_t until = job->deadline_ms;
    if (job->phase == PHASE_KILL && job->next_kill_ms < until)
        until = job->next_kill_ms;
    if (job->alone_ms != 0 && (until == 0 || job->alone_ms < until))
        until = job->alone_ms;
    if (until == 0)
        return -1;
    int64_t left = until - now_ms();
    return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

static void take_signals(struct job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGCHLD)
            job_forward(job, (int)info.ssi_signo);
    }
}

static void step(struct job *job, struct polled *polled)
{
    struct pollfd *slots = polled->slots;

    fill_slots(job, polled);
    (void)poll(slots, SLOT_STREAMS + polled->count, wait_ms(job));
    if (slots[SLOT_OUTPUT].revents != 0)
        sink_flush(&output_sink);
    if (slots[SLOT_ERROR].revents != 0)
        sink_flush(&error_sink);
    for (nfds_t i = 0; i < polled->count; i++) {
        if (slots[SLOT_STREAMS + i].revents != 0)
            stream_read(polled->streams[i]);
    }
    if (slots[SLOT_FRONT].revents != 0) { /* the front was killed: nobody waits for anything now */
        close(job->front_fd);
        job->front_fd = -1;
        sinks_give_up();
        job_enter(job, PHASE_KILL);
    }
    take_signals(job);
    if (job->phase != PHASE_DONE)
        job_reap(job);
    job_tick(job);
}

/* What was written before the end and has not been passed on. */
static void drain(struct job *job, struct polled *polled)
{
    bool pending = true;
    while (pending) {
        pending = false;
        for (int i = 0; i < 2 * job->count; i++)
            pending = stream_read(stream_of(job, i)) || pending;
        pending = pending || output_sink.length > 0 || error_sink.length > 0;
        if (pending)
            step(job, polled);
    }
    for (int i = 0; i < 2 * job->count; i++)
        stream_close(stream_of(job, i));
    while (output_sink.length > 0 || error_sink.length > 0)
        step(job, polled);
}

static bool start_ranks(struct job *job)
{
    const struct options *options = job->options;
    if (options->links.count > 0) {
        job->code = emulated_network_build(&job->network, options_host_count(options),
                                           &options->links, options->congestion);
        if (job->code != 0)
            return false;
    }
    for (int i = 0; i < job->count; i++) {
        if (!rank_start(job, &job->ranks[i]))
            return false;
    }
    return true;
}

static void raise_limit(unsigned what)
{
    struct rlimit limit;
    if (getrlimit(what, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(what, &limit);
    }
}

/* For the keeper's pipes and namespaces; and for the ranks, which inherit it: descriptors for a
 * mesh of connections, locked memory for registered buffers. */
static void raise_limits(void)
{
    raise_limit(RLIMIT_NOFILE);
    raise_limit(RLIMIT_MEMLOCK);
}

int job_run(struct job *job)
{
    raise_limits();
    sigset_t watched;
    watched_signals(&watched);
    job->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    struct polled polled;
    if (job->signal_fd < 0 || !job_assign(job) || !open_polled(&polled, 2 * (size_t)job->count)) {
        recorder_close(job);
        say_flush();
        return 1;
    }
    bool started = start_ranks(job);
    if (job->options->restarts == 0)
        explicit_bzero(job->secret, sizeof job->secret);
    if (job->stdin_fd >= 0)
        close(job->stdin_fd);
    job->started = true;
    job->failed = !started;
    if (!started)
        job_enter(job, PHASE_KILL);
    else if (job->options->timeout_s > 0)
        job->deadline_ms = job->timeout_ms = now_ms() + (int64_t)(job->options->timeout_s * 1000);
    while (job->phase != PHASE_DONE)
        step(job, &polled);
    explicit_bzero(job->secret, sizeof job->secret);
    drain(job, &polled);
    recorder_close(job);
    if (output_sink.why != 0) { /* which is no failure of a rank */
        say("cannot write to standard output: %s", strerror(output_sink.why));
        job->code = job->code != 0 ? job->code : 1;
    }
    say_flush();
    emulated_network_free(&job->network);
    free(polled.slots);
    free(polled.streams);
    free(job->ranks);
    return job->code;
}
