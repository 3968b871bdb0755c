/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/tcp/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/series.h"

/* Bridges and the host's ends of containers and virtual machines: they are up, have addresses that
 * look right, and lead to no other host. */
static const char *const virtual_names[] = {"veth", "docker", "br-", "virbr"};

static const char *unfit_by_default(const struct ifaddrs *i)
{
    if ((i->ifa_flags & IFF_LOOPBACK) || !strcmp(i->ifa_name, "lo"))
        return "leads to no other host";
    for (size_t v = 0; v < SPR_ARRAY_LEN(virtual_names); v++)
        if (!strncmp(i->ifa_name, virtual_names[v], strlen(virtual_names[v])))
            return "made for containers or virtual machines, as its name says";
    return NULL;
}

static const char *unfit_as_loopback(const struct ifaddrs *i)
{
    return i->ifa_flags & IFF_LOOPBACK ? NULL : "leads to other hosts, and the job has no secret";
}

static bool is_up(const struct ifaddrs *i) { return (i->ifa_flags & IFF_UP) != 0; }

/* How good an address is on its interface: IPv4, global IPv6, link-local IPv6; 0 = none. */
static int address_rank(const struct ifaddrs *i, struct spr_tcp_address *a)
{
    if (!i->ifa_addr || !spr_tcp_address_from(a, i->ifa_addr))
        return 0;
    if (a->family == SPR_TCP_IPV4)
        return 3;
    return spr_tcp_address_link_local(a) ? 1 : 2;
}

static void take(struct spr_tcp_interface *chosen, const struct ifaddrs *i,
                 const struct spr_tcp_address *a, const char *why)
{
    snprintf(chosen->name, sizeof chosen->name, "%s", i->ifa_name);
    chosen->address = *a;
    chosen->address.port = 0;
    chosen->why = why;
}

/* The best address among interfaces that `unfit` accepts; the first wins among equals. */
static bool best(const struct ifaddrs *all, int least,
                 const char *(*unfit)(const struct ifaddrs *i), const char *why,
                 struct spr_tcp_interface *chosen)
{
    int found = least - 1;

    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct spr_tcp_address a;
        int rank = address_rank(i, &a);
        if (rank > found && is_up(i) && !unfit(i)) {
            found = rank;
            take(chosen, i, &a, why);
        }
    }
    return found >= least;
}

/* A literal address "192.0.2.1", "2001:db8::1", "fe80::1%eth0" of this host. */
static bool by_address(const struct ifaddrs *all, const char *item,
                       struct spr_tcp_interface *chosen)
{
    struct spr_tcp_address want = {0}, a;
    char host[128];
    char *percent;

    snprintf(host, sizeof host, "%s", item);
    percent = strchr(host, '%');
    if (percent)
        *percent++ = '\0';
    if (inet_pton(AF_INET, host, want.bytes) == 1)
        want.family = SPR_TCP_IPV4;
    else if (inet_pton(AF_INET6, host, want.bytes) == 1)
        want.family = SPR_TCP_IPV6;
    else
        return false;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!address_rank(i, &a) || !is_up(i) || (percent && strcmp(percent, i->ifa_name)))
            continue;
        if (spr_tcp_address_same_host(&a, &want)) {
            take(chosen, i, &a, "the address asked for");
            return true;
        }
    }
    return false;
}

/* By name, link-local addresses are good enough: the user knows the wire. */
static bool by_name(const struct ifaddrs *all, const char *item, struct spr_tcp_interface *chosen)
{
    int found = 0;

    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct spr_tcp_address a;
        int rank = address_rank(i, &a);
        if (rank > found && is_up(i) && !strcmp(i->ifa_name, item)) {
            found = rank;
            take(chosen, i, &a, "the interface asked for");
        }
    }
    return found > 0;
}

static bool find(const struct ifaddrs *all, const char *item, struct spr_tcp_interface *chosen)
{
    return by_name(all, item, chosen) || by_address(all, item, chosen);
}

/* The next word of a list, which ends at one of `separators`; returns what follows it. */
static const char *next_word(const char *list, const char *separators,
                             char word[SPR_TCP_INTERFACE_TEXT])
{
    size_t length = strcspn(list, separators);

    snprintf(word, SPR_TCP_INTERFACE_TEXT, "%.*s", (int)length, list);
    return list + length + (list[length] != '\0');
}

/* Those of one item of the list. False: none of them is there. */
static bool join(const struct ifaddrs *all, const char *item, struct spr_tcp_joined *joined)
{
    struct spr_tcp_interface seen;
    char word[SPR_TCP_INTERFACE_TEXT];

    *joined = (struct spr_tcp_joined){0};
    for (const char *p = item; *p;) {
        p = next_word(p, "+", word);
        if (!find(all, word, &seen))
            memcpy(joined->missing, word, sizeof word);
        else if (joined->count++ < SPR_ARRAY_LEN(joined->names))
            memcpy(joined->names[joined->count - 1], word, sizeof word);
    }
    return joined->count > 0;
}

void spr_tcp_interface_joined(const char *wanted, struct spr_tcp_joined *joined)
{
    struct ifaddrs *all = NULL;
    bool found = false;

    *joined = (struct spr_tcp_joined){0};
    if (!wanted || !strchr(wanted, '+') || getifaddrs(&all))
        return;
    for (const char *p = wanted; *p && !found;) {
        size_t length = strcspn(p, ",");
        char *item = strndup(p, length);
        found = item && join(all, item, joined);
        if (found && !strchr(item, '+'))
            *joined = (struct spr_tcp_joined){0};
        free(item);
        p += length + (p[length] == ',');
    }
    freeifaddrs(all);
}

static bool has_address(const struct ifaddrs *all, const char *name)
{
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct spr_tcp_address a;
        if (!strcmp(i->ifa_name, name) && address_rank(i, &a))
            return true;
    }
    return false;
}

/* "lo 127.0.0.1, lo ::1, eth0 192.0.2.2, eth1 (down)": an interface has one entry per address. */
static void list_interfaces(const struct ifaddrs *all, char *text, size_t bytes)
{
    struct spr_series interfaces;

    spr_series_begin(&interfaces, text, bytes);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct spr_tcp_address a;
        char address[SPR_TCP_ADDRESS_TEXT] = "(no address)";
        bool own = address_rank(i, &a) > 0;
        if (!own && has_address(all, i->ifa_name))
            continue;
        if (own)
            spr_tcp_address_print(&a, address, sizeof address);
        spr_series_add(&interfaces, "%s %s", i->ifa_name, is_up(i) ? address : "(down)");
    }
}

static spr_status choose_wanted(const struct ifaddrs *all, const char *wanted, bool loopback_only,
                                struct spr_tcp_interface *chosen, struct spr_error *error)
{
    char exist[400];

    for (const char *p = wanted; *p;) {
        char item[SPR_TCP_INTERFACE_TEXT];
        p = next_word(p, ",+", item);
        if (!find(all, item, chosen))
            continue;
        if (loopback_only && !chosen->address.loopback)
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "interface %s was asked for, but without a secret only loopback "
                                 "is used (give the job a secret, or set SPARRING_INSECURE=yes)",
                                 item);
        chosen->asked = true;
        return SPR_OK;
    }
    list_interfaces(all, exist, sizeof exist);
    return spr_error_set(error, SPR_ERR_INVALID, -1,
                         "no interface \"%s\" is up with an address here (SPARRING_INTERFACE); "
                         "there are: %s",
                         wanted, exist);
}

static spr_status choose(const struct ifaddrs *all, const char *wanted, bool loopback_only,
                         struct spr_tcp_interface *found, struct spr_error *error)
{
    if (wanted && wanted[0])
        return choose_wanted(all, wanted, loopback_only, found, error);
    if (!loopback_only && best(all, 2, unfit_by_default, "the first that is up", found))
        return SPR_OK;
    if (best(all, 2, unfit_as_loopback,
             loopback_only ? "no secret, so this host only" : "no other interface is up", found))
        return SPR_OK;
    return spr_error_set(error, SPR_ERR_SYSTEM, -1, "no network interface is up, not even lo");
}

spr_status spr_tcp_interface_choose(const char *wanted, bool loopback_only,
                                    struct spr_tcp_interface *chosen, struct spr_error *error)
{
    struct spr_tcp_interface found = {0};
    struct ifaddrs *all = NULL;
    spr_status status;

    if (getifaddrs(&all))
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "cannot list network interfaces");
    status = choose(all, wanted, loopback_only, &found, error);
    freeifaddrs(all);
    if (status == SPR_OK)
        *chosen = found;
    return status;
}

/* The best address of this one's interface was taken. */
static bool best_was_taken(const struct ifaddrs *all, const struct ifaddrs *i,
                           const struct spr_tcp_interface *taken)
{
    struct spr_tcp_interface best_of;

    return !strcmp(taken->name, i->ifa_name) && by_name(all, i->ifa_name, &best_of) &&
           spr_tcp_address_same_host(&taken->address, &best_of.address);
}

/* Why this one was not asked for; NULL: a better address of its interface was. */
static const char *not_wanted(const struct ifaddrs *all, const struct ifaddrs *i,
                              const struct spr_tcp_address *a, const char *wanted,
                              const struct spr_tcp_interface *chosen)
{
    struct spr_tcp_interface other;
    struct spr_tcp_joined joined;

    if (best_was_taken(all, i, chosen))
        return NULL;
    spr_tcp_interface_joined(wanted, &joined);
    for (uint32_t j = 1; j < joined.count && j < SPR_ARRAY_LEN(joined.names); j++) {
        if (!find(all, joined.names[j], &other) || strcmp(other.name, i->ifa_name) != 0)
            continue;
        if (spr_tcp_address_same_host(&other.address, a))
            return "joined with the first one";
        if (best_was_taken(all, i, &other))
            return NULL;
    }
    return chosen->name[0] ? "another one was asked for" : "not asked for";
}

/* Why this one was not taken, in the order in which choose() looks. */
static const char *passed_over(const struct ifaddrs *all, const struct ifaddrs *i, int rank,
                               const struct spr_tcp_address *a, const char *wanted,
                               bool loopback_only, const struct spr_tcp_interface *chosen)
{
    bool asked = wanted && wanted[0];
    const char *why = NULL;

    if (!is_up(i))
        return "down";
    if (!rank)
        return "no address";
    if (asked)
        why = not_wanted(all, i, a, wanted, chosen);
    else
        why = loopback_only ? unfit_as_loopback(i) : unfit_by_default(i);
    if (why)
        return why;
    if (rank == 1 && !asked)
        return "link-local addresses are taken by name only";
    return rank < 3 && chosen->address.family == SPR_TCP_IPV4 ? "IPv4 comes first"
                                                              : "another one comes first";
}

spr_status spr_tcp_interface_survey(const char *wanted, bool loopback_only,
                                    void (*tell)(void *ctx, const struct spr_tcp_interface *i,
                                                 bool up, bool chosen),
                                    void *ctx, struct spr_error *error)
{
    struct spr_tcp_interface chosen = {0}, one;
    struct ifaddrs *all = NULL;
    spr_status status;

    if (getifaddrs(&all))
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "cannot list network interfaces");
    status = choose(all, wanted, loopback_only, &chosen, error);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct spr_tcp_address a = {0};
        int rank = address_rank(i, &a);
        bool taken;
        if (!rank && has_address(all, i->ifa_name))
            continue;
        taken = status == SPR_OK && rank && !strcmp(i->ifa_name, chosen.name) &&
                spr_tcp_address_same_host(&a, &chosen.address);
        take(&one, i, &a,
             taken ? chosen.why : passed_over(all, i, rank, &a, wanted, loopback_only, &chosen));
        one.asked = taken && chosen.asked;
        tell(ctx, &one, is_up(i), taken);
    }
    freeifaddrs(all);
    return status;
}
