/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Topology files: which rack a host is in, and what a file says that is wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "collectives/racks.h"

static char path[] = "/tmp/test_racks.XXXXXX";
static struct spr_error error;

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fputs(text, file) < 0, 0);
    assert_int_equal(fclose(file), 0);
}

static uint64_t rack_of(const char *host)
{
    uint64_t rack;

    if (spr_rack_find(path, host, &rack, &error) != SPR_OK)
        fail_msg("%s", error.text);
    return rack;
}

static void hosts_of_a_line_share_a_rack(void **state)
{
    (void)state;
    write_file("# a comment\n\n a1: node01 node02 node0[3-8] # and one\n a2 :node1*\na1: late\n");
    assert_true(rack_of("node01") > 0);
    assert_int_equal(rack_of("node01"), rack_of("node07"));
    assert_int_equal(rack_of("node02"), rack_of("late"));
    assert_int_equal(rack_of("node10"), rack_of("node1"));
    assert_true(rack_of("node01") != rack_of("node10"));
    assert_int_equal(rack_of("node09"), 0);
    assert_int_equal(rack_of("comment"), 0);
}

static void what_is_wrong_is_said_with_its_line(void **state)
{
    static const struct {
        const char *text, *wrong;
    } cases[] = {
        {"a: x\nb y\n", ":2: no rack; write NAME: HOST"},
        {"a: x\n: y\n", ":2: no rack; write NAME: HOST"},
        {"rack 1: x\nrack 2: y\n", ":1: no rack; write NAME: HOST"},
        {"a: here\n\nb: h*\n", ":3: host here is in rack b, and in another one before"},
    };
    uint64_t rack;

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        write_file(cases[i].text);
        spr_error_clear(&error);
        assert_int_equal(spr_rack_find(path, "here", &rack, &error), SPR_ERR_INVALID);
        if (!strstr(error.text, cases[i].wrong))
            fail_msg("\"%s\" lacks \"%s\"", error.text, cases[i].wrong);
    }
    spr_error_clear(&error);
    assert_int_equal(spr_rack_find("/no/such", "here", &rack, &error), SPR_ERR_SYSTEM);
    assert_non_null(strstr(error.text, "/no/such: No such file"));
    assert_non_null(strstr(error.text, "SPARRING_TOPOLOGY"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_of_a_line_share_a_rack),
        cmocka_unit_test(what_is_wrong_is_said_with_its_line),
    };
    int file = mkstemp(path), failed;

    if (file < 0)
        return 1;
    close(file);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
