/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Making and ending a communicator: options, bootstrap, transports, links.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/crc32c.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/rng.h"
#include "collectives/comm.h"
#include "collectives/watch.h"
#include "transport/watch/watch.h"

/* How long destroy() waits for the others' goodbye. */
#define LINGER_NS 100000000ull

/* Transports in order of preference; `auto` takes the first that works for a peer. */
static const struct {
    const char *name;
    int id;
    const struct spr_transport_ops *ops;
} known[] = {
    {"shm", SPR_T_SHM, &spr_transport_shm},
#ifdef HAVE_URING
    {"uring", SPR_T_URING, &spr_transport_uring},
#endif
    {"epoll", SPR_T_EPOLL, &spr_transport_epoll},
};

static bool is_tcp(int id) { return id != SPR_T_SHM; }

/* Options -------------------------------------------------------------------------------------- */

static spr_status replace(char **field, const char *value)
{
    char *copy;

    if (!value)
        return SPR_OK;
    copy = spr_strdup(value);
    if (!copy)
        return SPR_ERR_NOMEM;
    spr_free(*field);
    *field = copy;
    return SPR_OK;
}

static spr_status load_options(const spr_comm_options *user, struct spr_options *o,
                               struct spr_error *error)
{
    spr_status status = spr_opt_load(spr_options_table, spr_options_count, o, error);

    spr_opt_register(spr_options_table, spr_options_count);
    spr_opt_warn_unknown_env(NULL);
    if (status || !user)
        return status;
    status = replace(&o->transports, user->transports);
    if (!status)
        status = replace(&o->interface_name, user->interface_name);
    if (user->progress)
        o->progress = user->progress == SPR_PROGRESS_CALLER;
    if (user->timeout_s > 0)
        o->timeout_s = user->timeout_s;
    if (user->init_timeout_s > 0)
        o->init_timeout_s = user->init_timeout_s;
    return status;
}

/* Settings that decide what travels and when; they must be equal on all ranks. */
static uint64_t config_hash(const struct spr_options *o)
{
    const uint64_t fields[] = {SPR_FRAME_VERSION, SPR_FRAME_MAX_PAYLOAD, o->eager_bytes,
                               o->eager_window};
    uint64_t h = 0;

    for (size_t i = 0; i < SPR_ARRAY_LEN(fields); i++)
        h = spr_rng_u64(h, fields[i]);
    return h;
}

/* Is `name` in the comma-separated list? */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, name, n) && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

/* self is there in any case; a rank alone may ask for nothing else. */
static spr_status check_list(const char *list, struct spr_error *error)
{
    char word[32], names[64] = "auto,self";

    for (size_t i = 0; i < SPR_ARRAY_LEN(known); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), ",%s", known[i].name);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, ","), p);
        if (!listed(names, word))
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "unknown transport '%s' in '%s': there is %s", word, list, names);
    }
    return SPR_OK;
}

/* Who we are to the others --------------------------------------------------------------------- */

static void read_boot_id(uint8_t id[16])
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;

    if (fd >= 0)
        close(fd);
    memset(id, 0, 16);
    for (ssize_t i = 0, digit = 0; i < n && digit < 32; i++) {
        const char *hex = "0123456789abcdef", *at = strchr(hex, text[i]);
        if (!at || !text[i])
            continue;
        id[digit / 2] = (uint8_t)(id[digit / 2] << 4 | (at - hex));
        digit++;
    }
}

static void describe_self(const spr_comm *comm, struct spr_peer_info *info)
{
    struct stat st;

    memset(info, 0, sizeof *info);
    info->version = SPR_FRAME_VERSION;
    info->config_hash = comm->key.config_hash;
    read_boot_id(info->boot_id);
    info->net_namespace = stat("/proc/self/ns/net", &st) == 0 ? (uint64_t)st.st_ino : 0;
    info->pid = (uint32_t)getpid();
    info->uid = (uint32_t)getuid();
    if (comm->watch)
        spr_watch_describe(comm->watch, &info->watch);
    gethostname(info->host, sizeof info->host - 1);
    for (int i = 0; i < comm->transport_count; i++) {
        for (size_t k = 0; k < SPR_ARRAY_LEN(known); k++) {
            if (known[k].ops != comm->transports[i]->ops)
                continue;
            info->transports |= 1u << known[k].id;
            known[k].ops->address(comm->transports[i], info->address[known[k].id]);
        }
    }
}

/* Transports ----------------------------------------------------------------------------------- */

static spr_status open_one(spr_comm *comm, size_t k, bool asked_for, struct spr_error *error)
{
    struct spr_transport_params params = spr_comm_transport_params(comm);
    struct spr_error reason = {0};
    struct spr_transport *t = NULL;
    spr_status status;

    params.key = &comm->key;
    params.loopback_only = comm->key.secret_bytes == 0 && !comm->options.insecure;
    params.one_thread = comm->options.progress == 0;
    status = known[k].ops->open(&params, &t, &reason);
    if (status == SPR_OK) {
        comm->transports[comm->transport_count++] = t;
        return SPR_OK;
    }
    if (asked_for || status == SPR_ERR_INVALID) {
        *error = reason;
        return spr_error_set(error, status, comm->rank, "transport %s: %s", known[k].name,
                             spr_status_string(status));
    }
    comm->counters.fallbacks++;
    spr_trace_add(comm->trace, spr_monotonic_ns(), SPR_EV_FALLBACK, -1,
                  spr_trace_word(comm->trace, known[k].name), 0, 0);
    spr_warn(SPR_SUB_INIT, "transport %s cannot be used: %s", known[k].name, reason.text);
    return SPR_OK;
}

/* shm, and one of the two TCP twins: epoll only where io_uring is not wanted or refused. */
static spr_status open_transports(spr_comm *comm, struct spr_error *error)
{
    const char *list = comm->options.transports;
    bool any = listed(list, "auto"), have_tcp = false;
    int without = comm->transport_count;
    spr_status status = SPR_OK;

    for (size_t k = 0; status == SPR_OK && k < SPR_ARRAY_LEN(known); k++) {
        bool tcp = is_tcp(known[k].id), asked_for = listed(list, known[k].name);
        bool has_twin = known[k].id == SPR_T_URING && (any || listed(list, "epoll"));
        int before = comm->transport_count;
        if ((!asked_for && !any) || (tcp && have_tcp))
            continue;
        status = open_one(comm, k, asked_for && !has_twin, error);
        if (comm->transport_count > before && tcp) {
            have_tcp = true;
            comm->thread_only |= known[k].id == SPR_T_URING;
        }
    }
    if (status == SPR_OK && comm->transport_count == without)
        status = spr_error_set(error, SPR_ERR_UNSUPPORTED, comm->rank, "no transport of '%s' works",
                               list);
    return status;
}

static spr_status connect_peer(spr_comm *comm, int peer, struct spr_error *error)
{
    const struct spr_peer_info *mine = &comm->peers[comm->rank], *info = &comm->peers[peer];
    struct spr_link *link;
    spr_status status;

    for (size_t k = 0; k < SPR_ARRAY_LEN(known); k++) {
        for (int i = 0; i < comm->transport_count; i++) {
            struct spr_transport *t = comm->transports[i];
            /* Both ends come to the same answer; the TCP twins reach each other. */
            if (t->ops != known[k].ops || !t->ops->usable(t, mine, info))
                continue;
            status = t->ops->connect(t, peer, info, &link, error);
            if (status == SPR_OK)
                spr_channel_attach(&comm->channel, link,
                                   known[k].id != SPR_T_SHM && comm->options.crc);
            return status;
        }
    }
    return spr_error_set(error, SPR_ERR_UNSUPPORTED, peer,
                         "no transport reaches rank %d (host %s): this rank offers 0x%x, that one "
                         "0x%x; check SPARRING_TRANSPORTS, SPARRING_INTERFACE and the secret",
                         peer, info->host, mine->transports, info->transports);
}

static bool links_complete(void *arg)
{
    const spr_comm *comm = arg;

    return comm->channel.links_up == comm->size || comm->error.status;
}

/* "rank 3 (host b)" for each peer without a link. */
static void missing_links(const spr_comm *comm, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int r = 0; r < comm->size && used < bytes; r++) {
        const struct spr_link *l = comm->channel.peers[r].link;
        if (r == comm->rank || (l && l->state == SPR_LINK_UP))
            continue;
        int n = snprintf(text + used, bytes - used, "%srank %d (host %s)", used ? ", " : "", r,
                         comm->peers[r].host);
        used += n > 0 ? (size_t)n : 0;
    }
}

static spr_status connect_all(spr_comm *comm, uint64_t deadline_ns, struct spr_error *error)
{
    spr_status status = SPR_OK;
    char missing[300];
    bool complete;

    pthread_mutex_lock(&comm->lock);
    for (int r = 0; r < comm->size && status == SPR_OK; r++)
        if (r != comm->rank)
            status = connect_peer(comm, r, error);
    if (status == SPR_OK) {
        comm->background++;
        spr_comm_kick(comm);
        complete = spr_comm_drive(comm, links_complete, comm, deadline_ns);
        comm->background--;
        if (comm->error.status) {
            *error = comm->error;
            status = comm->error.status;
        } else if (!complete) {
            missing_links(comm, missing, sizeof missing);
            status = spr_error_set(error, SPR_ERR_BOOTSTRAP, -1,
                                   "rank %d: no connection within %.3g s to %s", comm->rank,
                                   comm->options.init_timeout_s, missing);
        }
    }
    pthread_mutex_unlock(&comm->lock);
    return status;
}

static spr_status open_epoll(spr_comm *comm, struct spr_error *error)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET};

    comm->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    comm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->epoll_fd < 0 || comm->wake_fd < 0 ||
        epoll_ctl(comm->epoll_fd, EPOLL_CTL_ADD, comm->wake_fd, &ev) ||
        (comm->options.progress == 1 &&
         ((comm->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) < 0 ||
          epoll_ctl(comm->epoll_fd, EPOLL_CTL_ADD, comm->timer_fd, &ev))))
        return spr_error_errno(error, SPR_ERR_SYSTEM, comm->rank, errno,
                               "rank %d: cannot create epoll and event descriptors", comm->rank);
    ev.events = EPOLLIN;
    for (int i = 0; i < comm->transport_count; i++) {
        int fd = comm->transports[i]->ops->fd(comm->transports[i]);
        if (fd >= 0 && epoll_ctl(comm->epoll_fd, EPOLL_CTL_ADD, fd, &ev))
            return spr_error_errno(error, SPR_ERR_SYSTEM, comm->rank, errno,
                                   "rank %d: cannot watch transport %s", comm->rank,
                                   comm->transports[i]->ops->name);
    }
    return SPR_OK;
}

/* One line that says what is used. */
static void announce(const spr_comm *comm)
{
    char text[160] = "";
    int local = 1;

    for (int i = 0; i < comm->transport_count; i++) {
        int n = 0;
        for (int r = 0; r < comm->size; r++)
            n += r != comm->rank && comm->channel.peers[r].link &&
                 comm->channel.peers[r].link->transport == comm->transports[i];
        if (n)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s to %d ranks",
                     *text ? ", " : "", comm->transports[i]->ops->name, n);
    }
    for (int r = 0; r < comm->size; r++)
        local += r != comm->rank && spr_peer_same_host(&comm->peers[r], &comm->peers[comm->rank]);
    spr_info(SPR_SUB_INIT, "rank %d of %d on host %s (%d ranks here): %s; progress by %s, %s",
             comm->rank, comm->size, comm->peers[comm->rank].host, local, *text ? text : "no links",
             comm->has_thread ? "thread" : "caller", comm->may_spin ? "spinning" : "sleeping");
}

static spr_status exchange(spr_comm *comm, spr_bootstrap *boot, uint64_t deadline_ns,
                           struct spr_error *error)
{
    struct spr_peer_info mine;
    spr_status status;
    int local = 0;

    comm->peers = spr_calloc((size_t)comm->size, sizeof *comm->peers);
    if (!comm->peers)
        return SPR_ERR_NOMEM;
    describe_self(comm, &mine);
    status = spr_bootstrap_allgather(boot, &mine, comm->peers, sizeof mine, deadline_ns, error);
    if (status)
        return status;
    for (int r = 0; r < comm->size; r++) {
        comm->peers[r].host[sizeof comm->peers[r].host - 1] = '\0';
        /* Containers and emulated hosts of one machine share its CPUs. */
        local += !memcmp(comm->peers[r].boot_id, mine.boot_id, sizeof mine.boot_id);
        if (comm->peers[r].version != mine.version ||
            comm->peers[r].config_hash != mine.config_hash)
            return spr_error_set(error, SPR_ERR_MISMATCH, r,
                                 "rank %d (host %s) runs another version or other settings "
                                 "(SPARRING_EAGER, SPARRING_EAGER_WINDOW) than rank %d",
                                 r, comm->peers[r].host, comm->rank);
    }
    comm->may_spin = local <= spr_cpu_usable();
    return SPR_OK;
}

static spr_status build(spr_comm *comm, spr_bootstrap *boot, uint64_t deadline_ns,
                        struct spr_error *error)
{
    spr_status status;

    status = check_list(comm->options.transports, error);
    if (status == SPR_OK && comm->size > 1)
        status = open_transports(comm, error);
    if (status == SPR_OK && comm->size > 1)
        spr_comm_watch_open(comm);
    if (status == SPR_OK)
        status = exchange(comm, boot, deadline_ns, error);
    if (status == SPR_OK)
        status = open_epoll(comm, error);
    /* The library's thread only helps when there is somebody to talk to. */
    if (status == SPR_OK && comm->options.progress == 0 && comm->size > 1)
        status = spr_comm_start_thread(comm);
    if (status == SPR_OK && comm->size > 1)
        status = connect_all(comm, deadline_ns, error);
    if (status == SPR_OK && comm->size > 1)
        spr_comm_watch_begin(comm);
    return status;
}

spr_status spr_comm_create(const spr_comm_options *user, spr_comm **out)
{
    struct spr_error *error = spr_thread_error();
    struct spr_options options = {0};
    struct spr_identity id = {0};
    struct spr_auth_key key = {0};
    spr_bootstrap boot = SPR_BOOTSTRAP_INIT;
    spr_comm *comm = NULL;
    uint64_t deadline;
    spr_status status;

    spr_error_clear(error);
    if (!out || (user && user->struct_size != sizeof *user))
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "options not set up with "
                             "SPR_COMM_OPTIONS_INIT");
    status = load_options(user, &options, error);
    if (status)
        goto undo_options;
    deadline = spr_monotonic_ns() + spr_seconds_ns(options.init_timeout_s * spr_time_factor());
    key.epoch = 1;
    key.config_hash = config_hash(&options);
    status = spr_bootstrap_open(user, &options, deadline, &id, &key, &boot, error);
    if (status)
        goto undo_options;
    spr_log_set_rank(id.rank);
    status = spr_comm_new(id.rank, id.size, &options, &spr_clock_monotonic, &comm);
    if (status)
        goto undo_boot;
    memset(&options, 0, sizeof options); /* moved */
    comm->key = key;
    spr_record_open(comm);
    status = build(comm, &boot, deadline, error);
    if (status)
        goto undo_boot;
    announce(comm);
    *out = comm;
undo_boot:
    if (boot.close)
        boot.close(boot.ctx);
    if (status && comm) {
        spr_comm_stop_thread(comm);
        spr_comm_watch_close(comm);
        spr_comm_free(comm);
    }
undo_options:
    spr_opt_free(spr_options_table, spr_options_count, &options);
    explicit_bzero(&key, sizeof key);
    if (status && !error->status)
        spr_error_set(error, status, -1, "%s", spr_status_string(status));
    return status;
}

/* Ending --------------------------------------------------------------------------------------- */

static bool everybody_left(void *arg)
{
    const spr_comm *comm = arg;
    bool idle = comm->channel.frames_out == 0;

    if (comm->error.status)
        idle = spr_channel_told(&comm->channel);
    for (int i = 0; i < comm->transport_count && idle; i++)
        idle = comm->transports[i]->ops->idle(comm->transports[i]);
    return idle && spr_list_empty(&comm->running) &&
           (comm->error.status || spr_channel_all_left(&comm->channel));
}

static bool nobody_runs(void *arg) { return spr_list_empty(&((spr_comm *)arg)->running); }

/* Say goodbye, and give the others LINGER_NS for theirs; what still runs then is cut off. */
static void finish(spr_comm *comm)
{
    uint64_t linger = (uint64_t)((double)LINGER_NS * spr_time_factor());

    comm->closing = true;
    if (!spr_list_empty(&comm->running))
        spr_comm_fail(comm, SPR_ERR_CANCELED, comm->rank, -1, "the communicator was destroyed");
    else if (!comm->error.status)
        spr_channel_bye(&comm->channel, comm->next_operation);
    comm->background++;
    spr_comm_kick(comm);
    spr_comm_drive(comm, everybody_left, comm, spr_monotonic_ns() + linger);
    if (!spr_list_empty(&comm->running)) {
        spr_channel_kill(&comm->channel);
        spr_comm_kick(comm);
        spr_comm_drive(comm, nobody_runs, comm, spr_monotonic_ns() + linger);
    }
    comm->background--;
    /* Threads that were waiting have their results now. */
    while (comm->inside > 0)
        pthread_cond_wait(&comm->changed, &comm->lock);
}

void spr_comm_destroy(spr_comm *comm)
{
    if (!comm || comm->process != spr_process()) /* a forked child leaves its parent's alone */
        return;
    pthread_mutex_lock(&comm->lock);
    if (comm->size > 1)
        finish(comm);
    pthread_mutex_unlock(&comm->lock);
    spr_comm_watch_close(comm);
    spr_comm_stop_thread(comm);
    spr_comm_free(comm);
}

void spr_comm_abort(spr_comm *comm, const char *reason)
{
    if (!comm || comm->process != spr_process()) /* the links are the parent's */
        return;
    pthread_mutex_lock(&comm->lock);
    spr_comm_fail(comm, SPR_ERR_REVOKED, comm->rank, -1, reason ? reason : "abort");
    /* Without a thread of the library, this may be our last call: let the news go now. */
    if (!comm->has_thread && !comm->driving)
        spr_comm_progress_locked(comm);
    spr_comm_kick(comm);
    pthread_mutex_unlock(&comm->lock);
}
