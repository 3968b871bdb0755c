/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Splitting: ranks of one color make a communicator of their own. All ranks of the parent take
 * part, over which they find each other:
 *
 *   who is with whom    allgather of colors and keys
 *   addresses           allgather, of which each takes those of its own color
 *   links               over the new communicators
 *   all have theirs?    allgather of what each says; if one has failed, all give up
 *
 * While links are made it is looked whether the parent works: when it fails, others may not come.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sparring/sparring.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "collectives/create.h"

#define WORD sizeof(int32_t)

struct seat {
    int32_t color, key;
};

/* What a rank says of itself before its part of an allgather. */
struct word {
    int32_t status;
    int32_t by_part; /* its part had failed: another rank's word says why, if there is one */
    char text[220];
};

struct split {
    spr_comm *parent, *part;
    int32_t color;
    int *members; /* ranks of the parent with our color, in their new order */
    int rank, size;
    uint64_t job;
    bool told;   /* this rank has taken part in the second allgather, */
    bool seated; /* ... by which all could take part in what follows */
    bool part_failed;
    uint64_t deadline_ns;
    struct spr_error error;
};
_Static_assert(sizeof(struct spr_peer_info) % WORD == 0 && sizeof(struct word) % WORD == 0,
               "sent as words");

/* The others are not to wait for a rank that cannot even say why. */
static spr_status give_up(struct split *s)
{
    spr_comm_abort(s->parent, "no memory to split");
    return spr_error_set(&s->error, SPR_ERR_NOMEM, s->parent->rank,
                         "rank %d: no memory to split the communicator", s->parent->rank);
}

/* `in` of every rank of the parent. */
static spr_status among_all(struct split *s, const void *in, void *out, size_t bytes)
{
    spr_call_options call = SPR_CALL_OPTIONS_INIT;
    spr_status status;

    call.name = "split";
    /* Others may be making links, for so long. */
    call.timeout_s = fmax(s->parent->options.timeout_s, 2 * s->parent->options.init_timeout_s);
    status = spr_allgather(s->parent, in, out, bytes / WORD, SPR_INT32, &call);
    return status ? spr_comm_failed_call(s->parent, status, &s->error) : SPR_OK;
}

/* One of the words says that its rank has failed: the first cause of its own, if there is one.
 * Returns it, or NULL. */
static const char *find_failure(const char *all, size_t size, size_t stride, int *rank)
{
    const char *found = NULL;
    struct word word;

    for (size_t r = 0; r < size; r++) {
        memcpy(&word, all + r * stride, sizeof word);
        if (!word.status || (found && word.by_part))
            continue;
        found = all + r * stride;
        *rank = (int)r;
        if (!word.by_part)
            break;
    }
    return found;
}

static spr_status as_told(struct split *s, const char *told, int rank)
{
    struct word word;

    memcpy(&word, told, sizeof word);
    word.text[sizeof word.text - 1] = '\0';
    spr_error_clear(&s->error);
    if (word.by_part) /* the parent is as it was: not what one shrinks it for */
        return spr_error_set(&s->error, SPR_ERR_BOOTSTRAP, rank, "rank %d: its part failed: %s",
                             rank, word.text);
    return spr_error_set(&s->error, spr_error_is_known(word.status) ? word.status : SPR_ERR_PROTO,
                         rank, "rank %d: %s", rank, word.text);
}

/* What each rank says, and `bytes` bytes behind it; if one says that it has failed, so have all. */
static spr_status say(struct split *s, spr_status mine, const void *part, size_t bytes, char *parts)
{
    size_t size = (size_t)s->parent->size, stride = sizeof(struct word) + bytes;
    char *all = spr_calloc(size + 1, stride), *own = all ? all + size * stride : NULL;
    struct word word = {.status = mine, .by_part = mine && s->part_failed};
    const char *failure;
    spr_status status;
    int rank;

    if (!all)
        return give_up(s);
    if (mine)
        snprintf(word.text, sizeof word.text, "%.219s",
                 *s->error.text ? s->error.text : spr_status_string(mine));
    memcpy(own, &word, sizeof word);
    if (part)
        memcpy(own + sizeof word, part, bytes);
    status = among_all(s, own, all, stride);
    failure = status == SPR_OK ? find_failure(all, size, stride, &rank) : NULL;
    if (failure)
        status = as_told(s, failure, rank);
    for (size_t r = 0; parts && r < size && status == SPR_OK; r++)
        memcpy(parts + r * bytes, all + r * stride + sizeof word, bytes);
    spr_free(all);
    return status;
}

/* Who is with whom ----------------------------------------------------------------------------- */

/* By key; of equal ones the lower rank of the parent first: they are found in that order. */
static void place(struct split *s, const struct seat *seats, int rank)
{
    int at = s->size++;

    for (; at > 0 && seats[s->members[at - 1]].key > seats[rank].key; at--)
        s->members[at] = s->members[at - 1];
    s->members[at] = rank;
}

static spr_status find_members(struct split *s, int key)
{
    size_t size = (size_t)s->parent->size;
    struct seat *seats = spr_calloc(size, sizeof *seats), mine = {s->color, key};
    spr_status status;

    s->members = spr_calloc(size, sizeof *s->members);
    status = seats && s->members ? among_all(s, &mine, seats, sizeof mine) : give_up(s);
    for (int r = 0; status == SPR_OK && s->color >= 0 && r < s->parent->size; r++)
        if (seats[r].color == s->color)
            place(s, seats, r);
    for (int r = 0; r < s->size; r++)
        if (s->members[r] == s->parent->rank)
            s->rank = r;
    spr_free(seats);
    return status;
}

/* The new communicator ------------------------------------------------------------------------- */

/* What follows happens on all ranks or, since all have heard the same, on none. */
static spr_status exchange(struct split *s, spr_status mine, const void *in, size_t bytes,
                           char *all)
{
    s->told = true;
    mine = say(s, mine, in, bytes, all);
    s->seated = mine == SPR_OK;
    return mine;
}

static spr_status part_allgather(void *ctx, const void *in, void *out, size_t bytes, void **request)
{
    struct split *s = ctx;
    char *all = spr_malloc((size_t)s->parent->size * bytes);
    spr_status status;

    assert(!s->told && bytes == sizeof(struct spr_peer_info));
    *request = s;
    status = all ? exchange(s, SPR_OK, in, bytes, all) : give_up(s);
    for (int r = 0; status == SPR_OK && r < s->size; r++)
        memcpy((char *)out + (size_t)r * bytes, all + (size_t)s->members[r] * bytes, bytes);
    spr_free(all);
    return status;
}

static const char *part_error(void *ctx)
{
    const struct split *s = ctx;

    return *s->error.text ? s->error.text : NULL;
}

static spr_status make(struct split *s)
{
    struct spr_options options = {0};
    spr_status status = spr_comm_copy_options(&s->parent->options, &options);

    if (status == SPR_OK)
        status = spr_comm_new(s->rank, s->size, &options, &spr_clock_monotonic, &s->part);
    if (status) {
        spr_opt_free(spr_options_table, spr_options_count, &options);
        return status;
    }
    /* Those are of ranks of the job: its own would be written over them. */
    *s->part->options.trace_dir = *s->part->options.trace_file = '\0';
    s->part->maker = s->parent;
    s->part->rack_known = s->parent->rack_known;
    s->part->rack = s->parent->rack;
    s->part->key = s->parent->key;
    s->part->key.job = s->job;
    s->part->key.epoch = 1;
    s->part->key.rank = s->rank;
    s->part->key.size = s->size;
    return SPR_OK;
}

static spr_status build(struct split *s)
{
    spr_bootstrap boot = SPR_BOOTSTRAP_INIT;
    spr_status status = make(s);

    boot.ctx = s;
    boot.rank = (uint32_t)s->rank;
    boot.size = (uint32_t)s->size;
    boot.allgather = part_allgather;
    boot.test = spr_bootstrap_ended;
    boot.error = part_error;
    if (status == SPR_OK)
        status = spr_comm_build(s->part, &boot, NULL, s->deadline_ns, &s->error);
    if (status)
        return status;
    /* By those of a part alone from here on: what fails in it is no concern of the others. */
    s->part->maker = NULL;
    /* Others of the parent use the CPUs, too. */
    spr_comm_lock(s->part);
    s->part->may_spin &= s->parent->may_spin;
    if (s->part->helpers > s->parent->helpers)
        s->part->helpers = s->parent->helpers;
    spr_comm_unlock(s->part);
    return SPR_OK;
}

static void discard(struct split *s)
{
    s->part_failed |= s->part && !spr_comm_is_sound(s->part);
    spr_comm_withdraw(s->part, s->error.text);
    s->part = NULL;
}

static spr_status split(struct split *s, int key, uint32_t operation)
{
    const struct spr_peer_info nobody = {0};
    spr_status status = find_members(s, key);

    if (status)
        return status;
    s->job = spr_rng_u64(s->parent->key.job, (uint64_t)operation << 32 | (uint32_t)s->color);
    s->deadline_ns =
        spr_monotonic_ns() + spr_seconds_ns(s->parent->options.init_timeout_s * spr_time_factor());
    if (s->color >= 0)
        status = build(s);
    if (!s->told)
        status = exchange(s, status, &nobody, sizeof nobody, NULL);
    if (s->seated) {
        if (status)
            discard(s);
        status = say(s, status, NULL, 0, NULL);
    }
    return status;
}

static spr_status check(spr_comm *parent, spr_comm **part)
{
    if (!parent || !part)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, -1,
                             "split: no communicator, or nowhere to put the new one");
    if (parent->process != spr_process())
        return spr_comm_forked(parent);
    if (parent->left)
        return spr_error_set(spr_thread_error(), SPR_ERR_INVALID, parent->rank,
                             "split: the communicator has grown already");
    return SPR_OK;
}

/* Its operations are none of the caller's. All ranks are at the same one: calls are in order. */
static uint32_t hide_operations(spr_comm *parent, bool begin)
{
    uint32_t next;

    spr_comm_lock(parent);
    next = parent->grow_end = parent->next_operation;
    if (begin)
        parent->grow_first = next;
    spr_comm_unlock(parent);
    return next;
}

static spr_status tune(struct split *s)
{
    spr_status status = SPR_OK;

    if (!strcmp(s->part->options.model, "measure"))
        status = spr_comm_tune(s->part);
    return status ? spr_comm_failed_call(s->part, status, &s->error) : SPR_OK;
}

spr_status spr_comm_split(spr_comm *parent, int color, int key, spr_comm **part)
{
    struct split s = {.parent = parent, .color = color < 0 ? -1 : color};
    spr_status status;

    spr_error_clear(spr_thread_error());
    status = check(parent, part);
    if (status)
        return status;
    status = split(&s, key, hide_operations(parent, true));
    (void)hide_operations(parent, false);
    if (status == SPR_OK && s.part)
        status = tune(&s);
    spr_free(s.members);
    if (status) {
        if (!s.error.status)
            spr_error_set(&s.error, status, parent->rank, "%s", spr_status_string(status));
        discard(&s);
        *spr_thread_error() = s.error;
        return status;
    }
    if (s.part)
        spr_comm_announce(s.part);
    *part = s.part;
    return SPR_OK;
}
