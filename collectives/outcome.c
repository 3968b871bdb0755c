/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/outcome.h"

#include <limits.h>

#include "base/fork.h"
#include "base/log.h"
#include "collectives/comm.h"
#include "compress/codec.h"

/* Sets of operations --------------------------------------------------------------------------- */

static bool bit(const struct spr_outcome *o, uint32_t k)
{
    return o->later[k / 64] >> (k % 64) & 1;
}

bool spr_outcome_has(const struct spr_outcome *o, uint32_t operation)
{
    int32_t k = (int32_t)(operation - o->completed - 1);

    return k < 0 || ((uint32_t)k < SPR_OUTCOME_AHEAD && bit(o, (uint32_t)k));
}

/* Bit 0 never stays set. */
static void normalise(struct spr_outcome *o)
{
    const size_t words = SPR_ARRAY_LEN(o->later);

    while (o->later[0] & 1) {
        o->completed++;
        for (size_t i = 0; i < words; i++)
            o->later[i] = o->later[i] >> 1 | (i + 1 < words ? o->later[i + 1] << 63 : 0);
    }
}

bool spr_outcome_reaches(const struct spr_outcome *o, uint32_t operation)
{
    return operation - o->completed - 1 < SPR_OUTCOME_AHEAD;
}

void spr_outcome_add(struct spr_outcome *o, uint32_t operation)
{
    uint32_t k = operation - o->completed - 1;

    if (spr_outcome_reaches(o, operation))
        o->later[k / 64] |= (uint64_t)1 << (k % 64);
    normalise(o);
}

void spr_outcome_intersect(struct spr_outcome *o, const struct spr_outcome *other)
{
    struct spr_outcome both = {.completed = o->completed};

    if ((int32_t)(other->completed - o->completed) < 0)
        both.completed = other->completed;
    for (uint32_t k = 0; k < SPR_OUTCOME_AHEAD; k++) {
        uint32_t operation = both.completed + 1 + k;
        if (spr_outcome_has(o, operation) && spr_outcome_has(other, operation))
            both.later[k / 64] |= (uint64_t)1 << (k % 64);
    }
    normalise(&both);
    *o = both;
}

static int later(const struct spr_outcome *o)
{
    int n = 0;

    for (size_t i = 0; i < SPR_ARRAY_LEN(o->later); i++)
        n += __builtin_popcountll(o->later[i]);
    return n;
}

int spr_outcome_surplus(const struct spr_outcome *own, const struct spr_outcome *common)
{
    int64_t surplus =
        (int64_t)(int32_t)(own->completed - common->completed) + later(own) - later(common);

    /* `common` may come from the wire. */
    return surplus < 0 ? 0 : surplus > INT_MAX ? INT_MAX : (int)surplus;
}

int spr_outcome_surplus_between(const struct spr_outcome *own, const struct spr_outcome *common,
                                uint32_t first, uint32_t end)
{
    int n = 0;

    for (uint32_t operation = first; operation != end; operation++)
        n += spr_outcome_has(own, operation) && !spr_outcome_has(common, operation);
    return n;
}

/* Codecs --------------------------------------------------------------------------------------- */

static void unlink_codec(struct spr_codec_keeper *keeper)
{
    spr_list_remove(&keeper->node);
    keeper->owner = NULL;
}

static void forget(spr_codec *codec)
{
    struct spr_codec_keeper *keeper = spr_codec_keeper(codec);
    spr_comm *comm = keeper->owner;

    if (comm->process != spr_process()) { /* a forked child, which never looks at the list */
        keeper->owner = NULL;
        return;
    }
    spr_comm_lock(comm);
    unlink_codec(keeper);
    spr_comm_unlock(comm);
}

void spr_outcome_claim(spr_comm *comm, spr_codec *codec)
{
    const struct spr_codec_keeper *keeper = spr_codec_keeper(codec);

    if (keeper->owner && keeper->owner != comm)
        keeper->forget(codec);
}

void spr_outcome_committed(spr_comm *comm, spr_codec *codec, uint32_t operation)
{
    struct spr_codec_keeper *keeper = spr_codec_keeper(codec);

    if (!keeper->owner) {
        spr_list_push_back(&comm->codecs, &keeper->node);
        keeper->owner = comm;
        keeper->forget = forget;
    }
    keeper->operation = operation;
}

void spr_outcome_revoke(spr_comm *comm, const struct spr_outcome *common)
{
    while (!spr_list_empty(&comm->codecs)) {
        spr_codec *codec = spr_codec_of_keeper(comm->codecs.next);
        struct spr_codec_keeper *keeper = spr_codec_keeper(codec);
        if (!spr_outcome_has(common, keeper->operation)) {
            spr_info(SPR_SUB_COLL,
                     "operation #%u did not complete everywhere: codec %s takes back "
                     "what it sent",
                     keeper->operation, spr_codec_spec(codec));
            spr_codec_revoke(codec);
        }
        unlink_codec(keeper);
    }
}

void spr_outcome_close(spr_comm *comm)
{
    while (!spr_list_empty(&comm->codecs))
        unlink_codec(spr_codec_keeper(spr_codec_of_keeper(comm->codecs.next)));
}
