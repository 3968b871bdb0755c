/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/trials.h"

#include <ctype.h>
#include <errno.h>
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

static const char *const value_names[] = {
    [SPR_V_FP32] = "fp32", [SPR_V_FP16] = "fp16", [SPR_V_BF16] = "bf16", [SPR_V_CODED] = "coded"};

/* What is remembered ------------------------------------------------------------------------------
 */

struct spr_tried spr_tried_kind(const struct spr_comm *comm, const struct spr_plan *plan)
{
    return (struct spr_tried){.collective = (int)plan->collective,
                              .ranks = comm->size,
                              .hosts = comm->topology.hosts,
                              .element_bytes = spr_dtype_size(plan->dtype),
                              .count = plan->count,
                              .most_entries = plan->most_entries,
                              .vtype = (int)plan->vtype,
                              .sum_vtype = (int)plan->sum_vtype,
                              .bound_union = plan->bound_union};
}

/* They differ by this part at most. */
static bool are_near(size_t a, size_t b, double part)
{
    size_t low = spr_min_size(a, b), high = spr_max_size(a, b);

    return (double)(high - low) <= part * (double)high;
}

static struct spr_tried *find(const struct spr_comm *comm, const struct spr_tried *kind,
                              double part)
{
    for (size_t i = 0; i < comm->tried_count; i++) {
        struct spr_tried *t = &comm->tried[i];
        if (t->collective == kind->collective && t->ranks == kind->ranks &&
            t->hosts == kind->hosts && t->element_bytes == kind->element_bytes &&
            t->vtype == kind->vtype && t->sum_vtype == kind->sum_vtype &&
            t->bound_union == kind->bound_union && are_near(t->count, kind->count, part) &&
            are_near(t->most_entries, kind->most_entries, part))
            return t;
    }
    return NULL;
}

const struct spr_tried *spr_tried_find(const struct spr_comm *comm, const struct spr_plan *plan)
{
    struct spr_tried kind, *same;

    if (comm->tried_count == 0)
        return NULL;
    kind = spr_tried_kind(comm, plan);
    same = find(comm, &kind, 0);
    return same ? same : find(comm, &kind, NEAR);
}

void spr_tried_add(struct spr_comm *comm, const struct spr_tried *tried)
{
    struct spr_tried *place = find(comm, tried, 0);

    if (!place && comm->tried_count == SPR_TRIED)
        memmove(comm->tried, comm->tried + 1, --comm->tried_count * sizeof *comm->tried);
    if (!place)
        place = &comm->tried[comm->tried_count++];
    *place = *tried;
}

/* As text ---------------------------------------------------------------------------------------
 */

/* If *at begins with that, go behind it. */
static bool take(const char **at, const char *text)
{
    size_t n = strlen(text);

    if (strncmp(*at, text, n) != 0)
        return false;
    *at += n;
    return true;
}

static bool take_number(const char **at, uint64_t most, uint64_t *value)
{
    char *end;

    if (!isdigit((unsigned char)**at))
        return false;
    errno = 0;
    *value = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0 && *value <= most;
}

static bool take_values(const char **at, int *type)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(value_names); i++)
        if (take(at, value_names[i])) {
            *type = (int)i;
            return true;
        }
    return false;
}

/* Everything before the =. */
static bool take_kind(const char **at, struct spr_tried *t)
{
    uint64_t ranks, hosts, count, bytes, entries = 0;

    t->collective = take(at, "sparse_allreduce:") ? SPR_C_SPARSE_ALLREDUCE : SPR_C_ALLREDUCE;
    if (t->collective == SPR_C_ALLREDUCE && !take(at, "allreduce:"))
        return false;
    if (!take_number(at, INT32_MAX, &ranks) || !take(at, "/") ||
        !take_number(at, INT32_MAX, &hosts) || !take(at, ":") ||
        !take_number(at, SIZE_MAX, &count) || !take(at, "x") || !take_number(at, 8, &bytes))
        return false;
    if (**at == ':' && isdigit((unsigned char)(*at)[1])) {
        ++*at;
        if (!take_number(at, SIZE_MAX, &entries))
            return false;
    }
    t->bound_union = take(at, ":bounded");
    if (!t->bound_union && take(at, ":")) {
        if (!take_values(at, &t->vtype) || !take(at, "/") || !take_values(at, &t->sum_vtype))
            return false;
        t->bound_union = take(at, ":bounded");
    }
    t->ranks = (int)ranks;
    t->hosts = (int)hosts;
    t->count = count;
    t->element_bytes = bytes;
    t->most_entries = entries;
    return true;
}

bool spr_tried_parse(const char *word, struct spr_tried *t)
{
    char name[32];
    const char *end;
    double seconds;
    int place;

    *t = (struct spr_tried){0};
    if (!take_kind(&word, t) || !take(&word, "="))
        return false;
    end = strchr(word, '@');
    if (!end || end - word >= (ptrdiff_t)sizeof name)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)(end - word), word);
    place = spr_algorithm_place(spr_collective_names[t->collective], name);
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
    char entries[24] = "", values[24] = "";
    int best = 0;

    for (int i = 1; i < SPR_ALGORITHMS; i++)
        if (t->seconds[i] < t->seconds[best])
            best = i;
    if (t->most_entries)
        snprintf(entries, sizeof entries, ":%zu", t->most_entries);
    if (t->vtype != SPR_V_FP32 || t->sum_vtype != SPR_V_FP32)
        snprintf(values, sizeof values, ":%s/%s", value_names[t->vtype], value_names[t->sum_vtype]);
    snprintf(text, bytes, "%s:%d/%d:%zux%zu%s%s%s=%s@%.3g", spr_collective_names[t->collective],
             t->ranks, t->hosts, t->count, t->element_bytes, entries, values,
             t->bound_union ? ":bounded" : "", spr_algorithm_at((size_t)best)->name,
             t->seconds[best]);
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
