/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/json.h"

#include <math.h>

#ifdef HAVE_JANSSON

#include <errno.h>
#include <unistd.h>

json_t *json_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

json_t *json_whole(double value)
{
    return isfinite(value) ? json_integer((json_int_t)llround(value)) : json_null();
}

json_t *json_text(const char *value)
{
    json_t *text = value != NULL ? json_string(value) : json_null();

    return text != NULL ? text : json_string("?");
}

/* libjansson takes a value over also when it fails. */
static bool put_all(json_t *object, const struct json_member *members, size_t count)
{
    bool done = object != NULL;

    for (size_t i = 0; i < count; i++)
        done = json_object_set_new(object, members[i].name, members[i].value) == 0 && done;
    return done;
}

json_t *json_object_of(const struct json_member *members, size_t count)
{
    json_t *object = json_object();

    if (put_all(object, members, count))
        return object;
    json_decref(object);
    return NULL;
}

bool json_print(FILE *out, json_t *root)
{
    bool done = root != NULL &&
                json_dumpf(root, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0 &&
                fputc('\n', out) != EOF;

    json_decref(root);
    return done;
}

bool json_print_run(FILE *out, char *const *words, int word_count,
                    const struct json_member *members, size_t count)
{
    json_t *command = json_array();
    bool done = command != NULL;

    for (int i = 0; i < word_count; i++)
        done = json_array_append_new(command, json_text(words[i])) == 0 && done;
    json_t *root = OBJECT({"schema", json_integer(1)}, {"command", command},
                          {"version", json_text(PACKAGE_VERSION)});
    /* A pipe or a device has nothing to cut off. */
    if (out != stdout && ftruncate(fileno(out), 0) != 0 && errno != EINVAL)
        done = false;
    if (put_all(root, members, count) && done)
        return json_print(out, root);
    json_decref(root);
    return false;
}

#endif
