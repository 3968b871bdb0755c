/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Which transport would link which ranks, by the functions that make communicators. As ranks of a
 * job the processes tell each other what they offer, as communicators do; alone, this host is
 * compared with itself and with a host that is like it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "collectives/create.h"
#include "tools/info/report.h"
#include "transport/bootstrap/bootstrap.h"

struct info_job {
    spr_comm *comm;
    spr_bootstrap boot;
    struct spr_identity id;
    uint64_t deadline_ns;
    bool alone;
};

/* What ranks that are alone are called in a table of two. */
#define HERE "this host"

static bool complain(const struct spr_error *error, spr_status status)
{
    fprintf(stderr, "sparring-info: %s\n",
            error->text[0] ? error->text : spr_status_string(status));
    return false;
}

/* Jobs have secrets: sparring-run sees to it. Without one nothing beyond loopback is used. */
static spr_status assume_job(struct info_job *job, struct spr_auth_key *key)
{
    job->id.rank = 0;
    job->id.size = 2;
    key->rank = 0;
    key->size = 2;
    if (key->secret_bytes)
        return SPR_OK;
    key->secret_bytes = 32;
    return getrandom(key->secret, key->secret_bytes, 0) == (ssize_t)key->secret_bytes
               ? SPR_OK
               : SPR_ERR_SYSTEM;
}

static spr_status open_comm(struct info_job *job, const char *transports, struct spr_error *error)
{
    spr_comm_options user = SPR_COMM_OPTIONS_INIT;
    struct spr_options options = {0};
    struct spr_auth_key key = {0};
    spr_status status;

    user.transports = transports;
    status = spr_comm_load_options(&user, &options, error);
    if (status == SPR_OK)
        status = spr_comm_check_transports(options.transports, error);
    if (status == SPR_OK) {
        job->deadline_ns =
            spr_monotonic_ns() + (uint64_t)(options.init_timeout_s * spr_time_factor() * 1e9);
        key.epoch = 1;
        key.config_hash = spr_comm_config_hash(&options, 0);
        status = spr_bootstrap_open(&user, &options, job->deadline_ns, &job->id, &key, &job->boot,
                                    error);
    }
    job->alone = job->id.size == 1;
    if (status == SPR_OK && job->alone)
        status = assume_job(job, &key);
    if (status == SPR_OK)
        status =
            spr_comm_new(job->id.rank, job->id.size, &options, &spr_clock_monotonic, &job->comm);
    if (status == SPR_OK) {
        memset(&options, 0, sizeof options); /* moved */
        job->comm->key = key;
        spr_log_set_rank(job->alone ? -1 : job->id.rank);
    }
    spr_opt_free(spr_options_table, spr_options_count, &options);
    explicit_bzero(&key, sizeof key);
    return status;
}

int job_open(struct info_job **out, const char *transports)
{
    struct info_job *job = calloc(1, sizeof *job);
    struct spr_error error = {0};
    spr_status status;

    if (!job) {
        fprintf(stderr, "sparring-info: out of memory\n");
        return 1;
    }
    job->boot = (spr_bootstrap)SPR_BOOTSTRAP_INIT;
    status = open_comm(job, transports, &error);
    if (status) {
        job_close(job);
        (void)complain(&error, status);
        return status == SPR_ERR_INVALID ? 2 : 1;
    }
    *out = job;
    return 0;
}

const struct spr_options *job_options(const struct info_job *job) { return &job->comm->options; }

bool job_loopback_only(const struct info_job *job)
{
    return job->comm->key.secret_bytes == 0 && !job->comm->options.insecure;
}

bool job_first(const struct info_job *job) { return job->id.rank == 0; }

void job_close(struct info_job *job)
{
    if (job->boot.close)
        job->boot.close(job->boot.ctx);
    if (job->comm)
        spr_comm_discard(job->comm);
    free(job);
}

/* Pairs -----------------------------------------------------------------------------------------
 */

static void decide(struct info_pair *pair, const struct spr_peer_info *a,
                   const struct spr_peer_info *b)
{
    const char *unused[SPR_T_COUNT];

    pair->kind = spr_transport_choose(a, b, pair->why_not);
    pair->back = spr_transport_choose(b, a, unused);
    pair->pairs = 1;
}

static bool same(const struct info_pair *a, const struct info_pair *b)
{
    return a->kind == b->kind && a->back == b->back &&
           !memcmp(a->why_not, b->why_not, sizeof a->why_not);
}

static bool compare_alone(const struct spr_comm *comm, struct info_choice *c)
{
    struct spr_peer_info mine, near, far;

    c->pairs = calloc(2, sizeof *c->pairs);
    if (!c->pairs)
        return false;
    spr_comm_describe(comm, &mine);
    near = far = mine;
    near.pid++;
    far.boot_id[0] ^= 1;
    far.net_namespace++;
    decide(&c->pairs[0], &mine, &near);
    decide(&c->pairs[1], &mine, &far);
    for (size_t k = 0; k < spr_transport_kinds_count; k++)
        for (int i = 0; i < 2; i++)
            if (c->pairs[i].why_not[k] && !c->offers[k].open)
                c->pairs[i].why_not[k] = c->offers[k].why_not;
    snprintf(c->pairs[0].from, sizeof c->pairs[0].from, HERE);
    snprintf(c->pairs[0].to, sizeof c->pairs[0].to, HERE);
    snprintf(c->pairs[1].from, sizeof c->pairs[1].from, HERE);
    snprintf(c->pairs[1].to, sizeof c->pairs[1].to, "a host like it");
    c->pair_count = 2;
    return true;
}

/* The number of the host of each rank; returns how many hosts there are. */
static int number_hosts(const struct spr_comm *comm, int *host)
{
    int count = 0;

    for (int r = 0; r < comm->size; r++) {
        int other = 0;
        while (other < r && !spr_peer_same_host(&comm->peers[other], &comm->peers[r]))
            other++;
        host[r] = other < r ? host[other] : count++;
    }
    return count;
}

/* Add to the entries of these two hosts; `latest`: the last of them, which leads to the others. */
static bool add_pair(struct info_choice *c, size_t *latest, const struct spr_peer_info *a,
                     const struct spr_peer_info *b)
{
    struct info_pair pair = {0}, *more;

    decide(&pair, a, b);
    for (size_t i = *latest; i; i = c->pairs[i - 1].next)
        if (same(&c->pairs[i - 1], &pair)) {
            c->pairs[i - 1].pairs++;
            return true;
        }
    if ((c->pair_count & (c->pair_count - 1)) == 0) {
        more = realloc(c->pairs, (c->pair_count ? 2 * c->pair_count : 1) * sizeof *more);
        if (!more)
            return false;
        c->pairs = more;
    }
    snprintf(pair.from, sizeof pair.from, "%s", a->host);
    snprintf(pair.to, sizeof pair.to, "%s", b->host);
    pair.next = *latest;
    c->pairs[c->pair_count++] = pair;
    *latest = c->pair_count;
    return true;
}

static bool compare_ranks(const struct spr_comm *comm, struct info_choice *c)
{
    size_t n = (size_t)comm->size, hosts;
    int *host = calloc(n, sizeof *host);
    size_t *latest = NULL;
    bool done = host != NULL;

    if (done) {
        hosts = (size_t)number_hosts(comm, host);
        latest = calloc(hosts * hosts, sizeof *latest);
        done = latest != NULL;
        for (int i = 0; done && i < comm->size; i++)
            for (int j = i + 1; done && j < comm->size; j++)
                done = add_pair(c, &latest[(size_t)host[i] * hosts + (size_t)host[j]],
                                &comm->peers[i], &comm->peers[j]);
    }
    free(host);
    free(latest);
    return done;
}

bool job_choose(struct info_job *job, struct report *r)
{
    struct info_choice *c = &r->choice;
    spr_comm *comm = job->comm;
    struct spr_error error = {0};
    spr_status status;
    bool done;

    *c = (struct info_choice){.in_job = !job->alone, .rank = job->id.rank, .size = job->id.size};
    snprintf(c->source, sizeof c->source, "%s", job->id.source);
    snprintf(c->asked, sizeof c->asked, "%s", comm->options.transports);
    /* What cannot be opened is not offered; the others want to hear of it. */
    if (spr_comm_open_transports(comm, c->offers, &error))
        snprintf(c->error, sizeof c->error, "%s", error.text);
    if (job->alone) {
        done = compare_alone(comm, c);
    } else {
        error = (struct spr_error){0};
        status = spr_comm_exchange(comm, &job->boot, job->deadline_ns, &error);
        if (status)
            return complain(&error, status);
        done = job->id.rank != 0 || compare_ranks(comm, c);
    }
    if (!done)
        fprintf(stderr, "sparring-info: out of memory\n");
    return done;
}

bool job_gather(struct info_job *job, const struct findings *mine, struct report *r)
{
    size_t n = job->alone ? 1 : (size_t)job->id.size;
    struct spr_error error = {0};
    spr_status status = SPR_OK;

    r->doctor = calloc(n, sizeof *r->doctor);
    if (!r->doctor) {
        fprintf(stderr, "sparring-info: out of memory\n");
        return false;
    }
    r->doctor_count = (int)n;
    r->doctor[0] = *mine;
    if (!job->alone)
        status = spr_bootstrap_allgather(&job->boot, mine, r->doctor, sizeof *mine,
                                         job->deadline_ns, &error);
    return status == SPR_OK || complain(&error, status);
}
