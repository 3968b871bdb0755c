/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What a peer sent before this rank had a use for it: grants, requests, and messages that were sent
 * eagerly. Messages are kept in buffers of three sizes that are used again, so that nothing is
 * allocated once a job has run for a while; when a peer is far ahead, in memory of their own size.
 */
#include <string.h>

#include "transport/channel_private.h"

/* Grants, requests and messages of a peer that this rank has no use for yet. */
#define MAX_KEPT 65536
/* So many messages may have buffers that are larger than they. */
#define MAX_ROOMY 64
#define BLOCK_BYTES ((size_t)16 << 10)

/* In front of the data. */
struct buffer {
    size_t pool; /* which; SPR_EARLY_SIZES: none */
    size_t zero; /* keeps the data aligned to 16 bytes */
    char data[];
};

void spr_channel_early_init(struct spr_channel *ch)
{
    const size_t sizes[SPR_EARLY_SIZES] = {256, 2048, ch->options->eager_bytes};

    spr_pool_init(&ch->early_pool, sizeof(struct early), 32, 0);
    for (size_t i = 0; i < SPR_EARLY_SIZES; i++) {
        size_t bytes = sizeof(struct buffer) + sizes[i];
        spr_pool_init(&ch->data_pools[i], bytes, spr_max_size(BLOCK_BYTES / bytes, 1), 0);
    }
}

void spr_channel_early_destroy(struct spr_channel *ch)
{
    spr_pool_destroy(&ch->early_pool);
    for (size_t i = 0; i < SPR_EARLY_SIZES; i++)
        spr_pool_destroy(&ch->data_pools[i]);
}

void *spr_channel_data_get(struct spr_channel *ch, size_t bytes)
{
    size_t pool = 0;
    struct buffer *b;

    while (pool < SPR_EARLY_SIZES && (sizeof *b + bytes > ch->data_pools[pool].object_bytes ||
                                      ch->data_pools[pool].live >= MAX_ROOMY))
        pool++;
    b = pool < SPR_EARLY_SIZES ? spr_pool_get(&ch->data_pools[pool])
                               : spr_malloc(sizeof *b + bytes);
    if (!b)
        return NULL;
    b->pool = pool;
    return b->data;
}

void spr_channel_data_put(struct spr_channel *ch, void *data)
{
    struct buffer *b = data ? spr_container_of(data, struct buffer, data) : NULL;

    if (b && b->pool < SPR_EARLY_SIZES)
        spr_pool_put(&ch->data_pools[b->pool], b);
    else
        spr_free(b);
}

void spr_channel_drop_early(struct spr_channel_peer *p, struct early *e)
{
    if (p->arriving == e)
        p->arriving = NULL;
    else
        spr_list_remove(&e->node);
    p->kept_entries--;
    if (e->kind == EARLY_DATA)
        p->kept_bytes -= spr_eager_cost(e->bytes);
    spr_channel_data_put(p->channel, e->data);
    spr_pool_put(&p->channel->early_pool, e);
}

struct early *spr_channel_keep(struct spr_channel_peer *p, enum early_kind kind,
                               const struct spr_frame *f)
{
    struct early *e;

    if (p->kept_entries >= MAX_KEPT) {
        spr_channel_fail(p, SPR_ERR_PROTO, "sent too much ahead of this rank");
        return NULL;
    }
    e = spr_pool_get(&p->channel->early_pool);
    if (!e) {
        spr_channel_fail(p, SPR_ERR_NOMEM, "no memory for what a rank sent ahead");
        return NULL;
    }
    *e = (struct early){
        .kind = kind, .operation = f->operation, .step = f->step, .descriptor = f->descriptor};
    p->kept_entries++;
    spr_list_push_back(&p->early, &e->node);
    return e;
}

void spr_channel_deliver_early(struct spr_channel_peer *p, struct spr_recv *r, struct early *e)
{
    if (e->bytes > r->capacity) {
        spr_channel_drop_early(p, e);
        spr_channel_fail(p, SPR_ERR_PROTO, "sent more than the plan says");
        r->done(r, SPR_ERR_PROTO);
        return;
    }
    r->bytes = e->bytes;
    p->eager_consumed += spr_eager_cost(e->bytes);
    if (r->into && !r->lend) {
        memcpy(r->into, e->data, e->bytes);
        r->data = r->into;
        spr_channel_drop_early(p, e);
    } else {
        r->data = e->data;
        r->token = e->data;
        r->copied = true;
        e->data = NULL; /* now the receive's */
        spr_channel_drop_early(p, e);
    }
    spr_channel_report_credit(p);
    r->done(r, SPR_OK);
}

void spr_channel_drop_ahead(struct spr_channel_peer *p, uint32_t operation)
{
    struct spr_list *it, *next;

    spr_list_for_each_safe(it, next, &p->early)
    {
        struct early *e = spr_list_entry(it, struct early, node);
        if (e->operation != operation)
            continue;
        if (e->kind == EARLY_DATA)
            p->eager_consumed += spr_eager_cost(e->bytes);
        spr_channel_drop_early(p, e);
    }
    spr_channel_report_credit(p);
}
