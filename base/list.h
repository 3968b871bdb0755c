/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Intrusive doubly linked list with a head; empty list = head that points to itself.
 */
#ifndef SPR_BASE_LIST_H
#define SPR_BASE_LIST_H

#include <stdbool.h>

#include "base/util.h"

struct spr_list {
    struct spr_list *next, *prev;
};

static inline void spr_list_init(struct spr_list *l) { l->next = l->prev = l; }
static inline bool spr_list_empty(const struct spr_list *l) { return l->next == l; }
static inline void spr_list_insert_before(struct spr_list *pos, struct spr_list *e)
{
    e->prev = pos->prev;
    e->next = pos;
    pos->prev->next = e;
    pos->prev = e;
}
static inline void spr_list_push_back(struct spr_list *head, struct spr_list *e)
{
    spr_list_insert_before(head, e);
}
static inline void spr_list_push_front(struct spr_list *head, struct spr_list *e)
{
    spr_list_insert_before(head->next, e);
}
/* Unlink and leave e as an empty list, so that removing twice is harmless. */
static inline void spr_list_remove(struct spr_list *e)
{
    e->prev->next = e->next;
    e->next->prev = e->prev;
    spr_list_init(e);
}
#define spr_list_entry(ptr, type, member) spr_container_of(ptr, type, member)
#define spr_list_for_each(it, head) for ((it) = (head)->next; (it) != (head); (it) = (it)->next)
#define spr_list_for_each_safe(it, tmp, head)                                                      \
    for ((it) = (head)->next, (tmp) = (it)->next; (it) != (head); (it) = (tmp), (tmp) = (it)->next)

#endif
