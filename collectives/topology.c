/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/topology.h"

#include "base/mem.h"

bool spr_topology_new(struct spr_topology *t, int world)
{
    size_t n = (size_t)world;

    t->identity = spr_calloc(n, sizeof(int));
    t->host = spr_calloc(n, sizeof(int));
    t->local = spr_calloc(n, sizeof(int));
    t->ranks = spr_calloc(n, sizeof(int));
    t->first = spr_calloc(n + 1, sizeof(int));
    if (!t->identity || !t->host || !t->local || !t->ranks || !t->first) {
        spr_topology_free(t);
        return false;
    }
    t->hosts = world;
    for (int r = 0; r < world; r++) {
        t->identity[r] = t->host[r] = t->ranks[r] = t->first[r] = r;
        t->first[r + 1] = r + 1;
    }
    return true;
}

void spr_topology_free(struct spr_topology *t)
{
    spr_free(t->identity);
    spr_free(t->host);
    spr_free(t->local);
    spr_free(t->ranks);
    spr_free(t->first);
    *t = (struct spr_topology){0};
}

void spr_topology_update(struct spr_topology *t, const int *ids, int size)
{
    t->hosts = 0;
    for (int r = 0; r < size; r++) {
        int same = 0;
        while (same < r && t->identity[ids[same]] != t->identity[ids[r]])
            same++;
        t->host[r] = same < r ? t->host[same] : t->hosts++;
    }
    for (int h = 0, at = 0; h < t->hosts; h++) {
        t->first[h] = at;
        for (int r = 0; r < size; r++) {
            if (t->host[r] != h)
                continue;
            t->local[r] = at - t->first[h];
            t->ranks[at++] = r;
        }
        t->first[h + 1] = at;
    }
}

int spr_topology_fewest(const struct spr_topology *t)
{
    int fewest = spr_topology_local_ranks(t, 0);

    for (int h = 1; h < t->hosts; h++)
        if (spr_topology_local_ranks(t, h) < fewest)
            fewest = spr_topology_local_ranks(t, h);
    return fewest;
}

bool spr_topology_has_levels(const struct spr_topology *t, int size)
{
    return t->hosts > 1 && t->hosts < size;
}
