/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/bootstrap/bootstrap.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/bootstrap/identity.h"
#include "transport/bootstrap/root.h"
#include "transport/bootstrap/root_file.h"
#include "transport/bootstrap/secret.h"

#define MS 1000000ull
#define WAIT_MOST (100 * MS) /* one wait of a bootstrap of ours, which wakes up by itself */
#define POLL_FIRST 20000ull  /* pauses between two tests of another's bootstrap */
#define POLL_MOST (2 * MS)

/* ---- Opening ---- */

/* The user's own: it says who we are. */
static spr_status open_given(spr_bootstrap *given, struct spr_identity *id, spr_bootstrap *boot,
                             struct spr_error *error)
{
    memset(id, 0, sizeof(*id));
    if (given->struct_size < sizeof(*given) || !given->allgather || !given->test ||
        given->size == 0 || given->size > INT32_MAX || given->rank >= given->size)
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "the bootstrap in the options is not complete (rank %u of %u)",
                             given->rank, given->size);
    id->source = "options";
    id->rank = (int)given->rank;
    id->size = (int)given->size;
    *boot = *given;
    return SPR_OK;
}

static spr_status open_root(const struct spr_options *opts, const struct spr_identity *id,
                            const struct spr_auth_key *key, uint64_t deadline_ns,
                            spr_bootstrap *boot, struct spr_error *error)
{
    bool loopback_only = key->secret_bytes == 0 && !opts->insecure;

    if (id->size == 1)
        return spr_bootstrap_single(boot);
    if (id->root[0])
        return spr_bootstrap_tcp(id->root, key, loopback_only, deadline_ns, boot, error);
    return spr_root_file(id->file, key, loopback_only, deadline_ns, boot, error);
}

/* Whoever the environment says; PMIx only when it works. */
static spr_status open_found(const struct spr_comm_options *options, const struct spr_options *opts,
                             uint64_t deadline_ns, struct spr_identity *id,
                             struct spr_auth_key *key, spr_bootstrap *boot, struct spr_error *error)
{
    char job_text[SPR_JOB_TEXT_BYTES];
    struct spr_error why = {.status = SPR_OK};
    bool pmix = false;
    spr_status status = spr_identity_find(options, true, id, &pmix, job_text, error);

    if (status == SPR_OK && pmix) {
        const char *name = getenv("PMIX_NAMESPACE");

        snprintf(job_text, sizeof(job_text), "%s", name ? name : "");
        if (spr_bootstrap_pmix(boot, id, &why) == SPR_OK)
            goto found;
        spr_warn(SPR_SUB_INIT, "started with PMIx, but %s; looking for another way", why.text);
        status = spr_identity_find(options, false, id, &pmix, job_text, error);
    }
    if (status != SPR_OK)
        return status;
found:
    key->rank = id->rank;
    key->size = id->size;
    status = spr_identity_job(key, job_text, &key->job, error);
    if (status == SPR_OK && !pmix)
        return open_root(opts, id, key, deadline_ns, boot, error);
    if (status != SPR_OK && pmix) {
        boot->close(boot->ctx);
        *boot = (spr_bootstrap)SPR_BOOTSTRAP_INIT; /* the caller closes what it finds there */
    }
    return status;
}

spr_status spr_bootstrap_open(const struct spr_comm_options *options,
                              const struct spr_options *opts, uint64_t deadline_ns,
                              struct spr_identity *identity, struct spr_auth_key *key,
                              spr_bootstrap *boot, struct spr_error *error)
{
    spr_status status = spr_secret_load(options, key, error);

    if (status != SPR_OK)
        return status;
    if (options && options->bootstrap) {
        status = open_given(options->bootstrap, identity, boot, error);
        key->rank = identity->rank;
        key->size = identity->size;
        if (status == SPR_OK)
            status = spr_identity_job(key, "", &key->job, error);
    } else {
        status = open_found(options, opts, deadline_ns, identity, key, boot, error);
    }
    if (status != SPR_OK) {
        explicit_bzero(key->secret, sizeof(key->secret));
        key->secret_bytes = 0;
        return status;
    }
    spr_info(SPR_SUB_INIT, "rank %d of %d, by %s%s%s, %s secret", identity->rank, identity->size,
             identity->source, identity->root[0] || identity->file[0] ? "; root " : "",
             identity->root[0] ? identity->root : identity->file,
             key->secret_bytes > 0 ? "with a" : "no");
    return SPR_OK;
}

/* ---- Exchanging ---- */

static void pause_until(uint64_t until_ns, uint64_t most_ns)
{
    uint64_t now = spr_monotonic_ns();
    uint64_t ns = until_ns > now ? spr_min_u64(until_ns - now, most_ns) : 0;
    struct timespec left = {(time_t)(ns / (1000 * MS)), (long)(ns % (1000 * MS))};

    (void)ppoll(NULL, 0, &left, NULL);
}

static spr_status failure(spr_bootstrap *boot, spr_status status, struct spr_error *error)
{
    const struct spr_root *root = spr_root_of(boot);
    const char *text = boot->error ? boot->error(boot->ctx) : NULL;

    return spr_error_set(error, status, root ? root->error.rank : -1, "%s",
                         text ? text : spr_status_string(status));
}

spr_status spr_bootstrap_begin(spr_bootstrap *boot, const void *in, void *out, size_t bytes,
                               void **request, struct spr_error *error)
{
    spr_status status = boot->allgather(boot->ctx, in, out, bytes, request);

    return status == SPR_OK ? SPR_OK : failure(boot, status, error);
}

spr_status spr_bootstrap_await(spr_bootstrap *boot, void *request, uint64_t until_ns,
                               struct spr_error *error)
{
    struct spr_root *root = spr_root_of(boot);
    uint64_t pause = POLL_FIRST;
    spr_status status;

    while ((status = boot->test(boot->ctx, request)) == SPR_IN_PROGRESS) {
        uint64_t now = spr_monotonic_ns();

        if (now >= until_ns)
            return SPR_IN_PROGRESS;
        if (root) {
            root->side->wait(root, spr_min_u64(until_ns, now + WAIT_MOST));
        } else {
            pause_until(until_ns, pause);
            pause = spr_min_u64(pause * 3 / 2, POLL_MOST);
        }
    }
    return status == SPR_OK ? SPR_OK : failure(boot, status, error);
}

spr_status spr_bootstrap_ended(void *ctx, void *request)
{
    (void)ctx;
    (void)request;
    return SPR_OK;
}

spr_status spr_bootstrap_allgather(spr_bootstrap *boot, const void *in, void *out, size_t bytes,
                                   uint64_t deadline_ns, struct spr_error *error)
{
    void *request = NULL;
    spr_status status = spr_bootstrap_begin(boot, in, out, bytes, &request, error);

    if (status == SPR_OK)
        status = spr_bootstrap_await(boot, request, deadline_ns, error);
    return status == SPR_IN_PROGRESS ? failure(boot, SPR_ERR_BOOTSTRAP, error) : status;
}
