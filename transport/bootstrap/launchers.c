/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The launchers that are known. To add one: a line in the table, and where its ranks meet.
 */
#include "transport/bootstrap/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/util.h"
#include "transport/bootstrap/auth_wire.h"
#include "transport/bootstrap/root_address.h"

#define MOST_ANCESTORS 16
#define ENVIRON_BYTES (1 << 18)

/* ---- Explicit, torch ---- */

static spr_status meet_explicit(const struct spr_launcher *l, struct spr_identity *id,
                                struct spr_error *error)
{
    (void)l;
    if (id->size == 1)
        return SPR_OK;
    return spr_error_set(
        error, SPR_ERR_INVALID, -1,
        "SPARRING_RANK and SPARRING_SIZE need SPARRING_ROOT=host:port of rank 0, or "
        "SPARRING_FILE=path to meet at");
}

/* MASTER_PORT itself belongs to torch's own store: the next one. */
static spr_status meet_torch(const struct spr_launcher *l, struct spr_identity *id,
                             struct spr_error *error)
{
    const char *host = getenv("MASTER_ADDR"), *text = getenv("MASTER_PORT");
    bool bare_ipv6 = host[0] != '[' && strchr(host, ':');
    char *end;
    long port;

    (void)l;
    errno = 0;
    port = strtol(text, &end, 10);
    if (end == text || *end || errno || port < 0 || port > 65534)
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "MASTER_PORT='%s' is not a port from 0 to 65534", text);
    if (strlen(host) > 255)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "MASTER_ADDR is too long");
    snprintf(id->root, sizeof(id->root), bare_ipv6 ? "[%s]:%ld" : "%s:%ld", host, port + 1);
    return SPR_OK;
}

/* ---- On one host: a socket named after the job ---- */

/* A number from the environment, or -1. */
static long number(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    char *end;
    long n;

    if (!text)
        return -1;
    n = strtol(text, &end, 10);
    return end == text || *end ? -1 : n;
}

/* Whether a process has a variable in its environment; false when that cannot be seen. */
static bool has_variable(long pid, const char *name, char *text)
{
    size_t length = strlen(name), used = 0;
    char path[64];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%ld/environ", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (used < ENVIRON_BYTES - 1 && (n = read(fd, text + used, ENVIRON_BYTES - 1 - used)) > 0)
        used += (size_t)n;
    close(fd);
    text[used] = '\0';
    for (const char *at = text; at < text + used; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return true;
    return false;
}

/* Parent and start time of a process, from /proc/<pid>/stat. */
static bool look_at(long pid, long *parent, unsigned long long *start)
{
    char path[64], text[1024];
    const char *rest;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    rest = strrchr(text, ')'); /* the name before it may contain anything */
    return rest &&
           sscanf(rest + 1,
                  " %*c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                  "%*d %llu",
                  parent, start) == 2;
}

/* The process that started the ranks of this host: the first ancestor without a rank of its own.
 * With its start time it is unique on this host. */
static void starter(const char *rank_variable, char *text, size_t bytes)
{
    long pid = getpid(), parent = 0;
    unsigned long long start = 0;
    char *environment = spr_malloc(ENVIRON_BYTES);

    for (int i = 0; environment && i < MOST_ANCESTORS && look_at(pid, &parent, &start); i++) {
        if (i > 0 && !has_variable(pid, rank_variable, environment))
            break;
        if (parent <= 1)
            break;
        pid = parent;
        start = 0; /* its own, or, where that cannot be seen, none: not that of its child */
    }
    spr_free(environment);
    snprintf(text, bytes, "process %ld.%llu", pid, start);
}

static spr_status meet_on_this_host(const struct spr_launcher *l, struct spr_identity *id,
                                    struct spr_error *error)
{
    static const struct spr_auth_key no_secret;
    uint8_t mac[SPR_AUTH_MAC_BYTES];
    char name[512];
    size_t used = 0;
    uint64_t hash;

    if (id->size == 1)
        return SPR_OK;
    if (number(l->local_size) != id->size && number(l->hosts) != 1)
        return spr_error_set(error, SPR_ERR_BOOTSTRAP, -1,
                             "%s runs %d ranks on several hosts and there is no PMIx: set "
                             "SPARRING_ROOT=host:port of rank 0 for all of them",
                             l->name, id->size);
    for (size_t i = 0; i < SPR_ARRAY_LEN(l->job) && l->job[i]; i++) {
        const char *value = getenv(l->job[i]);

        if (value && used < sizeof(name))
            used += (size_t)snprintf(name + used, sizeof(name) - used, ".%s", value);
    }
    if (used == 0)
        starter(l->rank, name, sizeof(name));
    /* Names of jobs may be longer than a socket's. */
    if (!spr_auth_hmac(&no_secret, name, strlen(name), mac))
        return spr_error_set(error, SPR_ERR_SYSTEM, -1, "libcrypto has no HMAC-SHA256");
    memcpy(&hash, mac, sizeof(hash));
    snprintf(id->root, sizeof(id->root), SPR_UNIX_PREFIX "sparring.%u.%016" PRIx64,
             (unsigned int)geteuid(), hash);
    return SPR_OK;
}

/* ---- The table ---- */

const struct spr_launcher spr_launchers[] = {
    {
        .name = "SPARRING_RANK",
        .rank = "SPARRING_RANK",
        .size = "SPARRING_SIZE",
        .explicitly = true,
        .meet = meet_explicit,
    },
    {
        .name = "torch",
        .rank = "RANK",
        .size = "WORLD_SIZE",
        .also = {"MASTER_ADDR", "MASTER_PORT"},
        .meet = meet_torch,
        .job = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
    },
    {
        /* Has no size in the environment: only told apart, see identity.c. */
        .name = "pmix",
        .rank = "PMIX_RANK",
        .also = {"PMIX_NAMESPACE"},
        .meet = meet_on_this_host,
    },
    {
        .name = "Open MPI",
        .rank = "OMPI_COMM_WORLD_RANK",
        .size = "OMPI_COMM_WORLD_SIZE",
        .meet = meet_on_this_host,
        .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
        .job = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
    },
    {
        .name = "PMI",
        .rank = "PMI_RANK",
        .size = "PMI_SIZE",
        .meet = meet_on_this_host,
        .local_size = "MPI_LOCALNRANKS",
        .job = {"PMI_PORT", "PMI_JOBID"},
    },
    {
        .name = "Slurm",
        .rank = "SLURM_PROCID",
        .size = "SLURM_STEP_NUM_TASKS",
        .inherited = true,
        .lone_is_nothing = true,
        .meet = meet_on_this_host,
        .hosts = "SLURM_STEP_NUM_NODES",
        .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
    },
};
const size_t spr_launchers_count = SPR_ARRAY_LEN(spr_launchers);
