/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Choosing by hand what happens next. Events wait in three queues per way: frames (with the end of
 * the link behind them), frames that have left, and news of a loss, which may overtake frames.
 */
#include "transport/sim/private.h"

void spr_sim_choice_add(struct spr_sim_rank *r, struct spr_sim_event *e)
{
    struct spr_sim_link *l = spr_sim_link_to(r, e->peer);

    if (e->kind == SPR_SIM_SENT)
        spr_list_push_back(&l->choices[SPR_SIM_CHOICE_SENT], &e->node);
    else if (e->kind == SPR_SIM_DIED || e->kind == SPR_SIM_BROKEN)
        spr_list_push_back(&l->choices[SPR_SIM_CHOICE_LOSS], &e->node);
    else
        spr_list_push_back(&l->choices[SPR_SIM_CHOICE_FRAME], &e->node);
}

void spr_sim_choice_drop(struct spr_sim_rank *r)
{
    for (int k = 0; k < r->sim->options.ranks; k++) {
        for (size_t i = 0; r->links[k] && i < SPR_ARRAY_LEN(r->links[k]->choices); i++) {
            struct spr_list *queue = &r->links[k]->choices[i];
            while (!spr_list_empty(queue)) {
                struct spr_sim_event *e = spr_list_entry(queue->next, struct spr_sim_event, node);
                spr_list_remove(&e->node);
                spr_sim_event_free(e);
            }
        }
    }
}

size_t spr_sim_choices(const struct spr_sim *sim, struct spr_sim_choice *choices, size_t most)
{
    size_t n = 0;

    for (int r = 0; r < sim->options.ranks; r++) {
        const struct spr_sim_rank *rank = &sim->ranks[r];
        if (rank->closed || spr_sim_killed(rank))
            continue;
        for (int k = 0; k < sim->options.ranks; k++) {
            const struct spr_sim_link *l = rank->links[k];
            for (int i = 0; l && i < (int)SPR_ARRAY_LEN(l->choices); i++) {
                if (spr_list_empty(&l->choices[i]))
                    continue;
                if (n < most)
                    choices[n] = (struct spr_sim_choice){r, k, (enum spr_sim_what)i};
                n++;
            }
        }
    }
    return n;
}

static void due(struct spr_sim_rank *r, struct spr_list *queue)
{
    struct spr_sim_event *e = spr_list_entry(queue->next, struct spr_sim_event, node);

    spr_list_remove(&e->node);
    e->ns = spr_sim_now_ns(r->sim);
    spr_sim_event_push(r, e);
}

void spr_sim_choose(struct spr_sim *sim, const struct spr_sim_choice *choice)
{
    struct spr_sim_rank *r = &sim->ranks[choice->rank];
    struct spr_list *queue = &r->links[choice->peer]->choices[choice->what];
    bool header = spr_list_entry(queue->next, struct spr_sim_event, node)->kind == SPR_SIM_HEADER;

    due(r, queue);
    if (header) /* its payload comes with it */
        due(r, queue);
}
