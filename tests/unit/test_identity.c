/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What each launcher leaves in the environment, and what is made of it. PMIx itself is left to the
 * test under mpirun.
 */
#include "transport/bootstrap/identity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"

static struct spr_identity id;
static char job_text[SPR_JOB_TEXT_BYTES];
static struct spr_error error;
static bool pmix;

/* Nothing but these: "NAME=value", NULL-terminated. */
static void environment(const char *const *settings)
{
    clearenv();
    for (; *settings; settings++) {
        char copy[600], *equals;

        snprintf(copy, sizeof(copy), "%s", *settings);
        equals = strchr(copy, '=');
        *equals = '\0';
        setenv(copy, equals + 1, 1);
    }
}

static spr_status find(const struct spr_comm_options *options)
{
    spr_error_clear(&error);
    return spr_identity_find(options, false, &id, &pmix, job_text, &error);
}

struct expected_identity {
    const char *settings[12];
    const char *source;
    int rank, size;
    const char *root; /* how it begins */
};

static const struct expected_identity good[] = {
    {{NULL}, "single", 0, 1, ""},
    {{"SPARRING_RANK=3", "SPARRING_SIZE=8", "SPARRING_ROOT=h:1"}, "SPARRING_RANK", 3, 8, "h:1"},
    {{"SPARRING_RANK=0", "SPARRING_SIZE=1"}, "SPARRING_RANK", 0, 1, ""},
    {{"RANK=2", "WORLD_SIZE=4", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500"},
     "torch",
     2,
     4,
     "10.0.0.1:29501"},
    {{"RANK=2", "WORLD_SIZE=4", "MASTER_ADDR=fd00::1", "MASTER_PORT=29500"},
     "torch",
     2,
     4,
     "[fd00::1]:29501"},
    {{"RANK=2", "WORLD_SIZE=4"}, "single", 0, 1, ""}, /* half a set of somebody */
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=4",
      "OMPI_MCA_ess_base_jobid=123"},
     "Open MPI",
     1,
     4,
     "unix:sparring."},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "SPARRING_ROOT=h:1"},
     "Open MPI",
     1,
     4,
     "h:1"},
    {{"PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALNRANKS=2"}, "PMI", 0, 2, "unix:sparring."},
    {{"SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=6", "SLURM_STEP_NUM_NODES=1", "SLURM_JOB_ID=9",
      "SLURM_STEP_ID=0"},
     "Slurm",
     5,
     6,
     "unix:sparring."},
    {{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"}, "single", 0, 1, ""},
    /* The user's own word goes before all others, whatever they say. */
    {{"SPARRING_RANK=1", "SPARRING_SIZE=2", "SPARRING_ROOT=h:1", "RANK=0", "WORLD_SIZE=9",
      "MASTER_ADDR=a", "MASTER_PORT=1", "PMI_RANK=7", "PMI_SIZE=8"},
     "SPARRING_RANK",
     1,
     2,
     "h:1"},
    /* Two that agree: the first. */
    {{"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=1", "OMPI_COMM_WORLD_RANK=1",
      "OMPI_COMM_WORLD_SIZE=4"},
     "torch",
     1,
     4,
     "a:2"},
    /* mpirun inside a Slurm step has the variables of the step that started its daemon. */
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=4",
      "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"},
     "Open MPI",
     1,
     4,
     "unix:sparring."},
    /* PMIx that is not used: passed over. */
    {{"PMIX_RANK=1", "PMIX_NAMESPACE=n", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
     "Open MPI",
     1,
     2,
     "unix:sparring."},
    {{"SPARRING_RANK=", "SPARRING_SIZE="}, "single", 0, 1, ""}, /* empty = not set */
};

static void each_launcher_is_recognised(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(good); i++) {
        const struct expected_identity *e = &good[i];

        environment(e->settings);
        if (find(NULL) != SPR_OK)
            fail_msg("case %zu: %s", i, error.text);
        if (strcmp(id.source, e->source) != 0 || id.rank != e->rank || id.size != e->size ||
            strncmp(id.root, e->root, strlen(e->root)) != 0 || (!*e->root && *id.root))
            fail_msg("case %zu: rank %d of %d by %s, root '%s'", i, id.rank, id.size, id.source,
                     id.root);
    }
}

static const struct {
    const char *settings[12];
    const char *words[3];
} bad[] = {
    {{"SPARRING_RANK=3"}, {"SPARRING_RANK=3", "SPARRING_SIZE"}},
    {{"SPARRING_SIZE=3"}, {"SPARRING_SIZE=3", "SPARRING_RANK"}},
    {{"SPARRING_RANK=3", "SPARRING_SIZE=8"}, {"SPARRING_ROOT"}},
    {{"SPARRING_RANK=8", "SPARRING_SIZE=8", "SPARRING_ROOT=h:1"}, {"SPARRING_RANK='8'", "0 to 7"}},
    {{"SPARRING_RANK=-1", "SPARRING_SIZE=8", "SPARRING_ROOT=h:1"}, {"SPARRING_RANK='-1'"}},
    {{"SPARRING_RANK=one", "SPARRING_SIZE=8", "SPARRING_ROOT=h:1"}, {"SPARRING_RANK='one'"}},
    {{"SPARRING_RANK=1x", "SPARRING_SIZE=8", "SPARRING_ROOT=h:1"}, {"SPARRING_RANK='1x'"}},
    {{"SPARRING_RANK=0", "SPARRING_SIZE=0", "SPARRING_ROOT=h:1"}, {"SPARRING_SIZE='0'"}},
    {{"SPARRING_RANK=0", "SPARRING_SIZE=99999999999", "SPARRING_ROOT=h:1"}, {"SPARRING_SIZE"}},
    {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65535"}, {"MASTER_PORT='65535'"}},
    {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=x"}, {"MASTER_PORT='x'"}},
    {{"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1"}, {"RANK='2'", "WORLD_SIZE=2"}},
    {{"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=a", "MASTER_PORT=1", "PMI_RANK=1", "PMI_SIZE=8"},
     {"torch says 4", "PMI says 8", "SPARRING_SIZE"}},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "PMI_RANK=0", "PMI_SIZE=2"},
     {"Open MPI says 4", "PMI says 2"}},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
     {"Open MPI", "several hosts", "SPARRING_ROOT"}},
    {{"PMI_RANK=1", "PMI_SIZE=4"}, {"SPARRING_ROOT"}},
    {{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NUM_NODES=2"}, {"Slurm"}},
};

static void what_cannot_be_is_refused_in_one_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(bad); i++) {
        environment(bad[i].settings);
        if (find(NULL) >= 0)
            fail_msg("case %zu: accepted, rank %d of %d by %s", i, id.rank, id.size, id.source);
        for (size_t k = 0; k < 3 && bad[i].words[k]; k++)
            if (!strstr(error.text, bad[i].words[k]))
                fail_msg("case %zu: '%s' lacks '%s'", i, error.text, bad[i].words[k]);
        assert_null(strchr(error.text, '\n'));
    }
}

static void options_go_before_the_environment(void **state)
{
    static const char *const others[] = {"SPARRING_RANK=1", "SPARRING_SIZE=2", "SPARRING_ROOT=h:1",
                                         NULL};
    struct spr_comm_options options = SPR_COMM_OPTIONS_INIT;

    (void)state;
    environment(others);
    options.rank = 4;
    options.size = 5;
    options.root = "other:2";
    assert_int_equal(find(&options), SPR_OK);
    assert_string_equal(id.source, "options");
    assert_int_equal(id.rank, 4);
    assert_string_equal(id.root, "other:2");
    options.root = NULL;
    options.file = "/some/where";
    assert_int_equal(find(&options), SPR_OK);
    assert_string_equal(id.file, "/some/where");
    assert_string_equal(id.root, "");
    options.rank = 5;
    assert_int_equal(find(&options), SPR_ERR_INVALID);
    /* Only a place: who we are still comes from the launcher. */
    options.size = 0;
    assert_int_equal(find(&options), SPR_OK);
    assert_int_equal(id.rank, 1);
    assert_string_equal(id.file, "/some/where");
}

static void numbers_in_the_options_need_a_place(void **state)
{
    static const char *const none[] = {NULL};
    static const char *const place[] = {"SPARRING_ROOT=h:1", NULL};
    static const char *const launched[] = {"RANK=2", "WORLD_SIZE=4", "MASTER_ADDR=a",
                                           "MASTER_PORT=1", NULL};
    struct spr_comm_options options = SPR_COMM_OPTIONS_INIT;

    (void)state;
    options.rank = 1;
    options.size = 2;
    for (int empty = 0; empty < 2; empty++) {
        options.root = empty ? "" : NULL;
        environment(none);
        assert_int_equal(find(&options), SPR_ERR_INVALID);
        assert_non_null(strstr(error.text, "options: rank 1 of 2, but no root or file"));
        environment(place);
        assert_int_equal(find(&options), SPR_OK);
        assert_string_equal(id.source, "options");
        assert_int_equal(id.rank, 1);
        assert_int_equal(id.size, 2);
        assert_string_equal(id.root, "h:1");
        environment(launched);
        assert_int_equal(find(&options), SPR_OK);
        assert_string_equal(id.source, "torch");
    }
    options.root = "";
    options.file = "/some/where";
    assert_int_equal(find(&options), SPR_OK);
    assert_string_equal(id.file, "/some/where");
    environment(none);
    options.file = NULL;
    options.rank = 0;
    options.size = 1;
    assert_int_equal(find(&options), SPR_OK); /* nobody to meet */
    assert_int_equal(id.size, 1);
}

static void a_place_in_the_environment_may_be_a_file(void **state)
{
    static const char *const file[] = {"SPARRING_RANK=1", "SPARRING_SIZE=2", "SPARRING_FILE=/a/b",
                                       NULL};

    (void)state;
    environment(file);
    assert_int_equal(find(NULL), SPR_OK);
    assert_string_equal(id.file, "/a/b");
}

static void jobs_have_names_of_their_own(void **state)
{
    static const char *const one[] = {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=one", NULL};
    static const char *const two[] = {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
                                      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=two", NULL};
    struct spr_auth_key key = {.rank = 0};
    uint64_t jobs[3];
    char root[300];

    (void)state;
    environment(one);
    assert_int_equal(find(NULL), SPR_OK);
    memcpy(root, id.root, sizeof(root));
    assert_int_equal(spr_identity_job(&key, job_text, &jobs[0], &error), SPR_OK);
    environment(two);
    assert_int_equal(find(NULL), SPR_OK);
    assert_string_not_equal(root, id.root);
    assert_int_equal(spr_identity_job(&key, job_text, &jobs[1], &error), SPR_OK);
    assert_true(jobs[0] != jobs[1]);
    setenv("SPARRING_JOB", "00000000000000fF", 1);
    assert_int_equal(spr_identity_job(&key, job_text, &jobs[2], &error), SPR_OK);
    assert_true(jobs[2] == 255);
    setenv("SPARRING_JOB", "0x12", 1);
    assert_int_equal(spr_identity_job(&key, job_text, &jobs[2], &error), SPR_ERR_INVALID);
    setenv("SPARRING_JOB", "11112222333344445", 1);
    assert_int_equal(spr_identity_job(&key, job_text, &jobs[2], &error), SPR_ERR_INVALID);
}

/* Hydra names no job: all ranks that one process has started, also through a shell in between. */
static void siblings_find_the_same_name(void **state)
{
    static const char *const none[] = {NULL};
    static char names[2][300], self[300];

    (void)state;
    environment(none);
    for (int rank = 0; rank < 2; rank++) {
        int ends[2];
        pid_t child;

        assert_int_equal(pipe(ends), 0);
        child = fork();
        if (child == 0) {
            char number[16];
            /* The shell in between: has the variables since its exec. */
            char *argv[] = {"sh", "-c", "\"$0\" identity >&7 && true", "/proc/self/exe", NULL};

            snprintf(number, sizeof(number), "%d", rank);
            setenv("PMI_RANK", number, 1);
            setenv("PMI_SIZE", "2", 1);
            setenv("MPI_LOCALNRANKS", "2", 1);
            dup2(ends[1], 7);
            if (readlink("/proc/self/exe", self, sizeof(self) - 1) > 0)
                argv[3] = self;
            execv(rank == 0 ? "/bin/sh" : argv[3],
                  rank == 0 ? argv : (char *[]){argv[3], "7", NULL});
            _exit(1);
        }
        close(ends[1]);
        assert_true(read(ends[0], names[rank], sizeof(names[rank]) - 1) > 0);
        close(ends[0]);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    assert_string_equal(names[0], names[1]);
}

/* As a rank: write the root that was found. */
static int tell_root(const char *how)
{
    int to = strcmp(how, "7") == 0 ? 7 : 1;

    if (find(NULL) != SPR_OK)
        return 1;
    return write(to, id.root, strlen(id.root)) > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_launcher_is_recognised),
        cmocka_unit_test(what_cannot_be_is_refused_in_one_line),
        cmocka_unit_test(options_go_before_the_environment),
        cmocka_unit_test(numbers_in_the_options_need_a_place),
        cmocka_unit_test(a_place_in_the_environment_may_be_a_file),
        cmocka_unit_test(jobs_have_names_of_their_own),
        cmocka_unit_test(siblings_find_the_same_name),
    };

    alarm(60);
    if (argc == 2)
        return tell_root(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
