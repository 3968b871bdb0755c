/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A fuzz target as a test, without libFuzzer:
 *
 *   test_TARGET               the seeds, then the files of tests/fuzz/corpus/TARGET
 *   test_TARGET FILE...       these files, e.g. one that `make fuzz` left behind
 *   test_TARGET --write DIR   the seeds as files of DIR (make fuzz-corpus)
 */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/fuzz/fuzz.h"

#define MOST_BYTES ((size_t)1 << 20)

static const char *target, *write_to;
static int count;

static void run(const char *name, const void *data, size_t bytes)
{
    /* Of just that size, as libFuzzer does it. */
    uint8_t *copy = malloc(bytes ? bytes : 1);

    assert_non_null(copy);
    if (bytes)
        memcpy(copy, data, bytes);
    fuzz_current = name;
    LLVMFuzzerTestOneInput(copy, bytes);
    fuzz_current = NULL;
    free(copy);
    count++;
}

static void run_file(const char *path)
{
    uint8_t *data = malloc(MOST_BYTES);
    FILE *file = fopen(path, "rb");

    if (!file || !data)
        fail_msg("%s: %s", path, strerror(errno));
    size_t bytes = fread(data, 1, MOST_BYTES, file);
    fclose(file);
    run(path, data, bytes);
    free(data);
}

static void write_file(const char *name, const void *data, size_t bytes)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", write_to, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file)) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
}

static void the_seeds_of_the_encoders_hold(void **state)
{
    (void)state;
    count = 0;
    fuzz_emit = run;
    fuzz_seeds();
    assert_true(count > 0);
}

static void the_inputs_of_the_corpus_hold(void **state)
{
    const char *top = getenv("top_srcdir");
    char path[4096];
    struct dirent **list;
    int n;

    (void)state;
    count = 0;
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s", top ? top : ".", target);
    n = scandir(path, &list, NULL, alphasort);
    if (n < 0)
        fail_msg("%s: %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s/%s", top ? top : ".", target,
                 list[i]->d_name);
        if (list[i]->d_name[0] != '.')
            run_file(path);
        free(list[i]);
    }
    free(list);
    print_message("%d inputs\n", count);
    assert_true(count > 0);
}

/* libFuzzer, where it is linked, has a main of its own. */
__attribute__((weak)) int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_seeds_of_the_encoders_hold),
        cmocka_unit_test(the_inputs_of_the_corpus_hold),
    };
    const char *name = strrchr(argv[0], '/');
    const char *prefix = strstr(name ? name : argv[0], "test_");
    int failed;

    target = prefix ? prefix + strlen("test_") : argv[0];
    if (argc == 3 && !strcmp(argv[1], "--write")) {
        write_to = argv[2];
        fuzz_emit = write_file;
        fuzz_seeds();
        return 0;
    }
    for (int i = 1; i < argc; i++)
        run_file(argv[i]);
    if (argc > 1)
        return 0;
    failed = cmocka_run_group_tests_name(target, tests, NULL, NULL);
    if (failed && fuzz_current)
        fprintf(stderr, "input: %s\n", fuzz_current);
    return failed;
}
