/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Word that ranks have called, without data: a rank passes it on when all have given it from whom
 * it hears, so that a root of a broadcast knows of those who disagree.
 */
#ifndef SPR_COLLECTIVES_WORDS_H
#define SPR_COLLECTIVES_WORDS_H

#include "collectives/collective.h"

struct spr_words {
    uint32_t step; /* of such messages */
    int tells;     /* whom this rank tells; -1: nobody */
    int hears;     /* from how many, */
    struct spr_word {
        int from;
        struct spr_in in;
    } * heard; /* [hears] */
    bool told; /* all have given theirs, and whom this rank tells knows */
    struct spr_out out;
    char nothing[1];
};

/* Wait for the word of all. */
void spr_words_begin(spr_request *rq, struct spr_words *w);
/* Pass it on when it is there. True: that is done. */
bool spr_words_pass(spr_request *rq, struct spr_words *w);
void spr_words_end(struct spr_words *w);

#endif
