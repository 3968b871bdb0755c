/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Files that users write, line by line: decisions that are followed (collectives/decisions.c),
 * racks (collectives/racks.c), hosts of a job (tools/run/parse.c). Input: which of them, the file.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/util.h"
#include "collectives/decisions.h"
#include "collectives/racks.h"
#include "tests/fuzz/files.h"
#include "tests/fuzz/fuzz.h"
#include "tools/run/parse.h"

#define HOST "node07"

/* A failure names the file. */
static void check_error(spr_status status, const struct spr_error *error, const char *path)
{
    FUZZ_CHECK(status == SPR_OK || (status == SPR_ERR_INVALID && error->status == status));
    FUZZ_CHECK(status == SPR_OK || strstr(error->text, path));
}

static void read_decisions(char *path)
{
    const struct spr_options options = {.decisions = path};
    struct spr_error error = {.rank = -1};
    struct spr_decisions *d = NULL, *same = NULL;
    uint64_t hash = 0, again = 1;
    spr_status status = spr_decisions_load(&options, &d, &hash, &error);

    check_error(status, &error, path);
    /* Others see by it whether they have read the same. */
    FUZZ_CHECK(spr_decisions_load(&options, &same, &again, &error) == status);
    FUZZ_CHECK(d && hash == again);
    spr_decisions_free(d);
    spr_decisions_free(same);
}

static void read_racks(char *path)
{
    struct spr_error error = {.rank = -1};
    uint64_t rack = 0, again = 0;
    spr_status status = spr_rack_find(path, HOST, &rack, &error);

    check_error(status, &error, path);
    FUZZ_CHECK(spr_rack_find(path, HOST, &again, &error) == status);
    FUZZ_CHECK(status != SPR_OK || again == rack);
}

/* The list as another file. */
static void write_hosts(const struct machine *m, size_t count, const char *name)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    FUZZ_CHECK(file);
    for (size_t i = 0; i < count; i++) {
        bool colon = strchr(m[i].name, ':') != NULL;
        fprintf(file, "%s%s%s", colon ? "[" : "", m[i].name, colon ? "]" : "");
        if (m[i].slots > 0)
            fprintf(file, "\tslots=%d", m[i].slots);
        fputs(" # so many\n", file);
    }
    fclose(file);
    fuzz_file(name, text, bytes);
    free(text);
}

static void read_hosts(char *path)
{
    struct machine *list = NULL, *again = NULL;
    size_t count = 0, count_again = 0;
    const char *wanted = parse_host_file(path, &list, &count);
    char other[64];

    if (wanted) {
        FUZZ_CHECK(*wanted && !list && count == 0);
        return;
    }
    FUZZ_CHECK(list && count > 0);
    write_hosts(list, count, "again");
    (void)snprintf(other, sizeof other, "%s/again", fuzz_folder());
    FUZZ_CHECK(!parse_host_file(other, &again, &count_again) && count_again == count);
    for (size_t i = 0; i < count; i++) {
        FUZZ_CHECK(*list[i].name && *list[i].name != '-' && list[i].slots <= 4096);
        FUZZ_CHECK(strcmp(list[i].name, again[i].name) == 0 && list[i].slots == again[i].slots);
    }
    machines_free(list, count);
    machines_free(again, count_again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(char *path) = {read_decisions, read_racks, read_hosts};
    struct fuzz_in in = {data, size};
    uint8_t which = fuzz_u8(&in);
    char path[64];

    fuzz_file("lines", in.at, in.left);
    (void)snprintf(path, sizeof path, "%s/lines", fuzz_folder());
    readers[which % SPR_ARRAY_LEN(readers)](path);
    FUZZ_CHECK(spr_mem_live_bytes() == 0);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct fuzz_text seeds[] = {
        {"decisions", 0,
         "0 0 allreduce:8/4:1024x4=flat # rules\n"
         "0 7 allreduce:8/4:1024x4=hierarchical  # model\r\n\n"
         "1 18446744073709551615 sparse_allreduce:8/8:4000x4:40:fp16/fp32:bounded=union"},
        {"decisions_unknown", 0, "0 0 allreduce:8/4:1024x4=fastest\n"},
        {"decisions_number", 0, "0 99999999999999999999 allreduce:8/4:1024x4=flat\n"},
        {"racks", 1, "# what shares a switch\na1: node01 node02 node0[3-8]\na2:\tnode1* # more\n"},
        {"racks_twice", 1, "a: node0*\nb: node07\n"},
        {"racks_none", 1, "a\n"},
        {"racks_nameless", 1, ": node07\n"},
        {"hosts", 2, "h1\nh2:4\n\n# two\n[fd00::1] slots=2\nh4 slots=1\n"},
        {"hosts_option", 2, "-oProxyCommand=x\n"},
        {"hosts_slots", 2, "h1 slots=\nh2 slots=5000\n"},
        {"hosts_list", 2, "h1,h2\n"},
    };

    fuzz_emit_texts(seeds, SPR_ARRAY_LEN(seeds));
}
