/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Selectors: with the state of the last step known, cold, and fused with error feedback.
 *
 * Warm: the threshold that is known is 3 % off, in turn to both sides, as from step to step. The
 * residual is what two steps of other gradients have left, and the same before every run.
 */
#include "tools/codec/operations.h"

#include "base/cpu.h"
#include "compress/kernels/kernels.h"
#include "compress/select/select.h"
#include "tools/codec/pool.h"

_Static_assert(POOL_THREADS_MAX <= SPR_SELECT_SLICES_MAX, "each thread has a slice");

/* Results of a call. */
struct selection {
    uint32_t *index;
    float *value;
    size_t count;
};

struct select {
    _Alignas(16) unsigned char options[SPR_SELECT_OPTION_BYTES];
    struct spr_select call;
    struct spr_select_state state, known;
    struct spr_feedback feedback;
    float *residual, *before; /* NULL without feedback */
    struct selection again;   /* by scalar code, in one slice */
    bool emitting;
};

static void select_prepare(struct trial *trial)
{
    struct select *s = trial->state;

    if (s->residual)
        memcpy(s->residual, s->before, trial->vector->n * sizeof(float));
    s->state = s->known;
    s->state.threshold_bits = hint_near(s->known.threshold_bits, trial->runs);
}

static void cold_prepare(struct trial *trial)
{
    struct select *s = trial->state;

    s->state = (struct spr_select_state){0};
}

struct spr_select select_call(const struct trial *trial, const struct spr_selector *selector,
                              const void *options, struct spr_select_state *state)
{
    return (struct spr_select){.selector = selector,
                               .options = options,
                               .x = trial->vector->x,
                               .n = trial->vector->n,
                               .slices = (unsigned)trial->slices,
                               .seed = trial->vector->seed,
                               .state = state};
}

bool select_phase(struct spr_select *call, bool *emitting, int phase)
{
    if (phase == 0) {
        spr_select_begin(call);
        *emitting = false;
        return true;
    }
    if (*emitting)
        return false;
    *emitting = spr_select_decide(call);
    return true;
}

void select_slice(struct spr_select *call, bool emitting, int slice)
{
    if (emitting)
        spr_select_emit(call, (unsigned)slice);
    else
        spr_select_scan(call, (unsigned)slice);
}

static bool select_next(struct trial *trial, int phase)
{
    struct select *s = trial->state;

    return select_phase(&s->call, &s->emitting, phase);
}

static void select_run(struct trial *trial, int slice, int slices)
{
    struct select *s = trial->state;

    (void)slices;
    select_slice(&s->call, s->emitting, slice);
}

static bool allocate(struct trial *trial, struct select *s, struct spr_error *error)
{
    const struct spr_selector *selector = trial->operation->what;
    size_t n = trial->vector->n, bytes = n * sizeof(float);
    size_t list = (spr_select_most(selector, s->options, n) + SPR_SELECT_SLACK) * sizeof(float);
    size_t space = spr_select_workspace(selector, s->options, n, (unsigned)trial->slices);

    space = spr_max_size(space, spr_select_workspace(selector, s->options, n, 1));
    return (s->call.index = trial_pages(trial, list, error)) &&
           (s->call.value = trial_pages(trial, list, error)) &&
           (s->again.index = trial_pages(trial, list, error)) &&
           (s->again.value = trial_pages(trial, list, error)) &&
           (s->call.workspace = trial_pages(trial, space, error)) &&
           (!s->feedback.gradient || ((s->residual = trial_pages(trial, bytes, error)) &&
                                      (s->before = trial_pages(trial, bytes, error))));
}

/* Of the steps before: like the vector, and independent of it, element by element. In s->before. */
static const float *earlier_gradient(const struct select *s, const struct vector *v, size_t step)
{
    size_t swap = step == 0 ? 21 : 42;

    for (size_t i = 0; i < v->n; i++)
        s->before[i] = v->x[(i ^ swap) < v->n ? i ^ swap : i];
    return s->before;
}

static bool select_setup(struct trial *trial, struct spr_error *error)
{
    const struct spr_selector *selector = trial->operation->what;
    const struct vector *v = trial->vector;
    struct select *s = trial_pages(trial, sizeof(*s), error);
    bool feedback = trial->operation->reference == REFERENCE_ADD;
    static const struct spr_feedback_options plain = {.rule = SPR_FEEDBACK_PLAIN};

    if (!s)
        return false;
    trial->state = s;
    if (!trial_options(trial, selector->options, selector->option_count, s->options, error))
        return false;
    s->call = select_call(trial, selector, s->options, &s->state);
    s->feedback.gradient = feedback ? v->x : NULL;
    if (!allocate(trial, s, error))
        return false;
    if (feedback) {
        spr_feedback_init(&s->feedback, &plain, 1);
        s->feedback.residual = s->residual;
        s->call.feedback = &s->feedback;
    }
    for (unsigned step = 0; step < 3; step++) {
        if (step == 2 && feedback)
            memcpy(s->before, s->residual, v->n * sizeof(float));
        if (feedback)
            s->feedback.gradient = step < 2 ? earlier_gradient(s, v, step) : v->x;
        spr_select_run(&s->call, NULL);
    }
    s->known = s->state;
    return true;
}

/* Selected is what is larger than the smallest selected magnitude, and of those that are equal to
 * it the first. */
static const char *wrong_topk(const struct select *s, const float *x, size_t n)
{
    uint32_t t = UINT32_MAX;
    bool ties_left_out = false;
    size_t next = 0;

    for (size_t i = 0; i < s->call.count; i++)
        t = spr_key(s->call.value[i]) < t ? spr_key(s->call.value[i]) : t;
    for (size_t i = 0; i < n; i++) {
        uint32_t m = spr_key(s->before ? s->before[i] + x[i] : x[i]);
        bool selected = next < s->call.count && s->call.index[next] == i;
        if (!selected && m > t)
            return "a larger element was left out";
        if (selected && m == t && ties_left_out)
            return "of equal elements the first were left out";
        ties_left_out |= !selected && m == t;
        next += selected;
    }
    return next == s->call.count ? NULL : "the indices are not ascending, or out of range";
}

/* What stays is what there was, but for what was selected. */
static const char *wrong_residual(const struct select *s, const float *x, size_t n)
{
    size_t next = 0;

    for (size_t i = 0; i < n; i++) {
        float all = s->before[i] + x[i];
        bool selected = next < s->call.count && s->call.index[next] == i;
        float rest = selected ? 0 : all;
        next += selected;
        float is = s->residual[i];
        if (!isnan(rest) && (is != rest || signbit(is) != signbit(rest)))
            return "a wrong residual";
    }
    return NULL;
}

/* One slice and scalar code have to select the same. */
static const char *wrong_slices(struct trial *trial)
{
    struct select *s = trial->state;
    struct spr_select again = s->call;
    size_t bytes;

    if (s->residual)
        memcpy(s->residual, s->before, trial->vector->n * sizeof(float));
    memset(&s->state, 0, sizeof(s->state));
    if (trial->operation->prepare != cold_prepare)
        s->state = s->known;
    again.index = s->again.index;
    again.value = s->again.value;
    again.slices = 1;
    spr_cpu_override(0);
    spr_select_run(&again, NULL);
    spr_cpu_override(UINT32_MAX);
    bytes = again.count * sizeof(float);
    if (again.count != s->call.count || memcmp(again.index, s->call.index, bytes) != 0 ||
        memcmp(again.value, s->call.value, bytes) != 0)
        return "scalar code in one slice selects something else";
    return NULL;
}

static double square(double a) { return isfinite(a) ? a * a : 0; }

static bool select_check(struct trial *trial, struct spr_error *error)
{
    const struct spr_selector *selector = trial->operation->what;
    const struct vector *v = trial->vector;
    struct select *s = trial->state;
    const char *wrong = NULL;
    double all = 0, left = 0;
    size_t next = 0;

    if (strcmp(selector->name, "topk") == 0)
        wrong = wrong_topk(s, v->x, v->n);
    if (!wrong && s->residual)
        wrong = wrong_residual(s, v->x, v->n);
    for (size_t i = 0; i < v->n; i++) {
        double a = (double)(s->before ? s->before[i] + v->x[i] : v->x[i]);
        bool selected = next < s->call.count && s->call.index[next] == i;
        double sent = selected ? (double)s->call.value[next] : 0;
        all += square(a);
        left += square(a - sent);
        next += selected;
    }
    trial->error = all > 0 ? sqrt(left / all) : 0;
    trial->bits =
        (selector->flags & SPR_SELECT_NO_INDICES ? 32 : 64) * (double)s->call.count / (double)v->n;
    if (!wrong && next != s->call.count)
        wrong = "the indices are not ascending, or out of range";
    /* Warm, the state is another than that of the run; only selectors that depend on it mind. */
    if (!wrong && !(selector->flags & SPR_SELECT_STATEFUL))
        wrong = wrong_slices(trial);
    if (wrong)
        spr_error_set(error, SPR_ERR_INVALID, -1, "%s", wrong);
    return !wrong;
}

void op_select_add(struct operations *list)
{
    static const struct {
        const char *kind;
        enum reference reference;
        void (*prepare)(struct trial *trial);
    } kinds[] = {
        {"select", REFERENCE_READ, select_prepare},
        {"select-cold", REFERENCE_READ, cold_prepare},
        {"feedback", REFERENCE_ADD, select_prepare},
    };

    for (size_t k = 0; k < SPR_ARRAY_LEN(kinds); k++)
        for (size_t i = 0; spr_selectors[i]; i++) {
            const struct spr_selector *selector = spr_selectors[i];
            struct operation row = {.reference = kinds[k].reference,
                                    .by_density =
                                        has_density(selector->options, selector->option_count),
                                    .sliced = true,
                                    .what = selector,
                                    .setup = select_setup,
                                    .prepare = kinds[k].prepare,
                                    .next = select_next,
                                    .run = select_run,
                                    .check = select_check,
                                    .close = no_close};
            /* Shared seeds know no state. */
            if (kinds[k].prepare == cold_prepare && selector->flags & SPR_SELECT_NO_INDICES)
                continue;
            operations_add_variants(list, &row, kinds[k].kind, selector->name, selector->options,
                                    selector->option_count);
        }
}
