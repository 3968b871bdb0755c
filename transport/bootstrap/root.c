/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/bootstrap/root.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

/* ---- The bootstrap's functions ---- */

static spr_status root_allgather(void *ctx, const void *in, void *out, size_t bytes, void **request)
{
    struct spr_root *r = ctx;

    assert(!r->active);
    if (r->error.status != SPR_OK)
        return r->error.status;
    r->active = true;
    r->sequence++;
    r->in = in;
    r->out = out;
    r->bytes = bytes;
    r->side->begin(r);
    *request = r;
    return SPR_OK;
}

static spr_status root_test(void *ctx, void *request)
{
    struct spr_root *r = ctx;
    spr_status status;

    assert(request == r && r->active);
    (void)request;
    status = r->side->step(r);
    if (status == SPR_IN_PROGRESS && spr_monotonic_ns() >= r->deadline_ns &&
        !(r->side == &spr_root_server_side && spr_root_meeting_settle(r))) {
        status = r->side->explain(r, r->line, sizeof(r->line));
        spr_error_set(&r->error, status, -1, "%s", r->line);
        status = r->error.status; /* an earlier cause stays */
    }
    if (status < 0)
        r->side->tell(r);
    if (status != SPR_IN_PROGRESS)
        r->active = false;
    return status;
}

static const char *root_error(void *ctx)
{
    struct spr_root *r = ctx;

    if (r->error.status != SPR_OK)
        return r->error.text;
    if (!r->active)
        return NULL;
    r->side->explain(r, r->line, sizeof(r->line));
    return r->line;
}

static void root_close(void *ctx)
{
    struct spr_root *r = ctx;

    r->side->close(r);
    r->kind->close(r);
    explicit_bzero(&r->key, sizeof(r->key));
    spr_free(r);
}

struct spr_root *spr_root_of(const spr_bootstrap *boot)
{
    return boot->test == root_test ? boot->ctx : NULL;
}

const char *spr_root_waited(const struct spr_root *r, char *buf, size_t bytes)
{
    double seconds = (double)(spr_monotonic_ns() - r->start_ns) * 1e-9;

    snprintf(buf, bytes, seconds < 9.5 ? "%.2g s" : "%.0f s", seconds);
    return buf;
}

spr_status spr_root_open(const struct spr_root_kind *kind, const struct spr_place *place,
                         const char *file, const struct spr_auth_key *key, uint64_t deadline_ns,
                         spr_bootstrap *boot, struct spr_error *error)
{
    struct spr_root *r = spr_calloc(1, sizeof(*r));
    spr_status status;

    if (!r)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "no memory for the bootstrap");
    r->key = *key;
    r->size = key->size;
    r->first = 1;
    r->base_job = key->job;
    r->kind = kind;
    r->place = *place;
    r->start_ns = spr_monotonic_ns();
    r->deadline_ns = deadline_ns;
    r->error.rank = -1;
    snprintf(r->file, sizeof(r->file), "%s", file);
    r->side = key->rank == 0 ? &spr_root_server_side : &spr_root_client_side;
    status = kind->open(r);
    if (status != SPR_OK)
        goto fail;
    status = r->side->open(r);
    if (status != SPR_OK)
        goto close_side;
    *boot = (spr_bootstrap){
        .struct_size = sizeof(*boot),
        .ctx = r,
        .rank = (uint32_t)key->rank,
        .size = (uint32_t)key->size,
        .allgather = root_allgather,
        .test = root_test,
        .close = root_close,
        .error = root_error,
    };
    return SPR_OK;

close_side:
    r->side->close(r);
fail:
    spr_error_set(error, status, r->error.rank, "%s", r->error.text);
    r->kind->close(r);
    explicit_bzero(&r->key, sizeof(r->key));
    spr_free(r);
    return status;
}
