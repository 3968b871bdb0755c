/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ranks that meet at a path of a shared file system. Rank 0 listens on a free port and writes
 *
 *   sparring-root 1
 *   nonce 0123456789abcdef
 *   at 10.0.0.1:40123
 *   at [2001:db8::1]:40123
 *   at 127.0.0.1:40123
 *
 * to a file of its own that it then renames to the path, so that nobody reads half of it. The file
 * of an earlier job may still be there: its addresses refuse, or belong to somebody else; and the
 * nonce is part of the job id that the handshake proves, so that even that job's own rank 0 is not
 * taken for ours. The others read the file anew before each attempt.
 */
#include "transport/bootstrap/root_file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "transport/bootstrap/bootstrap.h"
#include "transport/bootstrap/root.h"

#define FIRST_LINE "sparring-root 1\n"
#define FILE_BYTES 2048

/* ---- Rank 0 writes ---- */

static int port_of(const struct spr_address *a)
{
    struct sockaddr_in in;

    memcpy(&in, &a->sa, sizeof(in)); /* the port is at the same place for IPv6 */
    return ntohs(in.sin_port);
}

static bool worth_telling(const struct ifaddrs *it)
{
    struct sockaddr_in6 in6;

    if (!it->ifa_addr || !(it->ifa_flags & IFF_UP))
        return false;
    if (it->ifa_addr->sa_family == AF_INET)
        return true;
    if (it->ifa_addr->sa_family != AF_INET6)
        return false;
    memcpy(&in6, it->ifa_addr, sizeof(in6));
    return !IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr); /* means nothing on another host */
}

/* "at ..." lines of the host's addresses: those beyond loopback first, loopback last. */
static size_t write_addresses(char *text, size_t room, int port)
{
    struct ifaddrs *all = NULL;
    size_t used = 0;

    if (getifaddrs(&all) != 0)
        return 0;
    for (int loopback = 0; loopback < 2; loopback++) {
        for (const struct ifaddrs *it = all; it; it = it->ifa_next) {
            struct spr_address a = {.bytes = sizeof(struct sockaddr_in)};
            char line[160];

            if (!worth_telling(it) || !!(it->ifa_flags & IFF_LOOPBACK) != loopback)
                continue;
            if (it->ifa_addr->sa_family == AF_INET6)
                a.bytes = sizeof(struct sockaddr_in6);
            memcpy(&a.sa, it->ifa_addr, a.bytes);
            ((struct sockaddr_in *)&a.sa)->sin_port = htons((uint16_t)port);
            spr_address_text(&a, line, sizeof(line));
            if (used + strlen(line) + 5 > room)
                break;
            used += (size_t)snprintf(text + used, room - used, "at %s\n", line);
        }
    }
    freeifaddrs(all);
    return used;
}

static spr_status write_file(struct spr_root *r, const char *text)
{
    char path[SPR_PLACE_TEXT_BYTES + 32];
    size_t bytes = strlen(text);
    int fd;

    snprintf(path, sizeof(path), "%s.%016" PRIx64, r->file, r->file_nonce);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return spr_error_errno(&r->error, SPR_ERR_SYSTEM, -1, errno, "cannot create %s", path);
    if (write(fd, text, bytes) != (ssize_t)bytes || fsync(fd) != 0 || rename(path, r->file) != 0) {
        spr_error_errno(&r->error, SPR_ERR_SYSTEM, -1, errno, "cannot write %s", path);
        unlink(path);
        close(fd);
        return r->error.status;
    }
    close(fd);
    return SPR_OK;
}

static spr_status file_publish(struct spr_root *r, const struct spr_address *address)
{
    char text[FILE_BYTES], at[160];
    size_t used;

    used = (size_t)snprintf(text, sizeof(text), FIRST_LINE "nonce %016" PRIx64 "\n", r->file_nonce);
    if (spr_address_loopback(address))
        snprintf(text + used, sizeof(text) - used, "at %s\n",
                 spr_address_text(address, at, sizeof(at)));
    else if (write_addresses(text + used, sizeof(text) - used, port_of(address)) == 0)
        return spr_error_set(&r->error, SPR_ERR_SYSTEM, -1, "this host has no address");
    return write_file(r, text);
}

/* ---- The others read ---- */

/* Bytes of the file, or -1 with `why`. */
static ssize_t read_file(const char *path, char *text, size_t room, char *why, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    ssize_t n = -1;

    if (fd < 0 || fstat(fd, &st) != 0)
        snprintf(why, bytes, "%s: %m", path);
    else if (!S_ISREG(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0))
        snprintf(why, bytes, "%s is not a file of ours", path);
    else if ((n = read(fd, text, room - 1)) < 0)
        snprintf(why, bytes, "%s: %m", path);
    if (fd >= 0)
        close(fd);
    if (n >= 0)
        text[n] = '\0';
    return n;
}

bool spr_root_file_parse(char *text, uint64_t *nonce, struct spr_place *place)
{
    char *line, *rest = text + strlen(FIRST_LINE), *end;

    if (strncmp(text, FIRST_LINE, strlen(FIRST_LINE)) != 0 || strncmp(rest, "nonce ", 6) != 0)
        return false;
    *nonce = strtoull(rest + 6, &end, 16);
    if (*end != '\n')
        return false;
    rest = end + 1;
    while ((line = strsep(&rest, "\n")) != NULL)
        if (strncmp(line, "at ", 3) == 0)
            (void)spr_place_add(place, line + 3);
    return place->count > 0;
}

static spr_status file_find(struct spr_root *r, char *why, size_t bytes)
{
    struct spr_place place = {.count = 0};
    char text[FILE_BYTES];

    if (read_file(r->file, text, sizeof(text), why, bytes) < 0)
        return SPR_ERR_NOT_FOUND;
    if (!spr_root_file_parse(text, &r->file_nonce, &place)) {
        snprintf(why, bytes, "%s is not a file of rank 0", r->file);
        return SPR_ERR_NOT_FOUND;
    }
    snprintf(place.text, sizeof(place.text), "%s", r->place.text);
    r->place = place;
    r->key.job = r->base_job ^ r->file_nonce;
    return SPR_OK;
}

/* ---- The end ---- */

static void file_close(struct spr_root *r)
{
    struct spr_place place = {.count = 0};
    char text[FILE_BYTES], why[400];
    uint64_t nonce = 0;

    /* Only our own: another job may have written its file by now. */
    if (r->key.rank == 0 && read_file(r->file, text, sizeof(text), why, sizeof(why)) >= 0 &&
        spr_root_file_parse(text, &nonce, &place) && nonce == r->file_nonce)
        unlink(r->file);
}

static spr_status file_open(struct spr_root *r)
{
    if (r->key.rank != 0)
        return SPR_OK;
    if (getrandom(&r->file_nonce, sizeof(r->file_nonce), 0) != (ssize_t)sizeof(r->file_nonce))
        return spr_error_errno(&r->error, SPR_ERR_SYSTEM, -1, errno, "getrandom");
    r->key.job = r->base_job ^ r->file_nonce;
    return SPR_OK;
}

static const struct spr_root_kind file_kind = {file_open, file_publish, file_find, file_close};

spr_status spr_root_file(const char *path, const struct spr_auth_key *key, bool loopback_only,
                         uint64_t deadline_ns, spr_bootstrap *boot, struct spr_error *error)
{
    struct spr_place place = {.count = 0};

    if (key->size == 1)
        return spr_bootstrap_single(boot);
    if (strlen(path) >= SPR_PLACE_TEXT_BYTES)
        return spr_error_set(error, SPR_ERR_INVALID, -1, "the path %.40s... is too long", path);
    snprintf(place.text, sizeof(place.text), "%s", path);
    if (key->rank == 0 && loopback_only) {
        (void)spr_place_add(&place, "127.0.0.1:0");
    } else if (key->rank == 0) {
        (void)spr_place_add(&place, "[::]:0");
        (void)spr_place_add(&place, "0.0.0.0:0"); /* where there is no IPv6 */
    }
    return spr_root_open(&file_kind, &place, path, key, deadline_ns, boot, error);
}

spr_status spr_bootstrap_file(const char *path, const struct spr_auth_key *key,
                              uint64_t deadline_ns, spr_bootstrap *boot, struct spr_error *error)
{
    return spr_root_file(path, key, key->secret_bytes == 0, deadline_ns, boot, error);
}
