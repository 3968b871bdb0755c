/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/bootstrap/identity.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transport/bootstrap/auth_wire.h"
#include "transport/bootstrap/pmix.h"
#include "transport/bootstrap/root_address.h"

/* An empty text counts as none: that is how shells pass "nothing" on. */
static const char *filled(const char *text) { return text && *text ? text : NULL; }

static const char *variable(const char *name) { return name ? filled(getenv(name)) : NULL; }

static bool parse_number(const char *text, int *value)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || n > INT_MAX)
        return false;
    *value = (int)n;
    return true;
}

static bool complete(const struct spr_launcher *l)
{
    if (!variable(l->rank) || (l->size && !variable(l->size)))
        return false;
    for (size_t i = 0; i < SPR_ARRAY_LEN(l->also) && l->also[i]; i++)
        if (!variable(l->also[i]))
            return false;
    return !l->lone_is_nothing || strcmp(variable(l->size), "1") != 0;
}

/* Half a set that the user gave is a mistake; half a set of a launcher is somebody else's variable.
 */
static spr_status check_halves(struct spr_error *error)
{
    for (size_t i = 0; i < spr_launchers_count; i++) {
        const struct spr_launcher *l = &spr_launchers[i];
        const char *rank = variable(l->rank), *size = variable(l->size);

        if (l->explicitly && !rank != !size)
            return spr_error_set(error, SPR_ERR_INVALID, -1, "%s=%s is set, but %s is not",
                                 rank ? l->rank : l->size, rank ? rank : size,
                                 rank ? l->size : l->rank);
    }
    return SPR_OK;
}

static spr_status read_numbers(const struct spr_launcher *l, int *rank, int *size,
                               struct spr_error *error)
{
    if (!parse_number(variable(l->size), size) || *size == 0)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "%s='%s' is not a number of ranks",
                             l->size, variable(l->size));
    if (!parse_number(variable(l->rank), rank) || *rank >= *size)
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "%s='%s' is not a rank: 0 to %d, since %s=%d", l->rank,
                             variable(l->rank), *size - 1, l->size, *size);
    return SPR_OK;
}

/* Two launchers that both look like ours and mean different jobs: nobody can tell who is right. */
static spr_status check_contradiction(const struct spr_launcher *chosen, int size,
                                      struct spr_error *error)
{
    if (chosen->explicitly || chosen->inherited)
        return SPR_OK;
    for (const struct spr_launcher *l = chosen + 1; l < spr_launchers + spr_launchers_count; l++) {
        int other_rank, other_size;

        if (l->inherited || !l->size || !complete(l))
            continue;
        if (read_numbers(l, &other_rank, &other_size, error) != SPR_OK)
            return SPR_ERR_INVALID;
        if (other_size != size)
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "%s says %d ranks (%s), %s says %d (%s): set SPARRING_RANK, "
                                 "SPARRING_SIZE and SPARRING_ROOT, or unset one of them",
                                 chosen->name, size, chosen->size, l->name, other_size, l->size);
    }
    return SPR_OK;
}

/* Append to the text that names the job. */
static void name_job(char text[SPR_JOB_TEXT_BYTES], const char *more)
{
    size_t used = strlen(text);

    if (more && used < SPR_JOB_TEXT_BYTES)
        snprintf(text + used, SPR_JOB_TEXT_BYTES - used, "%s%s", used > 0 ? " " : "", more);
}

static spr_status set_place(char to[300], const char *text, const char *what,
                            struct spr_error *error)
{
    if (!text)
        return SPR_OK;
    if (strlen(text) >= 300)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "%s is longer than 299 bytes", what);
    memcpy(to, text, strlen(text) + 1);
    return SPR_OK;
}

/* root or file that the user named, in the options or in the environment. */
static spr_status named_place(const struct spr_comm_options *options, struct spr_identity *id,
                              struct spr_error *error)
{
    const char *root = options ? filled(options->root) : NULL;
    const char *file = options ? filled(options->file) : NULL;
    spr_status status;

    if (!root && !file) {
        root = variable("SPARRING_ROOT");
        file = variable("SPARRING_FILE");
    }
    status = set_place(id->root, root, "the root", error);
    if (status == SPR_OK && !root) /* both: the root is the shorter way */
        status = set_place(id->file, file, "the path of the file", error);
    return status;
}

static spr_status from_options(const struct spr_comm_options *options, struct spr_identity *id,
                               struct spr_error *error)
{
    id->source = "options";
    id->rank = options->rank;
    id->size = options->size;
    if (id->rank < 0 || id->rank >= id->size)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "options: rank %d of %d ranks", id->rank,
                             id->size);
    if (id->size > 1 && !id->root[0] && !id->file[0])
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "options: rank %d of %d, but no root or file to meet at", id->rank,
                             id->size);
    return SPR_OK;
}

static spr_status from_launcher(const struct spr_launcher *l, struct spr_identity *id,
                                char job_text[SPR_JOB_TEXT_BYTES], struct spr_error *error)
{
    spr_status status = read_numbers(l, &id->rank, &id->size, error);

    id->source = l->name;
    if (status == SPR_OK)
        status = check_contradiction(l, id->size, error);
    if (status == SPR_OK && !id->root[0] && !id->file[0])
        status = l->meet(l, id, error);
    for (size_t i = 0; i < SPR_ARRAY_LEN(l->job) && l->job[i]; i++)
        name_job(job_text, variable(l->job[i]));
    return status;
}

/* The options go first when they say all of it, else behind every launcher that does. */
static spr_status find(const struct spr_comm_options *options, bool use_pmix,
                       struct spr_identity *id, bool *pmix, char job_text[SPR_JOB_TEXT_BYTES],
                       struct spr_error *error)
{
    bool placed = id->root[0] || id->file[0], numbered = options && options->size > 0;
    spr_status status;

    if (placed && numbered)
        return from_options(options, id, error);
    status = check_halves(error);
    if (status != SPR_OK)
        return status;
    for (size_t i = 0; i < spr_launchers_count; i++) {
        const struct spr_launcher *l = &spr_launchers[i];

        if (!complete(l))
            continue;
        if (l->size)
            return from_launcher(l, id, job_text, error);
        if (use_pmix && !placed && spr_pmix_available()) {
            *pmix = true;
            id->source = l->name;
            return SPR_OK;
        }
    }
    if (numbered)
        return from_options(options, id, error);
    id->source = "single";
    if (placed)
        spr_warn(SPR_SUB_INIT,
                 "%s is given, but nothing says which rank of how many this is (set "
                 "SPARRING_RANK and SPARRING_SIZE): a job of one rank",
                 id->root[0] ? id->root : id->file);
    return SPR_OK;
}

spr_status spr_identity_find(const struct spr_comm_options *options, bool use_pmix,
                             struct spr_identity *id, bool *pmix, char job_text[SPR_JOB_TEXT_BYTES],
                             struct spr_error *error)
{
    spr_status status;

    memset(id, 0, sizeof(*id));
    id->size = 1;
    *pmix = false;
    job_text[0] = '\0';
    status = named_place(options, id, error);
    if (status == SPR_OK)
        status = find(options, use_pmix, id, pmix, job_text, error);
    name_job(job_text, id->root[0] ? id->root : id->file);
    return status;
}

spr_status spr_identity_job(const struct spr_auth_key *key, const char *job_text, uint64_t *job,
                            struct spr_error *error)
{
    const char *text = variable("SPARRING_JOB");
    uint8_t mac[SPR_AUTH_MAC_BYTES];
    char *end;

    if (text) {
        errno = 0;
        *job = strtoull(text, &end, 16);
        if (strspn(text, "0123456789abcdefABCDEF") != strlen(text) || *end || errno)
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "SPARRING_JOB='%s' is not a number of up to 16 hexadecimal digits",
                                 text);
        return SPR_OK;
    }
    if (!spr_auth_hmac(key, job_text, strlen(job_text), mac))
        return spr_error_set(error, SPR_ERR_SYSTEM, -1, "libcrypto has no HMAC-SHA256");
    memcpy(job, mac, sizeof(*job));
    return SPR_OK;
}
