/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/topology.h"

#include "base/mem.h"
#include "collectives/shares.h"

/* Unequal parts have to save so much on links: more of the work is that of some, and who waits for
 * the slowest link reaches less of what links can do. With one of 8 emulated hosts at 800 Mbit/s,
 * the others at 1000, where 0.82 is reckoned, they took 1.87 and 2.06 s, a ring 2.05 and 2.06; at
 * 900 Mbit/s, where it is 0.91, 2.02 and 1.82; with one of eight that had ten times the rate, 0.94,
 * 1.87 and equal parts 1.66. */
#define WORTH 0.8

bool spr_topology_new(struct spr_topology *t, int world)
{
    size_t n = (size_t)world;

    t->identity = spr_calloc(n, sizeof(int));
    t->rack_identity = spr_calloc(n, sizeof(int));
    t->host = spr_calloc(n, sizeof(int));
    t->local = spr_calloc(n, sizeof(int));
    t->ranks = spr_calloc(n, sizeof(int));
    t->first = spr_calloc(n + 1, sizeof(int));
    t->rack = spr_calloc(n, sizeof(int));
    t->rack_first = spr_calloc(n + 1, sizeof(int));
    t->rate = spr_calloc(n, sizeof(uint32_t));
    t->host_rate = spr_calloc(n, sizeof(uint32_t));
    t->cuts = spr_calloc(n + 1, sizeof(uint32_t));
    if (!t->identity || !t->rack_identity || !t->host || !t->local || !t->ranks || !t->first ||
        !t->rack || !t->rack_first || !t->rate || !t->host_rate || !t->cuts) {
        spr_topology_free(t);
        return false;
    }
    t->hosts = t->racks = world;
    t->uneven = false;
    t->slowest = 0;
    t->gain = t->most = 1;
    for (int r = 0; r < world; r++) {
        t->identity[r] = t->rack_identity[r] = r;
        t->host[r] = t->ranks[r] = t->first[r] = t->rack[r] = t->rack_first[r] = r;
        t->first[r + 1] = t->rack_first[r + 1] = r + 1;
    }
    return true;
}

void spr_topology_free(struct spr_topology *t)
{
    spr_free(t->identity);
    spr_free(t->rack_identity);
    spr_free(t->host);
    spr_free(t->local);
    spr_free(t->ranks);
    spr_free(t->first);
    spr_free(t->rack);
    spr_free(t->rack_first);
    spr_free(t->rate);
    spr_free(t->host_rate);
    spr_free(t->cuts);
    *t = (struct spr_topology){0};
}

/* local[r] becomes the first rank on the host of r. `ranks` is room for it. */
static void find_leaders(struct spr_topology *t, const int *ids, int size)
{
    for (int r = size - 1; r >= 0; r--)
        t->ranks[t->identity[ids[r]]] = r;
    for (int r = 0; r < size; r++)
        t->local[r] = t->ranks[t->identity[ids[r]]];
}

/* Racks, in the order of their first ranks; of each leader the rack, in `host`. `first` is room for
 * it. */
static void number_racks(struct spr_topology *t, const int *ids, int size)
{
    int *number = t->first, hosts = 0;

    t->racks = 0;
    for (int r = 0; r < size; r++)
        number[t->rack_identity[ids[r]]] = -1;
    for (int r = 0; r < size; r++) {
        int *rack = &number[t->rack_identity[ids[r]]];
        if (t->local[r] != r)
            continue;
        if (*rack < 0) {
            *rack = t->racks++;
            t->rack_first[*rack] = 0;
        }
        t->rack_first[*rack]++;
        t->host[r] = *rack;
    }
    for (int k = 0; k < t->racks; k++) {
        int count = t->rack_first[k];
        t->rack_first[k] = hosts;
        hosts += count;
    }
    t->rack_first[t->racks] = t->hosts = hosts;
}

/* Hosts rack by rack. */
static void number_hosts(struct spr_topology *t, int size)
{
    int *next = t->first;

    for (int k = 0; k < t->racks; k++)
        next[k] = t->rack_first[k];
    for (int r = 0; r < size; r++) {
        if (t->local[r] == r) {
            int rack = t->host[r];
            t->host[r] = next[rack]++;
            t->rack[t->host[r]] = rack;
        } else {
            t->host[r] = t->host[t->local[r]];
        }
    }
}

static void list_ranks(struct spr_topology *t, int size)
{
    for (int h = 0; h <= t->hosts; h++)
        t->first[h] = 0;
    for (int r = 0; r < size; r++)
        t->first[t->host[r] + 1]++;
    for (int h = 0; h < t->hosts; h++)
        t->first[h + 1] += t->first[h];
    for (int r = 0; r < size; r++) {
        t->local[r] = t->first[t->host[r]]++;
        t->ranks[t->local[r]] = r;
    }
    for (int h = t->hosts - 1; h > 0; h--) /* each has come to where the next one begins */
        t->first[h] = t->first[h - 1];
    t->first[0] = 0;
    for (int r = 0; r < size; r++)
        t->local[r] -= t->first[t->host[r]];
}

/* A host's link is that of its rank with the fastest: they share it. */
static void compare_links(struct spr_topology *t, const int *ids, int size)
{
    uint32_t slowest = UINT32_MAX, fastest = 0;
    double gain;

    for (int h = 0; h < t->hosts; h++)
        t->host_rate[h] = 0;
    for (int r = 0; r < size; r++)
        if (t->rate[ids[r]] > t->host_rate[t->host[r]])
            t->host_rate[t->host[r]] = t->rate[ids[r]];
    for (int h = 0; h < t->hosts; h++) {
        slowest = t->host_rate[h] < slowest ? t->host_rate[h] : slowest;
        fastest = t->host_rate[h] > fastest ? t->host_rate[h] : fastest;
    }
    t->slowest = slowest;
    t->gain = t->most = 1;
    t->uneven = slowest > 0 && slowest < fastest && t->hosts > 2 && !spr_topology_has_racks(t);
    if (!t->uneven)
        return;
    spr_shares_by_rate(t->host_rate, t->hosts, t->cuts);
    gain = spr_shares_gain(t->host_rate, t->hosts, t->cuts);
    t->uneven = gain < WORTH;
    if (!t->uneven)
        return;
    t->gain = gain;
    t->most = spr_shares_most(t->cuts, t->hosts);
}

void spr_topology_update(struct spr_topology *t, const int *ids, int size)
{
    find_leaders(t, ids, size);
    number_racks(t, ids, size);
    number_hosts(t, size);
    list_ranks(t, size);
    compare_links(t, ids, size);
}

int spr_topology_fewest(const struct spr_topology *t)
{
    int fewest = spr_topology_local_ranks(t, 0);

    for (int h = 1; h < t->hosts; h++)
        if (spr_topology_local_ranks(t, h) < fewest)
            fewest = spr_topology_local_ranks(t, h);
    return fewest;
}

bool spr_topology_hosts_are_even(const struct spr_topology *t)
{
    int ranks = spr_topology_local_ranks(t, 0);

    for (int h = 1; h < t->hosts; h++)
        if (spr_topology_local_ranks(t, h) != ranks)
            return false;
    return t->hosts > 1 && ranks > 1;
}

int spr_topology_fewest_hosts(const struct spr_topology *t)
{
    int fewest = spr_topology_rack_hosts(t, 0);

    for (int k = 1; k < t->racks; k++)
        if (spr_topology_rack_hosts(t, k) < fewest)
            fewest = spr_topology_rack_hosts(t, k);
    return fewest;
}

bool spr_topology_racks_are_even(const struct spr_topology *t)
{
    int most = 0;

    for (int k = 0; k < t->racks; k++)
        if (spr_topology_rack_hosts(t, k) > most)
            most = spr_topology_rack_hosts(t, k);
    return 2 * spr_topology_fewest_hosts(t) >= most;
}

bool spr_topology_has_levels(const struct spr_topology *t, int size)
{
    return t->hosts > 1 && (t->hosts < size || spr_topology_has_racks(t));
}

/* The host from which another one than that of `from` hears. */
static int host_before(const struct spr_topology *t, bool ring, int from, int host)
{
    int home = t->host[from], entry = spr_topology_entry(t, from, t->rack[host]);

    if (ring)
        return (host + t->hosts - 1) % t->hosts;
    return t->rack[host] == t->rack[home] || host == entry ? home : entry;
}

/* The hosts that a host passes on to, which is not that of `from`: the next one, if that has not
 * heard yet; or those of its rack, if it was the first there to hear. */
static int hosts_behind(const struct spr_topology *t, bool ring, int from, int host)
{
    int rack = t->rack[host];

    if (ring)
        return (host + 1) % t->hosts != t->host[from];
    if (rack == t->rack[t->host[from]] || spr_topology_entry(t, from, rack) != host)
        return 0;
    return spr_topology_rack_hosts(t, rack) - 1;
}

static int host_behind(const struct spr_topology *t, bool ring, int host, int i)
{
    int rack = t->rack[host], first = t->rack_first[rack];

    if (ring)
        return (host + 1) % t->hosts;
    return first + (host - first + 1 + i) % spr_topology_rack_hosts(t, rack);
}

int spr_topology_source(const struct spr_topology *t, bool ring, int from, int to)
{
    int host = t->host[to], relay = spr_topology_relay(t, from, host);

    if (host == t->host[from])
        return from;
    return relay != to ? relay : spr_topology_relay(t, from, host_before(t, ring, from, host));
}

int spr_topology_listeners(const struct spr_topology *t, bool ring, int from, int rank)
{
    int host = t->host[rank];

    if (t->host[from] == host || spr_topology_relay(t, from, host) != rank)
        return 0;
    return hosts_behind(t, ring, from, host) + spr_topology_local_ranks(t, host) - 1;
}

int spr_topology_listener(const struct spr_topology *t, bool ring, int from, int rank, int i)
{
    int host = t->host[rank], behind = hosts_behind(t, ring, from, host);

    if (i < behind) /* other hosts first: they have the longer way */
        return spr_topology_relay(t, from, host_behind(t, ring, host, i));
    return t->ranks[t->first[host] +
                    (t->local[rank] + 1 + i - behind) % spr_topology_local_ranks(t, host)];
}
