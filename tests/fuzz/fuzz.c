/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"

#define MOST_VARIABLES 64

void (*fuzz_emit)(const char *name, const void *data, size_t bytes);
const char *fuzz_current;

static void discard(void *ctx, enum spr_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    (void)line;
}

/* What is logged is formatted, since it contains what came from outside, and thrown away. */
__attribute__((constructor)) static void quiet(void)
{
    spr_log_set_sink(discard, NULL);
    spr_log_configure("debug");
}

void fuzz_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    if (fuzz_current)
        fprintf(stderr, "input: %s\n", fuzz_current);
    abort();
}

/* ---- Reading ---- */

void fuzz_take(struct fuzz_in *in, void *to, size_t bytes)
{
    size_t n = bytes < in->left ? bytes : in->left;

    memset(to, 0, bytes);
    if (n)
        memcpy(to, in->at, n);
    in->at += n;
    in->left -= n;
}

uint64_t fuzz_number(struct fuzz_in *in, size_t bytes)
{
    uint64_t v = 0;

    for (size_t i = 0; i < bytes && in->left > 0; i++, in->left--)
        v |= (uint64_t)*in->at++ << 8 * i;
    return v;
}

/* What is left, and `more` zeros. */
static void *rest(struct fuzz_in *in, size_t more)
{
    size_t bytes = in->left + more;
    void *copy = malloc(bytes ? bytes : 1);

    if (!copy)
        abort();
    fuzz_take(in, copy, bytes);
    return copy;
}

void *fuzz_rest(struct fuzz_in *in) { return rest(in, 0); }

char *fuzz_rest_text(struct fuzz_in *in) { return rest(in, 1); }

static char **saved_environ, *variables[MOST_VARIABLES + 1];

void fuzz_environ_begin(char *text)
{
    size_t n = 0;
    char *line;

    while (n < MOST_VARIABLES && (line = strsep(&text, "\n")) != NULL)
        if (strchr(line, '='))
            variables[n++] = line;
    variables[n] = NULL;
    saved_environ = environ;
    environ = variables;
}

void fuzz_environ_end(void) { environ = saved_environ; }

/* ---- Writing ---- */

void fuzz_put(struct fuzz_seed *s, const void *data, size_t bytes)
{
    if (bytes > sizeof s->data - s->bytes)
        abort();
    if (bytes)
        memcpy(s->data + s->bytes, data, bytes);
    s->bytes += bytes;
}

void fuzz_put_u8(struct fuzz_seed *s, unsigned value)
{
    uint8_t v = (uint8_t)value;
    fuzz_put(s, &v, sizeof v);
}

void fuzz_put_u16(struct fuzz_seed *s, unsigned value)
{
    uint16_t v = (uint16_t)value;
    fuzz_put(s, &v, sizeof v);
}

void fuzz_emit_seed(const char *name, struct fuzz_seed *s)
{
    fuzz_emit(name, s->data, s->bytes);
    s->bytes = 0;
}

void fuzz_emit_texts(const struct fuzz_text *list, size_t count)
{
    static struct fuzz_seed s;

    for (; count > 0; count--, list++) {
        fuzz_put_u8(&s, list->mode);
        fuzz_put(&s, list->text, strlen(list->text));
        fuzz_emit_seed(list->name, &s);
    }
}

void fuzz_emit_scripts(const struct fuzz_script *list, size_t count)
{
    for (; count > 0; count--, list++)
        fuzz_emit(list->name, list->bytes, list->count);
}
