/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/decisions.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/rng.h"
#include "collectives/collective.h"
#include "collectives/kind.h"

/* Kinds of calls whose last algorithm is remembered; of the one that was forgotten a line more is
 * written when it comes again, which says nothing new. */
#define KINDS 1024
#define MOST_WARNINGS 8

struct decision {
    uint64_t communicator, number;
    struct spr_kind kind;
    const struct spr_algorithm *algorithm;
};

struct spr_decisions {
    uint64_t communicator;
    uint32_t first; /* operation, which has number 0 */
    bool begun, follows;
    FILE *log;             /* NULL: none */
    struct decision *told; /* [KINDS], on rank 0; NULL: nobody asks */
    size_t told_count, forgotten;
    struct decision *given; /* what is in the file, in its order; not written to once begun */
    size_t given_count;
    int warnings;
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
static bool parse(char *line, struct decision *d)
{
    const char *at;
    int place;

    line += strspn(line, " \t");
    if (!take_number(&line, &d->communicator) || !take_number(&line, &d->number))
        return false;
    at = line;
    if (!spr_kind_take(&at, &d->kind) || !spr_text_take(&at, "="))
        return false;
    place = spr_algorithm_place(spr_collective_names[d->kind.collective], at);
    if (place >= 0)
        d->algorithm = spr_algorithm_at((size_t)place);
    return place >= 0;
}

/* To the next line that says something, cut to what it says; false: there is none. All that is
 * read goes into *hash. */
static bool next_line(FILE *file, char **line, size_t *room, int *number, uint64_t *hash)
{
    ssize_t length;

    while ((length = getline(line, room, file)) >= 0) {
        size_t n = strcspn(*line, "#\r\n");
        for (ssize_t i = 0; i < length; i++)
            *hash = spr_rng_u64(*hash, (uint64_t)(unsigned char)(*line)[i]);
        ++*number;
        while (n > 0 && isspace((unsigned char)(*line)[n - 1]))
            n--;
        (*line)[n] = '\0';
        if (n > 0)
            return true;
    }
    return false;
}

static bool append(struct spr_decisions *d, const struct decision *one, size_t *room)
{
    if (d->given_count == *room) {
        size_t more = 2 * *room + 64;
        struct decision *given = spr_realloc(d->given, more * sizeof *given);
        if (!given)
            return false;
        d->given = given;
        *room = more;
    }
    d->given[d->given_count++] = *one;
    return true;
}

static spr_status read_lines(FILE *file, const char *path, struct spr_decisions *d, uint64_t *hash,
                             struct spr_error *error)
{
    size_t room = 0, given_room = 0;
    spr_status status = SPR_OK;
    char *line = NULL;
    int number = 0;

    while (status == SPR_OK && next_line(file, &line, &room, &number, hash)) {
        struct decision one = {0};
        if (!parse(line, &one))
            status = spr_error_set(error, SPR_ERR_INVALID, -1,
                                   "SPARRING_DECISIONS: %s:%d: '%.160s' is no decision such as "
                                   "0 7 allreduce:8/4:1024x4=flat; SPARRING_DECISIONS_LOG "
                                   "writes them",
                                   path, number, line);
        else if (!append(d, &one, &given_room))
            status = SPR_ERR_NOMEM;
    }
    if (status == SPR_OK && !feof(file))
        status = spr_error_errno(error, SPR_ERR_INVALID, -1, errno, "SPARRING_DECISIONS=%s", path);
    free(line);
    return status;
}

/* It is read once: what is in it may change, and a pipe has it once. */
static spr_status read_all(const char *path, struct spr_decisions *d, uint64_t *hash,
                           struct spr_error *error)
{
    FILE *file = fopen(path, "re");
    spr_status status;

    *hash = 1;
    if (!file)
        return spr_error_errno(error, SPR_ERR_INVALID, -1, errno, "SPARRING_DECISIONS=%s", path);
    d->follows = true;
    status = read_lines(file, path, d, hash, error);
    fclose(file);
    return status;
}

/* Rank 0 would empty what others still read. */
static bool are_one_file(const char *a, const char *b)
{
    struct stat of_a, of_b;

    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

static bool is_given(const char *path) { return path && *path; }

spr_status spr_decisions_load(const struct spr_options *options, struct spr_decisions **decisions,
                              uint64_t *hash, struct spr_error *error)
{
    const char *path = options->decisions, *log = options->decisions_log;
    struct spr_decisions *d = *decisions = spr_calloc(1, sizeof *d);

    *hash = 0;
    if (!d)
        return SPR_ERR_NOMEM;
    if (!is_given(path))
        return SPR_OK;
    if (is_given(log) && are_one_file(path, log))
        return spr_error_set(error, SPR_ERR_INVALID, -1,
                             "SPARRING_DECISIONS_LOG=%s is the file that is followed: it needs "
                             "another one",
                             log);
    return read_all(path, d, hash, error);
}

/* Life --------------------------------------------------------------------------------------------
 */

#ifndef __clang__
#pragma GCC diagnostic push
/* The analyzer of gcc 12 believes that what is stored in a structure of the caller is lost. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#pragma GCC diagnostic ignored "-Wanalyzer-file-leak"
#endif
/* A process begins the file anew once, whichever of its communicators comes first. */
static spr_status open_log(struct spr_decisions *d, const char *path, struct spr_error *error)
{
    static _Atomic bool begun;
    bool first = !atomic_exchange(&begun, true);
    FILE *log = fopen(path, first ? "we" : "ae");

    if (!log)
        return spr_error_errno(error, SPR_ERR_SYSTEM, -1, errno, "SPARRING_DECISIONS_LOG=%s", path);
    if (first)
        fprintf(log, "# Decisions of sparring %s: COMMUNICATOR OPERATION KIND=ALGORITHM\n",
                spr_version());
    fflush(log);
    d->log = log;
    return SPR_OK;
}

spr_status spr_decisions_open(struct spr_comm *comm, struct spr_error *error)
{
    struct spr_decisions *d = comm->decisions;
    const char *log = comm->options.decisions_log;

    if (comm->rank != 0 || (!is_given(log) && !d->follows))
        return SPR_OK;
    d->told = spr_calloc(KINDS, sizeof *d->told);
    if (!d->told)
        return SPR_ERR_NOMEM;
    return is_given(log) ? open_log(d, log, error) : SPR_OK;
}
#ifndef __clang__
#pragma GCC diagnostic pop
#endif

/* Processes may have made other numbers of communicators before: that of rank 0 counts. */
static spr_status agree(struct spr_comm *comm, spr_bootstrap *boot, uint64_t deadline_ns,
                        struct spr_error *error)
{
    struct spr_decisions *d = comm->decisions;
    uint64_t *all = spr_calloc((size_t)comm->size, sizeof *all);
    spr_status status = SPR_ERR_NOMEM;

    if (all)
        status =
            spr_bootstrap_allgather(boot, &d->communicator, all, sizeof *all, deadline_ns, error);
    if (status == SPR_OK)
        d->communicator = all[0];
    spr_free(all);
    return status;
}

spr_status spr_decisions_begin(struct spr_comm *comm, spr_bootstrap *boot, uint64_t deadline_ns,
                               struct spr_error *error)
{
    static _Atomic uint64_t made;
    struct spr_decisions *d = comm->decisions;
    spr_status status = SPR_OK;

    d->communicator = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
    if (d->follows && comm->size > 1)
        status = agree(comm, boot, deadline_ns, error);
    d->first = comm->next_operation;
    d->begun = status == SPR_OK;
    return status;
}

void spr_decisions_free(struct spr_decisions *d)
{
    if (!d)
        return;
    if (d->log)
        fclose(d->log);
    spr_free(d->told);
    spr_free(d->given);
    spr_free(d);
}

/* Use ---------------------------------------------------------------------------------------------
 */

static uint64_t number_of(const struct spr_decisions *d, const struct spr_plan *plan)
{
    return (uint32_t)(plan->operation - d->first);
}

const struct spr_algorithm *spr_decisions_recall(const struct spr_comm *comm,
                                                 const struct spr_plan *plan)
{
    const struct spr_decisions *d = comm->decisions;
    struct spr_kind kind;
    uint64_t number;

    if (!d || !d->begun || d->given_count == 0)
        return NULL;
    kind = spr_kind_of(comm, plan);
    number = number_of(d, plan);
    for (size_t i = d->given_count; i-- > 0;) {
        const struct decision *one = &d->given[i];
        if (one->communicator == d->communicator && one->number <= number &&
            spr_kind_near(&one->kind, &kind, 0))
            return one->algorithm;
    }
    return NULL;
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

static void write_line(struct spr_decisions *d, const struct decision *now, const char *kind,
                       const char *by)
{
    fprintf(d->log, "%" PRIu64 " %" PRIu64 " %s=%s # %s\n", now->communicator, now->number, kind,
            now->algorithm->name, by);
    fflush(d->log);
    if (!ferror(d->log))
        return;
    spr_warn(SPR_SUB_COLL, "SPARRING_DECISIONS_LOG cannot be written any more, and ends here: %s",
             strerrordesc_np(errno));
    fclose(d->log);
    d->log = NULL;
}

void spr_decisions_note(struct spr_comm *comm, const struct spr_plan *plan,
                        const struct spr_algorithm *algorithm, const char *by)
{
    struct spr_decisions *d = comm->decisions;
    char kind[SPR_KIND_BYTES];
    struct decision now, *last;

    if (!d || !d->begun || !d->told)
        return;
    now =
        (struct decision){d->communicator, number_of(d, plan), spr_kind_of(comm, plan), algorithm};
    last = remembered(d, &now.kind);
    if (spr_kind_near(&last->kind, &now.kind, 0) && last->algorithm == algorithm)
        return;
    *last = now;
    spr_kind_print(&now.kind, kind, sizeof kind);
    if (d->follows && strcmp(by, "file") != 0 && d->warnings++ < MOST_WARNINGS)
        spr_warn(SPR_SUB_COLL,
                 "SPARRING_DECISIONS=%s has nothing usable for %s, operation %" PRIu64
                 " of communicator %" PRIu64 ": %s take %s",
                 comm->options.decisions, kind, now.number, now.communicator, by, algorithm->name);
    if (d->log)
        write_line(d, &now, kind, by);
}
