/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The network between hosts breaks under a job of one rank per host: cables that are pulled, lose
 * what goes one way or become slow, connections that are reset, a host whose power fails. What
 * heals in time changes nothing; the rest ends with an error on every rank that names who is lost,
 * and at most one group of the ranks goes on.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "tests/multi/faults.h"
#include "tests/multi/job.h"
#include "tests/multi/network.h"

#define SECONDS 60
#define MOST_RANKS 3
#define EXPEL "2s" /* on a loaded machine a rank may well say nothing for half a second */

/* How it ended for a rank. */
struct end {
    spr_status status;
    char text[800];
    spr_status shrunk; /* what spr_comm_shrink said after it */
    int size;          /* of the group that goes on */
};

/* In shared memory. */
struct scene {
    _Atomic int ready, rounds, failed, enough;
    struct end of[MOST_RANKS];
};

static bool network; /* it could be built */
static struct job job;
static struct scene *scene;

/* In the ranks --------------------------------------------------------------------------------- */

static spr_status one_round(spr_comm *comm, bool *enough)
{
    enum { N = 100000 };
    static float x[N];
    spr_call_options options = SPR_CALL_OPTIONS_INIT;
    float ranks = (float)spr_comm_size(comm), sum = 0;
    spr_status status;

    options.name = "layer3";
    for (int r = 0; r < spr_comm_size(comm); r++)
        sum += (float)(spr_comm_initial_rank(comm, r) + 1);
    for (size_t i = 0; i < N; i++)
        x[i] = (float)(spr_comm_initial_rank(comm, spr_comm_rank(comm)) + 1) * (float)(i % 100);
    x[0] = (float)atomic_load(&scene->enough);
    status = spr_allreduce(comm, x, x, N, SPR_FP32, SPR_SUM, &options);
    for (size_t i = 1; status == SPR_OK && i < N; i++)
        RANK_CHECK(x[i] == sum * (float)(i % 100));
    *enough = x[0] == ranks;
    return status;
}

static void run_rank(struct job *j, int rank, spr_comm *comm)
{
    struct end *end = &scene->of[rank];
    spr_shrink_info info = SPR_SHRINK_INFO_INIT;
    bool enough = false;

    (void)j;
    atomic_fetch_add(&scene->ready, 1);
    while (!enough && end->status == SPR_OK) {
        end->status = one_round(comm, &enough);
        if (rank == 0)
            atomic_fetch_add(&scene->rounds, 1);
    }
    if (end->status == SPR_OK)
        return;
    snprintf(end->text, sizeof end->text, "%s", spr_last_error(comm));
    /* The one that most scenes cut off need not wait long for an answer. */
    end->shrunk = spr_comm_shrink(comm, rank == 1 ? 1 : 5, &info);
    end->size = spr_comm_size(comm);
    if (end->shrunk == SPR_OK)
        RANK_CHECK(one_round(comm, &enough) == SPR_OK);
    else if (end->shrunk == SPR_ERR_EXPELLED) /* all calls say so from then on */
        RANK_CHECK(spr_barrier(comm, NULL) == SPR_ERR_EXPELLED);
    atomic_fetch_add(&scene->failed, 1);
}

/* In the test ---------------------------------------------------------------------------------- */

/* The longest time that this process had no CPU while it waited, in the scene. */
static uint64_t longest_gap_ns;
/* In the last scene the machine stood still, and all ranks blame one that was silent itself. */
static bool stood_still;

static void reach(_Atomic int *count, int value)
{
    uint64_t last = spr_monotonic_ns();

    for (int ms = 0; atomic_load(count) < value; ms++) {
        if (ms > SECONDS * 1000 * spr_time_factor())
            fail_msg("%d instead of %d over %s", atomic_load(count), value, job.transports);
        fault_pause_us(1000);
        uint64_t now = spr_monotonic_ns();
        longest_gap_ns = now - last > longest_gap_ns ? now - last : longest_gap_ns;
        last = now;
    }
}

/* A job whose connections all have moved data. */
static void start(int ranks, const char *transport)
{
    memset(scene, 0, sizeof *scene);
    longest_gap_ns = 0;
    job_start(&job, ranks, transport, run_rank, NULL);
    reach(&scene->ready, ranks);
    reach(&scene->rounds, 3);
    network_await(ranks);
}

/* The job has ended, but for `dead` (a rank that was killed; -1 = none) in order, and nothing is
 * left of it. At most one group went on. */
static void finish(int dead)
{
    int group = 0;

    assert_true(job_wait(&job, SECONDS));
    munmap(job.shared, JOB_SHARED_BYTES);
    stood_still = longest_gap_ns > 1000000000u;
    for (int r = 0; r < job.size; r++) {
        const struct end *e = &scene->of[r];
        stood_still = stood_still && strstr(e->text, "it gave no heartbeat for ");
        assert_int_equal(job.codes[r], r == dead ? 128 + SIGKILL : 0);
        group += e->status && e->shrunk == SPR_OK;
        if (*e->text)
            printf("%s: rank %d: %s\n", job.transports, r, e->text);
    }
    for (int r = 0; r < job.size; r++) {
        const struct end *e = &scene->of[r];
        if (e->status && e->shrunk == SPR_OK && e->size != group)
            fail_msg("over %s, rank %d goes on with %d ranks, but %d go on in all", job.transports,
                     r, e->size, group);
        /* The guardians, too. */
        for (int ms = 0; network_processes(r) > 0; ms++) {
            assert_true(ms < SECONDS * 1000);
            fault_pause_us(1000);
        }
    }
}

/* The error of a rank is one line that names one of two ranks and says `why`. One that the others
 * did without may have been told so before it noticed anything: then it names itself. */
static void expect(int rank, int lost, int or_lost, const char *why)
{
    const struct end *e = &scene->of[rank];
    bool told = e->status == SPR_ERR_EXPELLED, named = false;
    const int names[] = {lost, or_lost, rank};

    if (stood_still)
        return;
    for (size_t i = 0; i < SPR_ARRAY_LEN(names) - !told; i++) {
        char begin[64];
        snprintf(begin, sizeof begin, "rank %d (host h%d) was ", names[i], names[i]);
        named |= !strncmp(e->text, begin, strlen(begin));
    }
    if ((e->status != SPR_ERR_RANK_LOST && !told) || strchr(e->text, '\n') || !named ||
        (!strstr(e->text, why) && !(told && strstr(e->text, "the others go on without it"))))
        fail_msg("over %s, rank %d does not name rank %d or %d, and '%s': %s: %s", job.transports,
                 rank, lost, or_lost, why, spr_status_name(e->status), e->text);
}

static void expect_shrunk(int rank, spr_status status, int size)
{
    if (stood_still)
        return;
    assert_int_equal(scene->of[rank].shrunk, status);
    if (status == SPR_OK)
        assert_int_equal(scene->of[rank].size, size);
}

/* Runs a scene over each transport between hosts. */
static void on_each(int ranks, const char *expel, void (*play)(void))
{
    struct fault_census before;

    if (!network) {
        print_message("needs emulated hosts\n");
        skip();
    }
    before = fault_census_take();
    setenv("SPARRING_EXPEL", expel, 1);
    for (size_t t = 0; t < job_transport_count; t++) {
        if (!fault_is_inside(job_transports[t]))
            continue;
        int left = 4;
        do {
            start(ranks, job_transports[t]);
            play();
            if (stood_still)
                printf("the machine stood still for %.1f s\n", (double)longest_gap_ns * 1e-9);
        } while (stood_still && --left > 0);
        assert_false(stood_still);
    }
    fault_census_expect(&before);
}

/* After a test that failed half-way, for the next one. */
static int tidy(void **state)
{
    int left = 0;

    (void)state;
    for (int r = 0; r < job.size; r++) {
        if (job.pids[r] <= 0)
            continue;
        kill(job.pids[r], SIGKILL);
        waitpid(job.pids[r], NULL, 0);
        job.pids[r] = 0;
        left++;
    }
    for (int r = 0; left > 0 && r < MOST_RANKS; r++) {
        network_cable(r, true);
        network_rate(r, NETWORK_RATE);
        for (int peer = 0; peer < MOST_RANKS; peer++)
            if (peer != r)
                network_mute(r, peer, false);
    }
    return 0;
}

static void need_resets(void)
{
    if (!network || network_can_reset())
        return;
    print_message("needs a kernel with CONFIG_INET_DIAG_DESTROY\n");
    skip();
}

/* It does not break. */
static void go_on(void)
{
    reach(&scene->rounds, atomic_load(&scene->rounds) + 3);
    atomic_store(&scene->enough, 1);
    finish(-1);
    for (int r = 0; r < job.size; r++)
        assert_true(stood_still || scene->of[r].status == SPR_OK);
}

/* Cables --------------------------------------------------------------------------------------- */

static void play_flapping(void)
{
    for (int i = 0; i < fault_repeats(3, 100); i++) {
        network_cable(i % job.size, false);
        fault_pause_us(150000);
        network_cable(i % job.size, true);
        fault_pause_us(300000); /* TCP tries again after 200 ms, then 400 ms */
    }
    go_on();
}

static void a_cable_that_is_back_in_time_changes_nothing(void **state)
{
    (void)state;
    on_each(3, "20s", play_flapping);
}

/* The heartbeats have connections of their own, in which no data is before them. */
static void play_slow(void)
{
    network_rate(1, NETWORK_RATE / 50);
    go_on();
    network_rate(1, NETWORK_RATE);
}

static void nobody_is_expelled_for_a_link_that_becomes_slow(void **state)
{
    (void)state;
    on_each(3, "3s", play_slow);
}

static void expect_expulsion_of_1(void)
{
    expect(0, 1, 1, "expelled: no heartbeat for ");
    expect(1, 0, job.size - 1, "no heartbeat for ");
    expect_shrunk(0, SPR_OK, job.size - 1);
    expect_shrunk(1, SPR_ERR_EXPELLED, 0);
    if (job.size < 3)
        return;
    expect(2, 1, 1, "expelled: no heartbeat for ");
    expect_shrunk(2, SPR_OK, 2);
}

static void play_pulled(void)
{
    network_cable(1, false);
    reach(&scene->failed, job.size);
    network_cable(1, true);
    finish(-1);
    expect_expulsion_of_1();
}

static void a_rank_whose_cable_stays_out_is_expelled(void **state)
{
    (void)state;
    on_each(3, EXPEL, play_pulled);
}

static void of_two_whose_cable_stays_out_the_first_goes_on(void **state)
{
    (void)state;
    on_each(2, EXPEL, play_pulled);
}

/* Back after the expulsion, while it still wants to go on. */
static void play_late(void)
{
    network_cable(1, false);
    reach(&scene->failed, job.size - 1);
    network_cable(1, true);
    finish(-1);
    expect_expulsion_of_1();
}

static void a_cable_that_is_back_too_late_brings_no_rank_back(void **state)
{
    (void)state;
    on_each(3, EXPEL, play_late);
}

static void play_mute(void)
{
    network_mute(1, 0, true);
    network_mute(1, 2, true);
    reach(&scene->failed, job.size);
    network_mute(1, 0, false);
    network_mute(1, 2, false);
    finish(-1);
    expect_expulsion_of_1();
}

static void a_rank_that_hears_but_is_not_heard_is_expelled(void **state)
{
    (void)state;
    on_each(3, EXPEL, play_mute);
}

/* Either end may be the one that is lost to the other two. */
static void play_mute_to_one(void)
{
    network_mute(0, 1, true);
    reach(&scene->failed, job.size);
    network_mute(0, 1, false);
    finish(-1);
    for (int r = 0; r < job.size; r++)
        expect(r, 0, 1, "no heartbeat for ");
}

static void loss_from_one_rank_to_another_names_one_of_them(void **state)
{
    (void)state;
    on_each(3, EXPEL, play_mute_to_one);
}

/* Connections ---------------------------------------------------------------------------------- */

static void play_reset(enum network_connection which, const char *why)
{
    int last = job.size - 1;

    network_reset(last - 1, last, which);
    reach(&scene->failed, job.size);
    finish(-1);
    for (int r = 0; r < job.size; r++)
        expect(r, last - 1, last, why);
}

static void play_reset_data(void) { play_reset(NETWORK_DATA, "connection "); }
static void play_reset_control(void) { play_reset(NETWORK_CONTROL, "its control connection: "); }

/* A reset proves no death: not both ends may go on, neither beside others nor alone. */
static void a_data_connection_that_is_reset_is_named_by_its_ends(void **state)
{
    (void)state;
    need_resets();
    for (int ranks = 2; ranks <= 3; ranks++)
        on_each(ranks, "20s", play_reset_data);
}

static void so_is_one_of_the_control_mesh(void **state)
{
    (void)state;
    need_resets();
    for (int ranks = 2; ranks <= 3; ranks++)
        on_each(ranks, "20s", play_reset_control);
}

/* Hosts ---------------------------------------------------------------------------------------- */

static void expect_loss_of_1(const char *why)
{
    for (int r = 0; r < job.size; r += 2) {
        expect(r, 1, 1, why);
        expect_shrunk(r, SPR_OK, 2);
    }
}

/* Half-open: the others still hold connections of which their end knows nothing. */
static void play_restart(void)
{
    network_cable(1, false);
    network_power_off(1);
    network_cable(1, true);
    reach(&scene->failed, job.size - 1);
    finish(1);
    expect_loss_of_1("connection ");
}

static void a_host_that_comes_back_without_its_connections_is_noticed(void **state)
{
    (void)state;
    need_resets();
    on_each(3, "20s", play_restart);
}

static void play_power_off(void)
{
    network_cable(1, false);
    network_power_off(1);
    reach(&scene->failed, job.size - 1);
    network_cable(1, true);
    finish(1);
    expect_loss_of_1("expelled: no heartbeat for ");
}

static void so_is_one_that_does_not_come_back(void **state)
{
    (void)state;
    need_resets();
    on_each(3, EXPEL, play_power_off);
}

/* Its guardian's words, or its end of file, wait in the kernel. */
static void play_death_behind_the_cable(void)
{
    network_cable(1, false);
    kill(job.pids[1], SIGKILL);
    fault_pause_us(100000);
    network_cable(1, true);
    reach(&scene->failed, job.size - 1);
    finish(1);
    expect_loss_of_1("");
}

static void a_death_behind_a_pulled_cable_is_told_when_that_is_back(void **state)
{
    (void)state;
    on_each(3, "20s", play_death_behind_the_cable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_cable_that_is_back_in_time_changes_nothing, tidy),
        cmocka_unit_test_teardown(nobody_is_expelled_for_a_link_that_becomes_slow, tidy),
        cmocka_unit_test_teardown(a_rank_whose_cable_stays_out_is_expelled, tidy),
        cmocka_unit_test_teardown(of_two_whose_cable_stays_out_the_first_goes_on, tidy),
        cmocka_unit_test_teardown(a_cable_that_is_back_too_late_brings_no_rank_back, tidy),
        cmocka_unit_test_teardown(a_rank_that_hears_but_is_not_heard_is_expelled, tidy),
        cmocka_unit_test_teardown(loss_from_one_rank_to_another_names_one_of_them, tidy),
        cmocka_unit_test_teardown(a_data_connection_that_is_reset_is_named_by_its_ends, tidy),
        cmocka_unit_test_teardown(so_is_one_of_the_control_mesh, tidy),
        cmocka_unit_test_teardown(a_host_that_comes_back_without_its_connections_is_noticed, tidy),
        cmocka_unit_test_teardown(so_is_one_that_does_not_come_back, tidy),
        cmocka_unit_test_teardown(a_death_behind_a_pulled_cable_is_told_when_that_is_back, tidy),
    };
    const char *build = getenv("top_builddir");
    char guardian[4096];

    snprintf(guardian, sizeof guardian, "%s/tools/sparring-guardian", build ? build : ".");
    setenv("SPARRING_GUARDIAN", guardian, 1);
    setenv("SPARRING_SUSPECT", "200ms", 1);
    setenv("SPARRING_LOG", "error", 1); /* that they are suspected is right */
    scene = mmap(NULL, sizeof *scene, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (scene == MAP_FAILED)
        return 1;
    network = network_build(MOST_RANKS);
    job_prepare = network_enter;
    job_interface = "eth0";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
