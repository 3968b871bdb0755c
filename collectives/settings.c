/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Making a communicator: the options it is made with.
 */
#include <string.h>

#include "base/rng.h"
#include "collectives/create.h"
#include "collectives/trials.h"
#include "compress/zstd.h"

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

spr_status spr_comm_load_options(const spr_comm_options *user, struct spr_options *o,
                                 struct spr_error *error)
{
    spr_status status = spr_opt_load(spr_options_table, spr_options_count, o, error);

    spr_opt_register(spr_options_table, spr_options_count);
    spr_opt_warn_unknown_env(NULL);
    if (status == SPR_OK)
        status = spr_model_check_option(o->model, error);
    if (status == SPR_OK)
        status = spr_trials_check_option(o->trials, error);
    if (status == SPR_OK && o->zstd > 0 && !spr_zstd_is_built_in())
        status = spr_error_set(error, SPR_ERR_UNSUPPORTED, -1,
                               "SPARRING_ZSTD=%d: built without libzstd; unset it, or build with "
                               "libzstd-dev",
                               o->zstd);
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

spr_status spr_comm_copy_options(const struct spr_options *from, struct spr_options *to)
{
    spr_status status = SPR_OK;

    *to = *from;
    for (size_t i = 0; i < spr_options_count; i++) {
        char *text;
        if (spr_options_table[i].type != SPR_OPT_STRING)
            continue;
        memcpy(&text, (const char *)from + spr_options_table[i].offset, sizeof text);
        text = text ? spr_strdup(text) : NULL;
        memcpy((char *)to + spr_options_table[i].offset, &text, sizeof text);
        if (!text)
            status = SPR_ERR_NOMEM;
    }
    if (status)
        spr_opt_free(spr_options_table, spr_options_count, to);
    return status;
}

uint64_t spr_comm_config_hash(const struct spr_options *o, uint64_t decisions)
{
    const uint64_t fields[] = {SPR_FRAME_VERSION, SPR_FRAME_MAX_PAYLOAD,    o->eager_bytes,
                               o->eager_window,   (uint64_t)o->determinism, (uint64_t)o->indices,
                               o->zstd > 0};
    uint64_t h = 0;

    for (size_t i = 0; i < SPR_ARRAY_LEN(fields); i++)
        h = spr_rng_u64(h, fields[i]);
    for (const char *c = o->model; c && *c; c++)
        h = spr_rng_u64(h, (uint64_t)*c);
    h = spr_rng_u64(h, 0); /* between the two */
    for (const char *c = o->trials; c && *c; c++)
        h = spr_rng_u64(h, (uint64_t)*c);
    return spr_rng_u64(h, decisions);
}
