/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/tcp/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

bool spr_tcp_address_from(struct spr_tcp_address *a, const struct sockaddr *sa)
{
    memset(a, 0, sizeof *a);
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)sa;
        a->family = SPR_TCP_IPV4;
        a->port = ntohs(in->sin_port);
        a->loopback = (ntohl(in->sin_addr.s_addr) >> 24) == 127;
        memcpy(a->bytes, &in->sin_addr, 4);
        return true;
    }
    if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)sa;
        a->family = SPR_TCP_IPV6;
        a->port = ntohs(in6->sin6_port);
        a->loopback = IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) != 0;
        a->scope = in6->sin6_scope_id;
        memcpy(a->bytes, &in6->sin6_addr, 16);
        return true;
    }
    return false;
}

socklen_t spr_tcp_address_to(const struct spr_tcp_address *a, struct sockaddr_storage *sa)
{
    memset(sa, 0, sizeof *sa);
    if (a->family == SPR_TCP_IPV4) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(a->port)};
        memcpy(&in.sin_addr, a->bytes, 4);
        memcpy(sa, &in, sizeof in);
        return sizeof in;
    }
    if (a->family == SPR_TCP_IPV6) {
        struct sockaddr_in6 in6 = {
            .sin6_family = AF_INET6, .sin6_port = htons(a->port), .sin6_scope_id = a->scope};
        memcpy(&in6.sin6_addr, a->bytes, 16);
        memcpy(sa, &in6, sizeof in6);
        return sizeof in6;
    }
    return 0;
}

bool spr_tcp_address_link_local(const struct spr_tcp_address *a)
{
    return a->family == SPR_TCP_IPV6 && a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80;
}

bool spr_tcp_address_same_host(const struct spr_tcp_address *a, const struct spr_tcp_address *b)
{
    return a->family == b->family && !memcmp(a->bytes, b->bytes, sizeof a->bytes);
}

const char *spr_tcp_address_print(const struct spr_tcp_address *a, char *text, size_t bytes)
{
    char host[INET6_ADDRSTRLEN] = "", scope[16] = "", port[8] = "";
    bool six = a->family == SPR_TCP_IPV6;

    if (!a->family) {
        snprintf(text, bytes, "no address");
        return text;
    }
    if (!inet_ntop(six ? AF_INET6 : AF_INET, a->bytes, host, sizeof host))
        host[0] = '\0';
    if (spr_tcp_address_link_local(a) && a->scope)
        snprintf(scope, sizeof scope, "%%%u", a->scope);
    if (a->port)
        snprintf(port, sizeof port, ":%u", a->port);
    snprintf(text, bytes, "%s%s%s%s%s", six && a->port ? "[" : "", host, scope,
             six && a->port ? "]" : "", port);
    return text;
}
