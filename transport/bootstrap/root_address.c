/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/bootstrap/root_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"

#define LOOKUP_PAUSE_MS 200

static struct sockaddr_in6 *as_in6(struct spr_address *a) { return (struct sockaddr_in6 *)&a->sa; }
static struct sockaddr_in *as_in(struct spr_address *a) { return (struct sockaddr_in *)&a->sa; }
static struct sockaddr_un *as_un(struct spr_address *a) { return (struct sockaddr_un *)&a->sa; }

/* ---- From text ---- */

/* "host:port" or "[host]:port" in two parts. */
static bool split(const char *text, char host[256], char port[8])
{
    const char *colon = strrchr(text, ':');
    const char *begin = text, *end = colon;
    char *rest;
    long number;

    if (!colon || strlen(colon + 1) > 5)
        return false;
    if (*begin == '[') {
        if (colon == begin + 1 || colon[-1] != ']')
            return false;
        begin++;
        end--;
    } else if (memchr(begin, ':', (size_t)(end - begin))) {
        return false; /* an IPv6 address without brackets: where does it end? */
    }
    if (end == begin || end - begin > 255)
        return false;
    number = strtol(colon + 1, &rest, 10);
    if (colon[1] < '0' || colon[1] > '9' || *rest || number < 0 || number > 65535)
        return false;
    snprintf(host, 256, "%.*s", (int)(end - begin), begin);
    snprintf(port, 8, "%ld", number);
    return true;
}

static bool add_unix(struct spr_place *place, const char *name)
{
    struct spr_address *a = &place->list[0];
    size_t length = strlen(name);

    if (length == 0 || length > sizeof(as_un(a)->sun_path) - 1)
        return false;
    memset(a, 0, sizeof(*a));
    as_un(a)->sun_family = AF_UNIX;
    memcpy(as_un(a)->sun_path + 1, name, length);
    a->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    place->count = 1;
    return true;
}

/* getaddrinfo's status. */
static int look_up(struct spr_place *place, const char *host, const char *port, int flags)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = flags | AI_NUMERICSERV,
    };
    struct addrinfo *found, *it;
    int status = getaddrinfo(host, port, &hints, &found);

    if (status != 0)
        return status;
    for (it = found; it && place->count < SPR_PLACE_ADDRESSES; it = it->ai_next) {
        struct spr_address *a = &place->list[place->count];

        if (it->ai_family != AF_INET && it->ai_family != AF_INET6)
            continue;
        memset(a, 0, sizeof(*a));
        memcpy(&a->sa, it->ai_addr, it->ai_addrlen);
        a->bytes = it->ai_addrlen;
        place->count++;
    }
    freeaddrinfo(found);
    return place->count ? 0 : EAI_NONAME;
}

bool spr_place_add(struct spr_place *place, const char *text)
{
    char host[256], port[8];

    return place->count < SPR_PLACE_ADDRESSES && split(text, host, port) &&
           look_up(place, host, port, AI_NUMERICHOST) == 0;
}

spr_status spr_place_resolve(struct spr_place *place, const char *text, uint64_t deadline_ns,
                             struct spr_error *error)
{
    char host[256], port[8];
    bool told = false;
    int status;

    memset(place, 0, sizeof(*place));
    snprintf(place->text, sizeof(place->text), "%s", text);
    if (strncmp(text, SPR_UNIX_PREFIX, strlen(SPR_UNIX_PREFIX)) == 0) {
        if (add_unix(place, text + strlen(SPR_UNIX_PREFIX)))
            return SPR_OK;
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "root '%s': the name of the socket must have 1 to 107 bytes", text);
    }
    if (!split(text, host, port))
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "root '%s' is not of the form host:port (IPv6: [address]:port)", text);
    if (look_up(place, host, port, AI_NUMERICHOST) == 0)
        return SPR_OK;
    place->name = true;
    while ((status = look_up(place, host, port, 0)) != 0) {
        if (spr_monotonic_ns() >= deadline_ns)
            return spr_error_set(error, SPR_ERR_BOOTSTRAP, -1, "root %s: %s: %s", text, host,
                                 gai_strerror(status));
        if (!told)
            spr_info(SPR_SUB_INIT, "root %s: %s: %s; trying on", text, host, gai_strerror(status));
        told = true;
        poll(NULL, 0, LOOKUP_PAUSE_MS);
    }
    return SPR_OK;
}

/* ---- About addresses ---- */

bool spr_address_loopback(const struct spr_address *address)
{
    struct spr_address a = *address;

    switch (a.sa.ss_family) {
    case AF_UNIX:
        return true;
    case AF_INET:
        return ntohl(as_in(&a)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    case AF_INET6:
        if (IN6_IS_ADDR_V4MAPPED(&as_in6(&a)->sin6_addr))
            return as_in6(&a)->sin6_addr.s6_addr[12] == IN_LOOPBACKNET;
        return IN6_IS_ADDR_LOOPBACK(&as_in6(&a)->sin6_addr);
    default:
        return false;
    }
}

struct spr_address spr_address_any(const struct spr_address *address)
{
    struct spr_address a = *address;

    if (a.sa.ss_family == AF_INET)
        as_in(&a)->sin_addr.s_addr = htonl(INADDR_ANY);
    else if (a.sa.ss_family == AF_INET6)
        as_in6(&a)->sin6_addr = in6addr_any;
    return a;
}

const char *spr_address_text(const struct spr_address *address, char *buf, size_t bytes)
{
    struct spr_address a = *address;
    char host[INET6_ADDRSTRLEN] = "?";

    switch (a.sa.ss_family) {
    case AF_INET:
        inet_ntop(AF_INET, &as_in(&a)->sin_addr, host, sizeof(host));
        snprintf(buf, bytes, "%s:%d", host, ntohs(as_in(&a)->sin_port));
        break;
    case AF_INET6:
        inet_ntop(AF_INET6, &as_in6(&a)->sin6_addr, host, sizeof(host));
        snprintf(buf, bytes, "[%s]:%d", host, ntohs(as_in6(&a)->sin6_port));
        break;
    case AF_UNIX:
        snprintf(buf, bytes, SPR_UNIX_PREFIX "%.107s", as_un(&a)->sun_path + 1);
        break;
    default:
        snprintf(buf, bytes, "?");
    }
    return buf;
}
