/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/run/job.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/run/recorder.h"

static bool is_free(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool bound = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return bound;
}

/* Below the range the kernel picks from for outgoing connections: one of those could take the port
 * before rank 0 listens on it. */
static int pick_port(bool here)
{
    enum { LOWEST = 10000, TRIES = 100 };
    int first_ephemeral = 32768;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (file != NULL) {
        if (fscanf(file, "%d", &first_ephemeral) != 1 || first_ephemeral < LOWEST + 1000)
            first_ephemeral = 32768;
        fclose(file);
    }
    for (int i = 0; i < TRIES; i++) {
        uint32_t number;
        if (getrandom(&number, sizeof number, 0) != sizeof number)
            break;
        int port = LOWEST + (int)(number % (uint32_t)(first_ephemeral - LOWEST));
        if (!here || is_free(port))
            return port;
    }
    return 0;
}

/* No byte is 0 or '%', so the printf of any remote shell can hand the secret on. */
static bool make_secret(unsigned char secret[SECRET_BYTES])
{
    for (int i = 0; i < SECRET_BYTES;) {
        if (getrandom(&secret[i], 1, 0) != 1)
            return false;
        i += secret[i] != 0 && secret[i] != '%';
    }
    return true;
}

static void place_ranks(struct job *job)
{
    const struct options *options = job->options;
    int rank = 0;
    for (int host = 0; rank < job->count; host++) {
        int size = job->count;
        if (options->machines != NULL)
            size = options->machines[host].ranks;
        else if (options->links.count > 0)
            size = options->ranks_per_host;
        if (size > job->count - rank)
            size = job->count - rank;
        for (int i = 0; i < size; i++, rank++)
            job->ranks[rank] = (struct rank){.index = rank,
                                             .host = host,
                                             .local_index = i,
                                             .local_size = size,
                                             .control_fd = -1,
                                             .output = {.fd = -1},
                                             .error = {.fd = -1}};
    }
}

static bool choose_root(struct job *job)
{
    const struct options *options = job->options;
    char emulated[EMULATED_ADDRESS_BYTES] = "";
    const char *host = "127.0.0.1";
    if (options->machines != NULL) {
        const char *at = strrchr(options->machines[0].name, '@');
        host = at != NULL ? at + 1 : options->machines[0].name;
    } else if (options->links.count > 0) {
        emulated_address(0, emulated);
        host = emulated;
    }
    if (options->root_host != NULL)
        host = options->root_host;
    int port = options->root_port;
    if (port == 0 && options->links.count > 0)
        port = EMULATED_ROOT_PORT;
    if (port == 0)
        port = pick_port(options->machines == NULL);
    if (port == 0) {
        say_errno("no free port for rank 0 to listen on");
        return false;
    }
    bool bare_ipv6 = *host != '[' && strchr(host, ':') != NULL;
    int length = snprintf(job->root, sizeof job->root, bare_ipv6 ? "[%s]:%d" : "%s:%d", host, port);
    if (length < (int)sizeof job->root)
        return true;
    say("the name of rank 0's host is too long");
    return false;
}

/* On emulated hosts the rank that newcomers meet may be elsewhere than rank 0 was. */
static bool meet_in_directory(const struct job *job)
{
    return job->options->restarts > 0 && job->options->links.count > 0 &&
           recorder_directory() != NULL;
}

/* The library takes no longer place than "file:", this and "/meet". */
enum { MEETING_BYTES = 299 };

bool job_assign(struct job *job)
{
    uint64_t id;
    job->count = job->options->ranks;
    job->alive = 0;
    job->ranks = calloc((size_t)job->count, sizeof *job->ranks);
    if (job->ranks == NULL || getrandom(&id, sizeof id, 0) != sizeof id ||
        !make_secret(job->secret)) {
        say_errno("cannot make up the job");
        return false;
    }
    snprintf(job->id, sizeof job->id, "%016llx", (unsigned long long)id);
    if (meet_in_directory(job) && strlen(recorder_directory()) > MEETING_BYTES) {
        say("ranks that start again cannot meet in a directory of more than %d bytes: %s",
            MEETING_BYTES, recorder_directory());
        return false;
    }
    place_ranks(job);
    return choose_root(job);
}

void rank_identity(const struct job *job, const struct rank *rank, struct identity *identity)
{
    size_t room = sizeof identity->entries[0];
    snprintf(identity->entries[0], room, "SPARRING_RANK=%d", rank->index);
    snprintf(identity->entries[1], room, "SPARRING_SIZE=%d", job->count);
    snprintf(identity->entries[2], room, "SPARRING_LOCAL_RANK=%d", rank->local_index);
    snprintf(identity->entries[3], room, "SPARRING_LOCAL_SIZE=%d", rank->local_size);
    snprintf(identity->entries[4], room, "SPARRING_HOST_INDEX=%d", rank->host);
    snprintf(identity->entries[5], room, "SPARRING_JOB=%s", job->id);
    snprintf(identity->entries[6], room, "SPARRING_ROOT=%s", job->root);
    identity->entries[7][0] = identity->entries[8][0] = '\0';
    if (rank->joins)
        snprintf(identity->entries[7], room, "SPARRING_JOIN=1");
    if (meet_in_directory(job))
        snprintf(identity->entries[8], room, "SPARRING_MEET=file:%.*s/meet", MEETING_BYTES,
                 recorder_directory());
}
