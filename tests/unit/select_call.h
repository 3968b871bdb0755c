/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A selector with its arrays, as the tests of compress/select/ call it. The workspace is filled
 * with ones before every call, and guarded: nothing is expected of it, nothing is written behind
 * it.
 */
#ifndef SPR_TESTS_UNIT_SELECT_CALL_H
#define SPR_TESTS_UNIT_SELECT_CALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compress/select/select.h"

#define CALL_GUARD 64 /* bytes, and behind the results as well */

struct call {
    struct spr_select s;
    struct spr_select_state state;
    struct spr_feedback feedback;
    _Alignas(16) unsigned char options[SPR_SELECT_OPTION_BYTES];
    size_t n, most, workspace_bytes;
    unsigned scans;             /* of the last call */
    float *residual, *velocity; /* used with feedback only */
    uint32_t *index;
    float *value, *masked;
    unsigned char *workspace;
};

/* Zeros that are aligned as floats are, and no better. */
static inline float *call_array(size_t n)
{
    float *room = calloc(n + 1, sizeof(float));

    assert_non_null(room);
    return room + 1;
}

static inline void call_array_free(void *array)
{
    if (array)
        free((float *)array - 1);
}

static inline void call_options(struct call *c, const char *text)
{
    const struct spr_selector *selector = c->s.selector;
    char copy[256], *save = NULL;
    struct spr_error error;

    assert_int_equal(
        spr_opt_defaults(selector->options, selector->option_count, c->options, &error), SPR_OK);
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = 0;
        const struct spr_opt *opt = spr_opt_find(selector->options, selector->option_count, word);
        assert_non_null(opt);
        assert_int_equal(spr_opt_set(opt, c->options, value, &error), SPR_OK);
    }
}

/* rule NULL: no feedback. */
static inline void call_make(struct call *c, const char *selector, const char *options, size_t n,
                             unsigned slices, const struct spr_feedback_options *rule)
{
    memset(c, 0, sizeof(*c));
    c->n = n;
    c->s.selector = spr_selector_find(selector);
    assert_non_null(c->s.selector);
    call_options(c, options);
    c->most = spr_select_most(c->s.selector, c->options, n);
    c->workspace_bytes = spr_select_workspace(c->s.selector, c->options, n, slices);
    c->workspace = malloc(c->workspace_bytes + CALL_GUARD);
    c->residual = call_array(n + 1);
    c->velocity = call_array(n + 1);
    c->index = (uint32_t *)(void *)call_array(c->most + SPR_SELECT_SLACK + CALL_GUARD / 4);
    c->value = call_array(c->most + SPR_SELECT_SLACK + CALL_GUARD / 4);
    c->masked = call_array(c->most + SPR_SELECT_SLACK);
    c->s.options = c->options;
    c->s.n = n;
    c->s.slices = slices;
    c->s.seed = 7;
    c->s.state = &c->state;
    c->s.index = c->index;
    c->s.value = c->value;
    c->s.workspace = c->workspace;
    if (rule) {
        spr_feedback_init(&c->feedback, rule, 4);
        c->feedback.residual = c->residual;
        if (spr_feedback_has_velocity(c->feedback.rule)) {
            c->feedback.velocity = c->velocity;
            c->s.velocity = c->masked;
        }
        c->s.feedback = &c->feedback;
    }
}

/* gradient: with feedback what is added (or NULL), otherwise where to select. */
static inline void call_prepare(struct call *c, const float *gradient, uint64_t step)
{
    c->feedback.gradient = gradient;
    c->s.x = gradient;
    c->s.step = step;
    memset(c->workspace, 0xff, c->workspace_bytes + CALL_GUARD);
    memset(c->index + c->most + SPR_SELECT_SLACK, 0xff, CALL_GUARD);
    memset(c->value + c->most + SPR_SELECT_SLACK, 0xff, CALL_GUARD);
}

static inline void call_check_guards(const struct call *c)
{
    const unsigned char *guards[] = {
        c->workspace + c->workspace_bytes,
        (const unsigned char *)(c->index + c->most + SPR_SELECT_SLACK),
        (const unsigned char *)(c->value + c->most + SPR_SELECT_SLACK),
    };

    for (size_t g = 0; g < 3; g++)
        for (size_t i = 0; i < CALL_GUARD; i++)
            assert_int_equal(guards[g][i], 0xff);
}

/* One step; the slices in falling order. */
static inline void call_run(struct call *c, const float *gradient, uint64_t step)
{
    call_prepare(c, gradient, step);
    c->scans = 0;
    spr_select_begin(&c->s);
    do {
        for (unsigned i = c->s.slices; i-- > 0;)
            spr_select_scan(&c->s, i);
        c->scans++;
    } while (!spr_select_decide(&c->s));
    for (unsigned i = c->s.slices; i-- > 0;)
        spr_select_emit(&c->s, i);
    call_check_guards(c);
}

static inline void call_free(struct call *c)
{
    free(c->workspace);
    call_array_free(c->residual);
    call_array_free(c->velocity);
    call_array_free(c->index);
    call_array_free(c->value);
    call_array_free(c->masked);
}

#endif
