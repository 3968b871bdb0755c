/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/trials.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "base/opt.h"
#include "collectives/collective.h"

/* What was measured holds for calls that differ by this part. */
#define NEAR 0.1
#define MOST_S 1e6

/* What is remembered ------------------------------------------------------------------------------
 */

static struct spr_tried *find(const struct spr_comm *comm, const struct spr_kind *kind, double part)
{
    for (size_t i = 0; i < comm->tried_count; i++)
        if (spr_kind_near(&comm->tried[i].kind, kind, part))
            return &comm->tried[i];
    return NULL;
}

const struct spr_tried *spr_tried_find(const struct spr_comm *comm, const struct spr_plan *plan)
{
    struct spr_kind kind;
    struct spr_tried *same;

    if (comm->tried_count == 0)
        return NULL;
    kind = spr_kind_of(comm, plan);
    same = find(comm, &kind, 0);
    return same ? same : find(comm, &kind, NEAR);
}

void spr_tried_add(struct spr_comm *comm, const struct spr_tried *tried)
{
    struct spr_tried *place = find(comm, &tried->kind, 0);

    if (!place && comm->tried_count == SPR_TRIED)
        memmove(comm->tried, comm->tried + 1, --comm->tried_count * sizeof *comm->tried);
    if (!place)
        place = &comm->tried[comm->tried_count++];
    *place = *tried;
}

/* As text ---------------------------------------------------------------------------------------
 */

bool spr_tried_parse(const char *word, struct spr_tried *t)
{
    char name[32];
    const char *end;
    double seconds;
    int place;

    *t = (struct spr_tried){0};
    if (!spr_kind_take(&word, &t->kind) || !spr_text_take(&word, "=") ||
        (t->kind.collective != SPR_C_ALLREDUCE && t->kind.collective != SPR_C_SPARSE_ALLREDUCE))
        return false; /* those that are tried */
    end = strchr(word, '@');
    if (!end || end - word >= (ptrdiff_t)sizeof name)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)(end - word), word);
    place = spr_algorithm_place(spr_collective_names[t->kind.collective], name);
    if (place < 0 || !spr_parse_double(end + 1, &seconds) || !(seconds > 0 && seconds <= MOST_S))
        return false;
    for (int i = 0; i < SPR_ALGORITHMS; i++)
        t->seconds[i] = i == place ? seconds : INFINITY;
    return true;
}

/* Each word of it; add: into a communicator, or NULL. */
static spr_status parse_all(const char *text, struct spr_comm *comm, struct spr_error *error)
{
    struct spr_tried tried;
    char word[160];

    for (const char *at = text; *text; at++) {
        size_t n = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)spr_min_size(n, sizeof word), at);
        if (n >= sizeof word || !spr_tried_parse(word, &tried))
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "SPARRING_TRIALS: '%.120s' is no trial such as "
                                 "allreduce:8/4:1024x4=flat@1.2e-05; spr_comm_trials() and "
                                 "sparring-perf --tune write them",
                                 word);
        if (comm)
            spr_tried_add(comm, &tried);
        at += n;
        if (!*at)
            break;
    }
    return SPR_OK;
}

spr_status spr_trials_check_option(const char *value, struct spr_error *error)
{
    return parse_all(value, NULL, error);
}

void spr_trials_new_era(struct spr_comm *comm)
{
    struct spr_error ignored = {0};

    comm->tried_count = 0;
    if (comm->options.trials)
        (void)parse_all(comm->options.trials, comm, &ignored); /* it was checked */
}

void spr_tried_print(const struct spr_tried *t, char *text, size_t bytes)
{
    char kind[SPR_KIND_BYTES];
    int best = 0;

    for (int i = 1; i < SPR_ALGORITHMS; i++)
        if (t->seconds[i] < t->seconds[best])
            best = i;
    snprintf(text, bytes, "%s=%s@%.3g", spr_kind_print(&t->kind, kind, sizeof kind),
             spr_algorithm_at((size_t)best)->name, t->seconds[best]);
}

const char *spr_comm_trials(spr_comm *comm, char *text, size_t bytes)
{
    text[0] = '\0';
    if (comm->process != spr_process())
        return text;
    spr_comm_lock(comm);
    for (size_t i = 0; i < comm->tried_count; i++) {
        size_t used = strlen(text);
        if (i > 0 && used + 1 < bytes)
            text[used++] = ',';
        spr_tried_print(&comm->tried[i], text + used, bytes - used);
    }
    spr_comm_unlock(comm);
    return text;
}
