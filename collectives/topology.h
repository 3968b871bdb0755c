/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Topology: which ranks share a host, and which hosts a rack. Hosts are told apart by identity
 * (boot id and network namespace), not by name, and numbered rack by rack, racks and the hosts of
 * one in the order of their first ranks; every rank has the same
 * picture, since it is made from what all have told all. After a shrink it is that of the ranks
 * that are left.
 *
 *   rank   0   1   2   3   4   5       ranks  0 1 4 | 2 3 5
 *   host   A   A   B   B   A   B       first  0       3       6
 */
#ifndef SPR_COLLECTIVES_TOPOLOGY_H
#define SPR_COLLECTIVES_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

/* Some of the ranks, which do a part of a collective among themselves. */
struct spr_group {
    const int *ranks; /* [size]; NULL: all, in order */
    int size, rank;   /* how many; which of them this one is */
};

static inline int spr_group_rank(const struct spr_group *group, int i)
{
    return group->ranks ? group->ranks[i] : i;
}

struct spr_topology {
    int *identity;      /* [world] of a rank at the start: the first one on its host */
    int *rack_identity; /* [world] ... and in its rack; where no rack is known, on its host */
    uint32_t *rate;     /* [world] kbit/s of a rank's link to other hosts; 0: not known */
    int hosts, racks;
    int *host;       /* [size] of a rank; those of a rack have successive numbers */
    int *local;      /* [size] its number on its host */
    int *ranks;      /* [size] host by host, in order */
    int *first;      /* [hosts + 1] where a host begins in `ranks` */
    int *rack;       /* [hosts] */
    int *rack_first; /* [racks + 1] its first host */
    /* Where links of hosts are so unlike that it is worth it, all are known, and there are no
     * racks: what each ought to own (collectives/shares.h). */
    bool uneven;
    uint32_t *host_rate; /* [hosts] kbit/s */
    uint32_t slowest;    /* of these */
    uint32_t *cuts;      /* [hosts + 1] */
    double gain, most;   /* spr_shares_gain(), spr_shares_most(); 1 where links are alike */
};

/* Every rank on a host of its own, in no rack. False: no memory. */
bool spr_topology_new(struct spr_topology *t, int world);
void spr_topology_free(struct spr_topology *t);
/* The identities were written, or the ranks are others: ids[size], of each rank its number at the
 * start. O(size). */
void spr_topology_update(struct spr_topology *t, const int *ids, int size);

static inline int spr_topology_local_ranks(const struct spr_topology *t, int host)
{
    return t->first[host + 1] - t->first[host];
}

static inline int spr_topology_rack_hosts(const struct spr_topology *t, int rack)
{
    return t->rack_first[rack + 1] - t->rack_first[rack];
}

/* Ranks of the host that has the fewest; hosts of the rack that has. */
int spr_topology_fewest(const struct spr_topology *t);
int spr_topology_fewest_hosts(const struct spr_topology *t);

/* There are several hosts, of equally many ranks, of which each has several. */
bool spr_topology_hosts_are_even(const struct spr_topology *t);

/* Those who share a host with a rank. */
static inline struct spr_group spr_topology_neighbours(const struct spr_topology *t, int rank)
{
    int host = t->host[rank];

    return (struct spr_group){&t->ranks[t->first[host]], spr_topology_local_ranks(t, host),
                              t->local[rank]};
}

/* Some racks have several hosts, and there are several racks. */
static inline bool spr_topology_has_racks(const struct spr_topology *t)
{
    return t->racks > 1 && t->racks < t->hosts;
}
/* ... and none has less than half the hosts of another one: as many work as the smallest has. */
bool spr_topology_racks_are_even(const struct spr_topology *t);
/* Some hosts have several ranks, and there are several hosts; or there are racks. */
bool spr_topology_has_levels(const struct spr_topology *t, int size);

/* What `from` tells all ranks enters another rack once, at the relay of one of its hosts, and
 * another host once, at its relay, which passes it on to its neighbours. Those who share a host
 * with `from` hear from it. Relays of different ranks differ, so that all ranks of a host, and all
 * hosts of a rack, share the work. */
static inline int spr_topology_relay(const struct spr_topology *t, int from, int host)
{
    return t->ranks[t->first[host] + t->local[from] % spr_topology_local_ranks(t, host)];
}

/* The host at which it enters a rack. */
static inline int spr_topology_entry(const struct spr_topology *t, int from, int rack)
{
    int place = t->host[from] - t->rack_first[t->rack[t->host[from]]];

    return t->rack_first[rack] + place % spr_topology_rack_hosts(t, rack);
}

/* From whom `to` hears what `from` tells all; `ring`: from host to host, by their numbers. */
int spr_topology_source(const struct spr_topology *t, bool ring, int from, int to);
/* The ranks that `rank` passes on to what `from` tells all: how many, and the i-th of them. */
int spr_topology_listeners(const struct spr_topology *t, bool ring, int from, int rank);
int spr_topology_listener(const struct spr_topology *t, bool ring, int from, int rank, int i);

#endif
