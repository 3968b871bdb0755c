/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Ranks as forked processes that run nothing but the bootstrap.
 */
#ifndef TESTS_MULTI_BOOTSTRAP_RANKS_H
#define TESTS_MULTI_BOOTSTRAP_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/bootstrap/bootstrap.h"

#define MOST_RANKS 64
#define SECOND 1000000000ull
#define NEVER_RAN (-999) /* an outcome */

/* What a rank leaves behind; shared with the test. */
struct outcome {
    spr_status status;
    int blamed;
    uint64_t ns; /* from its start to its end */
    char text[SPR_ERROR_TEXT_BYTES];
};
extern struct outcome *outcomes;

struct plan {
    int size;
    char root[128]; /* or: */
    const char *file;
    const char *secret;
    double seconds;       /* deadline */
    int rounds;           /* allgathers */
    uint64_t absent;      /* bit: this rank never comes */
    uint64_t late;        /* bit: comes half a second late */
    int dies, dies_round; /* rank that is killed before that round; dies -1: none */
    size_t odd_bytes;     /* rank 1 exchanges so many bytes instead */
    int odd_size;         /* rank 1 believes in so many ranks */
    bool wrong_secret;    /* rank 1 has another */
};

/* Once, before all others. Returns the seed, after printing it. */
uint64_t bootstrap_test_begin(void);
struct plan make_plan(int size);
struct spr_auth_key make_key(const struct plan *p, int rank);
/* p->root becomes a free port of 127.0.0.1. Somebody may take it before us, which rank 0 waits for.
 */
void choose_tcp(struct plan *p);
int free_port(void);

/* Fork all ranks but the absent. */
void start_ranks(const struct plan *p);
/* Be one rank; does not return. */
_Noreturn void rank_process(const struct plan *p, int rank);
/* Run all ranks to their end; returns how long that took, in ns. */
uint64_t run(const struct plan *p);

void expect_all_ok(const struct plan *p);
void expect_text(int rank, spr_status status, const char *words);

#endif
