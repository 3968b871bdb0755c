/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What options do to a job that no other test sets: each is given to real processes, and its effect
 * is looked for.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "collectives/comm.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"
#include "tests/multi/network.h"
#include "transport/lanes/private.h"
#include "transport/tcp/tcp.h"

#define SECONDS 30

static void start_with(struct job *job, const char *name, const char *value, int size,
                       const char *transports,
                       void (*rank_main)(struct job *job, int rank, spr_comm *comm))
{
    assert_int_equal(setenv(name, value, 1), 0);
    job_start(job, size, transports, rank_main, (void *)(uintptr_t)value);
    assert_int_equal(unsetenv(name), 0);
}

static void run_with(const char *name, const char *value, int size, const char *transports,
                     void (*rank_main)(struct job *job, int rank, spr_comm *comm))
{
    struct job job;

    start_with(&job, name, value, size, transports, rank_main);
    job_expect_success(&job, SECONDS);
}

static const struct spr_link *link_to(const spr_comm *comm, int rank)
{
    return comm->channel.peers[rank].link;
}

/* What is logged ------------------------------------------------------------------------------- */

/* Lines of a rank's log with such a text. */
struct lines {
    const char *text;
    _Atomic int count;
};

static void count_lines(void *ctx, enum spr_log_level level, const char *line)
{
    struct lines *lines = ctx;

    if (level <= SPR_LOG_WARN && strstr(line, lines->text))
        atomic_fetch_add(&lines->count, 1);
}

static void watch_log(struct lines *lines)
{
    RANK_CHECK(spr_log_configure("warn"));
    spr_log_set_sink(count_lines, lines);
}

static void run_late(struct job *job, int rank, spr_comm *comm)
{
    static struct lines lines = {"'late' takes longer than 0.05 s, waiting for rank 1", 0};
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    spr_request *request;

    options.name = "late";
    if (rank == 1) {
        job_await(job_counter(job, 0), 1);
        RANK_CHECK(spr_barrier(comm, &options) == SPR_OK);
        return;
    }
    watch_log(&lines);
    RANK_CHECK(spr_ibarrier(comm, &options, &request) == SPR_OK);
    job_await(&lines.count, 1);
    atomic_store(job_counter(job, 0), 1);
    RANK_CHECK(spr_wait(&request, -1) == SPR_OK);
    RANK_CHECK(atomic_load(&lines.count) == 1);
}

static void a_late_rank_is_warned_of(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++)
        run_with("SPARRING_WARN", "50ms", 2, job_transports[t], run_late);
}

/* The flight recorder -------------------------------------------------------------------------- */

enum { TEXT_BYTES = 4096 };

/* What it failed of goes to shared memory, and how often it could not write. */
static void run_aborted(struct job *job, int rank, spr_comm *comm)
{
    static struct lines lines = {"cannot write SPARRING_TRACE_FILE /", 0};

    watch_log(&lines);
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    atomic_fetch_add(job_counter(job, 0), 1);
    job_await(job_counter(job, 0), job->size);
    if (rank == 1)
        spr_comm_abort(comm, "enough");
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_ERR_REVOKED);
    snprintf(job->shared + (rank + 1) * TEXT_BYTES, TEXT_BYTES, "# %s\n", spr_last_error(comm));
    atomic_fetch_add(job_counter(job, 1), atomic_load(&lines.count));
}

/* The error, then a line for each event. */
static void check_dump(const char *directory, int rank, const char *error)
{
    static char text[65536];
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/of-%d.txt", directory, rank);
    file = fopen(path, "re");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(unlink(path), 0);
    assert_non_null(strstr(error, "enough"));
    assert_int_equal(strncmp(text, error, strlen(error)), 0);
    assert_non_null(strstr(text, " barrier "));
    assert_non_null(strstr(text, "status=SPR_ERR_REVOKED"));
}

static void a_failure_leaves_the_last_events_in_a_file(void **state)
{
    char directory[] = "/tmp/sparring-options-XXXXXX", path[64];
    struct job job;

    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/of-%%r.txt", directory);
    start_with(&job, "SPARRING_TRACE_FILE", path, 3, "shm", run_aborted);
    assert_true(job_wait(&job, SECONDS));
    for (int r = 0; r < 3; r++)
        check_dump(directory, r, job.shared + (r + 1) * TEXT_BYTES);
    assert_int_equal(*job_counter(&job, 1), 0);
    job_expect_success(&job, SECONDS);
    assert_int_equal(rmdir(directory), 0);
    /* That is gone now. */
    start_with(&job, "SPARRING_TRACE_FILE", path, 3, "shm", run_aborted);
    assert_true(job_wait(&job, SECONDS));
    assert_int_equal(*job_counter(&job, 1), 3);
    job_expect_success(&job, SECONDS);
}

/* Connections ---------------------------------------------------------------------------------- */

static void run_congested(struct job *job, int rank, spr_comm *comm)
{
    const struct spr_tcp_link *link = (const struct spr_tcp_link *)link_to(comm, 1 - rank);
    char name[16] = "";
    socklen_t bytes = sizeof name;

    RANK_CHECK(getsockopt(link->fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0);
    RANK_CHECK(!strcmp(name, job->arg));
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
}

static bool read_line(const char *path, char *line, size_t bytes)
{
    FILE *file = fopen(path, "re");
    bool done = file && fgets(line, (int)bytes, file);

    if (file)
        fclose(file);
    line[done ? strcspn(line, "\n") : 0] = '\0';
    return done;
}

static void sockets_have_the_congestion_control_that_is_asked_for(void **state)
{
    char allowed[256], usual[64], *rest = allowed, *other;

    (void)state;
    if (!read_line("/proc/sys/net/ipv4/tcp_congestion_control", usual, sizeof usual) ||
        !read_line("/proc/sys/net/ipv4/tcp_allowed_congestion_control", allowed, sizeof allowed))
        skip();
    do
        other = strsep(&rest, " ");
    while (other && !strcmp(other, usual));
    if (!other) {
        print_message("there is none but %s\n", usual);
        skip();
    }
    for (size_t t = 0; t < job_transport_count; t++)
        if (fault_is_inside(job_transports[t])) /* TCP */
            run_with("SPARRING_CONGESTION", other, 2, job_transports[t], run_congested);
}

static void run_on_lanes(struct job *job, int rank, spr_comm *comm)
{
    const struct lanes_link *link = (const struct lanes_link *)link_to(comm, 1 - rank);
    const struct spr_transport_ops *ops = link->link.transport->ops;
    bool lanes = ops == &spr_lanes_epoll;

#ifdef HAVE_URING
    lanes |= ops == &spr_lanes_uring;
#endif
    (void)job;
    RANK_CHECK(lanes);
    RANK_CHECK(link->lanes == 3 && link->lane[0].up && link->lane[1].up && link->lane[2].up);
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
}

static void a_link_has_as_many_connections_as_are_asked_for(void **state)
{
    (void)state;
    for (size_t t = 0; t < job_transport_count; t++)
        if (fault_is_inside(job_transports[t]))
            run_with("SPARRING_SOCKETS", "3", 2, job_transports[t], run_on_lanes);
}

/* Polling -------------------------------------------------------------------------------------- */

/* Rank 1 comes late; rank 0 polls for it, or sleeps. */
static void run_patiently(struct job *job, int rank, spr_comm *comm)
{
    spr_stats before = {.struct_size = sizeof before}, after = before;

    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    RANK_CHECK(spr_comm_stats(comm, &before) == SPR_OK);
    if (rank == 0)
        atomic_store(job_counter(job, 0), 1);
    job_await(job_counter(job, 0), 1);
    if (rank == 1)
        job_pause_ms(50);
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
    RANK_CHECK(spr_comm_stats(comm, &after) == SPR_OK);
    RANK_CHECK(rank == 1 || (after.sleeps > before.sleeps) == !strcmp(job->arg, "0"));
}

static void who_shall_not_poll_sleeps(void **state)
{
    (void)state;
    assert_int_equal(setenv("SPARRING_PROGRESS", "caller", 1), 0);
    for (size_t t = 0; t < job_transport_count; t++) {
        run_with("SPARRING_SPIN", "0", 2, job_transports[t], run_patiently);
        run_with("SPARRING_SPIN", "10s", 2, job_transports[t], run_patiently);
    }
    assert_int_equal(unsetenv("SPARRING_PROGRESS"), 0);
}

/* Checksums ------------------------------------------------------------------------------------ */

static int hosts = 1;

/* Rank r is on host r % hosts. */
static void run_checked(struct job *job, int rank, spr_comm *comm)
{
    bool automatic = !strcmp(job->arg, "auto"), always = !strcmp(job->arg, "yes");

    for (int peer = 0; peer < job->size; peer++) {
        bool shared = !strcmp(spr_comm_transport(comm, peer), "shm");
        bool far = peer % hosts != rank % hosts;
        if (peer != rank)
            RANK_CHECK(comm->channel.peers[peer].checksum ==
                       (!shared && (always || (automatic && far))));
        RANK_CHECK(!shared || !far);
    }
    RANK_CHECK(spr_barrier(comm, NULL) == SPR_OK);
}

/* The last test: from here on this process is at a switch between emulated hosts. */
static void payloads_have_checksums_where_they_are_asked_for(void **state)
{
    static const char *const values[] = {"auto", "yes", "no"};
    static const char *const lists[] = {"shm,epoll", "epoll", "uring,epoll"};

    (void)state;
    if (network_build(2)) {
        hosts = 2;
        job_prepare = network_enter;
        job_interface = "eth0";
    } else {
        print_message("all ranks are on one host\n");
    }
    for (size_t l = 0; l < SPR_ARRAY_LEN(lists); l++)
        for (size_t v = 0; v < SPR_ARRAY_LEN(values); v++)
            run_with("SPARRING_CRC", values[v], 3, lists[l], run_checked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_rank_is_warned_of),
        cmocka_unit_test(a_failure_leaves_the_last_events_in_a_file),
        cmocka_unit_test(sockets_have_the_congestion_control_that_is_asked_for),
        cmocka_unit_test(a_link_has_as_many_connections_as_are_asked_for),
        cmocka_unit_test(who_shall_not_poll_sleeps),
        cmocka_unit_test(payloads_have_checksums_where_they_are_asked_for),
    };

    assert_int_equal(setenv("SPARRING_GUARDIAN", "", 1), 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
