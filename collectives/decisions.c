/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/decisions.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "collectives/collective.h"
#include "collectives/kind.h"

/* Kinds of calls whose last algorithm is remembered; of the one that was forgotten a line more is
 * written when it comes again, which says nothing new. */
#define KINDS 1024

struct decision {
    uint64_t number;
    struct spr_kind kind;
    size_t place; /* of the algorithm, in the table */
};

struct spr_decisions {
    uint64_t communicator, next;
    bool begun;
    FILE *log;             /* NULL: none */
    struct decision *told; /* [KINDS] */
    size_t told_count, forgotten;
    struct decision *given; /* to be followed, in the order of the file */
    size_t given_count;
    bool warned;
};

/* Reading -----------------------------------------------------------------------------------------
 */

static bool take_number(char **at, uint64_t *value)
{
    if (!isdigit((unsigned char)**at))
        return false;
    errno = 0;
    *value = strtoull(*at, at, 10);
    *at += strspn(*at, " \t");
    return errno == 0;
}

/* A line without its end and its comment. */
static bool parse(char *line, uint64_t *communicator, struct decision *d)
{
    const char *at;
    int place;

    line += strspn(line, " \t");
    if (!take_number(&line, communicator) || !take_number(&line, &d->number))
        return false;
    at = line;
    if (!spr_kind_take(&at, &d->kind) || !spr_text_take(&at, "="))
        return false;
    place = spr_algorithm_place(spr_collective_names[d->kind.collective], at);
    d->place = (size_t)place;
    return place >= 0;
}

/* To the next line that says something, cut to what it says; false: there is none. */
static bool next_line(FILE *file, char **line, size_t *room, int *number)
{
    while (getline(line, room, file) >= 0) {
        size_t n = strcspn(*line, "#\r\n");
        ++*number;
        while (n > 0 && isspace((unsigned char)(*line)[n - 1]))
            n--;
        (*line)[n] = '\0';
        if (n > 0)
            return true;
    }
    return false;
}

static bool append(struct spr_decisions *d, const struct decision *one)
{
    struct decision *more =
        spr_realloc(d->given, (d->given_count + 1) * sizeof *d->given); /* seldom, at the start */

    if (!more)
        return false;
    d->given = more;
    d->given[d->given_count++] = *one;
    return true;
}

/* All lines of the file; those of this communicator into *d, unless that is NULL. */
static spr_status read_all(const char *path, struct spr_decisions *d, struct spr_error *error)
{
    FILE *file = fopen(path, "re");
    spr_status status = SPR_OK;
    char *line = NULL;
    size_t room = 0;
    int number = 0;

    if (!file)
        return spr_error_errno(error, SPR_ERR_INVALID, -1, errno, "SPARRING_DECISIONS=%s", path);
    while (status == SPR_OK && next_line(file, &line, &room, &number)) {
        uint64_t communicator;
        struct decision one = {0};
        if (!parse(line, &communicator, &one))
            status = spr_error_set(error, SPR_ERR_INVALID, -1,
                                   "SPARRING_DECISIONS: %s:%d: '%.160s' is no decision such as "
                                   "0 7 allreduce:8/4:1024x4=flat; SPARRING_DECISIONS_LOG "
                                   "writes them",
                                   path, number, line);
        else if (d && communicator == d->communicator && !append(d, &one))
            status = SPR_ERR_NOMEM;
    }
    if (status == SPR_OK && ferror(file))
        status = spr_error_errno(error, SPR_ERR_INVALID, -1, errno, "SPARRING_DECISIONS=%s", path);
    fclose(file);
    free(line);
    return status;
}

spr_status spr_decisions_check_option(const char *path, struct spr_error *error)
{
    return *path ? read_all(path, NULL, error) : SPR_OK;
}

uint64_t spr_decisions_hash(const char *path)
{
    FILE *file = path && *path ? fopen(path, "re") : NULL;
    uint64_t h = file ? 1 : 0;

    for (int c; file && (c = getc(file)) != EOF;)
        h = spr_rng_u64(h, (uint64_t)c);
    if (file)
        fclose(file);
    return h;
}

/* Life --------------------------------------------------------------------------------------------
 */

/* The first communicator of a process begins the file anew. */
static spr_status open_log(struct spr_decisions *d, const char *path, struct spr_error *error)
{
    d->told = spr_calloc(KINDS, sizeof *d->told);
    if (!d->told)
        return SPR_ERR_NOMEM;
    d->log = fopen(path, d->communicator == 0 ? "we" : "ae");
    if (!d->log)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "SPARRING_DECISIONS_LOG=%s", path);
    if (d->communicator == 0)
        fprintf(d->log, "# Decisions of sparring %s: COMMUNICATOR DECISION KIND=ALGORITHM\n",
                spr_version());
    return SPR_OK;
}

spr_status spr_decisions_open(struct spr_comm *comm, struct spr_error *error)
{
    static _Atomic uint64_t made;
    const char *path = comm->options.decisions, *log = comm->options.decisions_log;
    struct spr_decisions *d = spr_calloc(1, sizeof *d);
    spr_status status = SPR_OK;

    if (!d)
        return SPR_ERR_NOMEM;
    comm->decisions = d;
    d->communicator = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
    if (path && *path)
        status = read_all(path, d, error);
    if (status == SPR_OK && log && *log && comm->rank == 0)
        status = open_log(d, log, error);
    return status;
}

void spr_decisions_close(struct spr_comm *comm)
{
    struct spr_decisions *d = comm->decisions;

    if (!d)
        return;
    if (d->log && fclose(d->log) != 0)
        spr_warn(SPR_SUB_COLL, "SPARRING_DECISIONS_LOG=%s: %s", comm->options.decisions_log,
                 strerrordesc_np(errno));
    spr_free(d->told);
    spr_free(d->given);
    spr_free(d);
    comm->decisions = NULL;
}

/* Use ---------------------------------------------------------------------------------------------
 */

void spr_decisions_begin(struct spr_comm *comm) { comm->decisions->begun = true; }

int spr_decisions_recall(const struct spr_comm *comm, const struct spr_plan *plan)
{
    struct spr_decisions *d = comm->decisions;
    struct spr_kind kind;
    char text[SPR_KIND_BYTES];

    if (!d || !d->begun || d->given_count == 0)
        return -1;
    kind = spr_kind_of(comm, plan);
    for (size_t i = d->given_count; i-- > 0;)
        if (d->given[i].number <= d->next && spr_kind_near(&d->given[i].kind, &kind, 0))
            return (int)d->given[i].place;
    if (!d->warned && comm->rank == 0)
        spr_warn(SPR_SUB_COLL,
                 "SPARRING_DECISIONS: %s has none for %s, number %" PRIu64
                 " of communicator %" PRIu64 ": chosen anew, as are others that it does not have",
                 comm->options.decisions, spr_kind_print(&kind, text, sizeof text), d->next,
                 d->communicator);
    d->warned = true;
    return -1;
}

uint64_t spr_decisions_next(const struct spr_comm *comm)
{
    return comm->decisions ? comm->decisions->next : 0;
}

void spr_decisions_take_back(struct spr_comm *comm, uint64_t next)
{
    if (comm->decisions)
        comm->decisions->next = next;
}

/* Where the last algorithm of this kind is, or is to be, remembered. */
static struct decision *remembered(struct spr_decisions *d, const struct spr_kind *kind)
{
    for (size_t i = 0; i < d->told_count; i++)
        if (spr_kind_near(&d->told[i].kind, kind, 0))
            return &d->told[i];
    if (d->told_count < KINDS)
        return &d->told[d->told_count++];
    return &d->told[d->forgotten++ % KINDS];
}

void spr_decisions_note(struct spr_comm *comm, const struct spr_plan *plan, size_t place,
                        const char *by)
{
    struct spr_decisions *d = comm->decisions;
    char text[SPR_KIND_BYTES];
    struct decision now, *last;

    if (!d || !d->begun)
        return;
    now = (struct decision){d->next++, spr_kind_of(comm, plan), place};
    if (!d->log)
        return;
    last = remembered(d, &now.kind);
    if (last->kind.ranks && spr_kind_near(&last->kind, &now.kind, 0) && last->place == place)
        return;
    *last = now;
    fprintf(d->log, "%" PRIu64 " %" PRIu64 " %s=%s # %s\n", d->communicator, now.number,
            spr_kind_print(&now.kind, text, sizeof text), spr_algorithm_at(place)->name, by);
    fflush(d->log);
}
