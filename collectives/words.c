/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/words.h"

void spr_words_begin(spr_request *rq, struct spr_words *w)
{
    for (int i = 0; i < w->hears; i++)
        spr_post_receive(rq, &w->heard[i].in, w->heard[i].from, w->step, w->nothing, 0, true);
}

bool spr_words_pass(spr_request *rq, struct spr_words *w)
{
    if (w->told)
        return true;
    for (int i = 0; i < w->hears; i++)
        if (w->heard[i].in.state != SPR_IN_ARRIVED)
            return false;
    w->told = true;
    if (w->tells >= 0)
        spr_post_send(rq, &w->out, w->tells, w->step, NULL, 0, true);
    return true;
}

void spr_words_end(struct spr_words *w)
{
    for (int i = 0; i < w->hears; i++)
        spr_in_release_all(&w->heard[i].in, 1);
}
