/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/bootstrap/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES 4096 /* of a secret; more is surely another file */

/* What came by SPARRING_SECRET_FD: the descriptor is gone, a later communicator needs it again. To
 * go on without would silently drop the protection. */
static pthread_mutex_t passed_lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t passed[sizeof(((struct spr_auth_key *)0)->secret)];
static size_t passed_bytes;

static spr_status set_secret(struct spr_auth_key *key, const uint8_t *bytes, size_t n,
                             const char *place, struct spr_error *error)
{
    size_t length = 0;

    if (n == 0)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "the secret in %s is empty", place);
    if (n <= sizeof(key->secret)) {
        memcpy(key->secret, bytes, n);
        key->secret_bytes = n;
        return SPR_OK;
    }
    if (!EVP_Q_digest(NULL, "SHA256", NULL, bytes, n, key->secret, &length))
        return spr_error_set(error, SPR_ERR_SYSTEM, -1, "libcrypto has no SHA-256");
    key->secret_bytes = length;
    return SPR_OK;
}

/* From the start when it can seek (ranks may share the file's offset), else up to the end. */
static ssize_t read_all(int fd, uint8_t *bytes, size_t room)
{
    size_t used = 0;

    while (used < room) {
        ssize_t n = pread(fd, bytes + used, room - used, (off_t)used);

        if (n < 0 && errno == ESPIPE)
            n = read(fd, bytes + used, room - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    return (ssize_t)used;
}

static spr_status load(int fd, const char *place, struct spr_auth_key *key, struct spr_error *error)
{
    uint8_t bytes[MOST_BYTES + 1];
    ssize_t n = read_all(fd, bytes, sizeof(bytes));
    spr_status status;

    if (n < 0)
        status = spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "cannot read the secret from %s",
                                 place);
    else if (n > MOST_BYTES)
        status = spr_error_set(error, SPR_ERR_INVALID, -1,
                               "the secret in %s is longer than %d bytes", place, MOST_BYTES);
    else
        status = set_secret(key, bytes, (size_t)n, place, error);
    explicit_bzero(bytes, sizeof(bytes));
    return status;
}

static spr_status load_descriptor(const char *text, struct spr_auth_key *key,
                                  struct spr_error *error)
{
    spr_status status;
    char *end;
    long fd;

    errno = 0;
    fd = strtol(text, &end, 10);
    if (end == text || *end || errno || fd < 0 || fd > INT_MAX)
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "SPARRING_SECRET_FD='%s' is not a file descriptor", text);
    status = load((int)fd, "SPARRING_SECRET_FD", key, error);
    if (status != SPR_OK)
        return status;
    close((int)fd);
    unsetenv("SPARRING_SECRET_FD");
    memcpy(passed, key->secret, key->secret_bytes);
    passed_bytes = key->secret_bytes;
    return SPR_OK;
}

static spr_status load_file(const char *path, struct spr_auth_key *key, struct spr_error *error)
{
    /* O_NONBLOCK: a FIFO must not hold us up before it is seen that it is one. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    spr_status status = SPR_OK;
    struct stat st;

    if (fd < 0)
        return spr_error_errno(error, SPR_ERR_INVALID, -1, errno,
                               "cannot open SPARRING_SECRET_FILE=%s", path);
    if (fstat(fd, &st) != 0)
        status = spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "SPARRING_SECRET_FILE=%s", path);
    else if (!S_ISREG(st.st_mode))
        status = spr_error_set(error, SPR_ERR_INVALID, -1,
                               "SPARRING_SECRET_FILE=%s is not a regular file", path);
    else if (st.st_uid != geteuid() && st.st_uid != 0)
        status = spr_error_set(error, SPR_ERR_INVALID, -1,
                               "SPARRING_SECRET_FILE=%s belongs to user %u, not to us or root",
                               path, (unsigned int)st.st_uid);
    else if (st.st_mode & 077)
        status = spr_error_set(error, SPR_ERR_INVALID, -1,
                               "SPARRING_SECRET_FILE=%s has mode %04o, others may use it: "
                               "chmod 600 %s",
                               path, (unsigned int)(st.st_mode & 07777), path);
    else
        status = load(fd, path, key, error);
    close(fd);
    return status;
}

static spr_status load_environment(struct spr_auth_key *key, struct spr_error *error)
{
    const char *text = getenv("SPARRING_SECRET_FD");

    if (text)
        return load_descriptor(text, key, error);
    if (passed_bytes > 0) {
        memcpy(key->secret, passed, passed_bytes);
        key->secret_bytes = passed_bytes;
        return SPR_OK;
    }
    text = getenv("SPARRING_SECRET_FILE");
    return text ? load_file(text, key, error) : SPR_OK;
}

spr_status spr_secret_load(const struct spr_comm_options *options, struct spr_auth_key *key,
                           struct spr_error *error)
{
    spr_status status;

    key->secret_bytes = 0;
    if (options && options->secret && options->secret_bytes > 0)
        return set_secret(key, options->secret, options->secret_bytes, "the options", error);
    pthread_mutex_lock(&passed_lock);
    status = load_environment(key, error);
    pthread_mutex_unlock(&passed_lock);
    return status;
}
