/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A table that is committed, so that a change of it is seen in review.
 */
#ifndef SPR_TESTS_UNIT_GOLDEN_H
#define SPR_TESTS_UNIT_GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOLDEN_LINE_BYTES 160

typedef void golden_table(FILE *out);

/* What is printed is tests/golden/NAME. */
static void golden_compare(const char *name, golden_table *print)
{
    const char *source = getenv("top_srcdir");
    char path[4096], want[GOLDEN_LINE_BYTES], got[GOLDEN_LINE_BYTES];
    FILE *table = tmpfile(), *golden;
    int line = 0;

    snprintf(path, sizeof(path), "%s/tests/golden/%s", source ? source : ".", name);
    golden = fopen(path, "r");
    if (!golden)
        fail_msg("%s cannot be read", path);
    assert_non_null(table);
    print(table);
    rewind(table);
    for (;;) {
        const char *w = fgets(want, sizeof(want), golden), *g = fgets(got, sizeof(got), table);

        line++;
        if (!w && !g)
            break;
        if (!w || !g || strcmp(w, g) != 0)
            fail_msg("%s:%d: is \"%s\", should be \"%s\"", path, line, g ? got : "", w ? want : "");
    }
    fclose(golden);
    fclose(table);
}

/* `TEST --write FILE` writes the table, `TEST` runs the tests. */
static int golden_main(int argc, char **argv, golden_table *print, int (*run)(void))
{
    FILE *out;

    if (argc != 3 || strcmp(argv[1], "--write") != 0)
        return run();
    out = fopen(argv[2], "w");
    if (!out) {
        perror(argv[2]);
        return 1;
    }
    print(out);
    return fclose(out) != 0;
}

#endif
