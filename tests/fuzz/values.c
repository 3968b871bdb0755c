/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Numbers, sizes, rates, names, log levels, lists of machines: what users write on command lines
 * and into variables (base/opt_parse.c, base/log.c, tools/run/parse.c). Input: which parser, the
 * text.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <sparring/types.h>

#include "base/log.h"
#include "base/opt.h"
#include "base/util.h"
#include "tests/fuzz/fuzz.h"
#include "tools/run/parse.h"

static void check_double(const char *text, bool (*parse)(const char *, double *), bool negative)
{
    double v = NAN, again = NAN;
    char buf[32];

    if (!parse(text, &v)) {
        FUZZ_CHECK(isnan(v)); /* outputs are written on success only */
        return;
    }
    FUZZ_CHECK(isfinite(v) && (negative || !signbit(v)));
    FUZZ_CHECK(spr_print_double(v, buf, sizeof buf) == buf && strlen(buf) < sizeof buf);
    FUZZ_CHECK(spr_parse_double(buf, &again) && memcmp(&v, &again, sizeof v) == 0);
}

static void size(const char *text)
{
    static const char units[] = "KMGT";
    size_t v = 12345, number = 0;
    unsigned shift = 0;

    if (!spr_parse_size(text, &v)) {
        FUZZ_CHECK(v == 12345);
        return;
    }
    if (strcmp(text, "inf") == 0)
        return;
    for (; *text >= '0' && *text <= '9'; text++) {
        FUZZ_CHECK(!__builtin_mul_overflow(number, 10, &number));
        FUZZ_CHECK(!__builtin_add_overflow(number, (size_t)(*text - '0'), &number));
    }
    if (*text && *text != 'b' && *text != 'B')
        shift = 10 * (unsigned)(strchr(units, *text & 0x5f) - units + 1);
    FUZZ_CHECK(v == number << shift && v >> shift == number);
}

static void run_rate(const char *text)
{
    struct emulated_links links = {0};
    const char *wanted = parse_rates(text, &links);

    FUZZ_CHECK(wanted ? links.count == 0 && links.hosts == 0 && *wanted
                      : links.count >= 1 && links.count <= EMULATED_LINKS && links.hosts >= 1 &&
                            links.hosts <= EMULATED_RATES);
    for (int i = 0; i < links.count * links.hosts; i++) {
        uint64_t bits_s = links.rate_bits_s[i / links.count][i % links.count];
        FUZZ_CHECK(bits_s >= 8000 && bits_s <= 1000000000000u);
    }
}

static void run_seconds(const char *text)
{
    double s = -1;
    const char *wanted = parse_seconds(text, &s);

    FUZZ_CHECK(wanted ? s == -1 && *wanted : s > 0 && s <= 1e9);
}

static void run_count(const char *text)
{
    int n = -1;

    if (parse_count(text, 1, 4096, &n))
        FUZZ_CHECK(n >= 1 && n <= 4096);
    else
        FUZZ_CHECK(n == -1);
}

/* The list printed, as it would be given. */
static void print_machines(const struct machine *m, size_t count, char *out, size_t room)
{
    for (size_t i = 0, used = 0; i < count; i++) {
        bool colon = strchr(m[i].name, ':') != NULL;
        used += (size_t)snprintf(out + used, room - used, "%s%s%s%s", i ? "," : "",
                                 colon ? "[" : "", m[i].name, colon ? "]" : "");
        if (m[i].slots > 0)
            used += (size_t)snprintf(out + used, room - used, ":%d", m[i].slots);
        FUZZ_CHECK(used < room);
    }
}

static void run_machines(const char *text)
{
    struct machine *list = NULL, *again = NULL;
    size_t count = 0, count_again = 0, room = 4 * strlen(text) + 64;

    if (parse_machines(text, &list, &count)) {
        FUZZ_CHECK(!list && count == 0);
        return;
    }
    char *out = malloc(room);
    FUZZ_CHECK(out && list && count > 0);
    print_machines(list, count, out, room);
    const char *wanted = parse_machines(out, &again, &count_again);
    FUZZ_CHECK(!wanted && count_again == count);
    long slots = 0;
    for (size_t i = 0; i < count; i++) {
        FUZZ_CHECK(*list[i].name && *list[i].name != '-');
        FUZZ_CHECK(strcmp(list[i].name, again[i].name) == 0);
        FUZZ_CHECK(list[i].slots == again[i].slots && list[i].slots <= 4096);
        slots += list[i].slots;
    }
    for (int ranks = 0; ranks < 5; ranks++) {
        int given = machines_fill(list, count, ranks), sum = 0;
        for (size_t i = 0; i < count; i++)
            sum += list[i].ranks;
        FUZZ_CHECK(given == 0 || (given == sum && (ranks == 0 || given == ranks)));
        FUZZ_CHECK(given > 0 || slots < ranks);
    }
    machines_free(list, count);
    machines_free(again, count_again);
    free(out);
}

static void run_root(const char *text)
{
    char *host = NULL;
    int port = -1;

    if (parse_root(text, &host, &port)) {
        FUZZ_CHECK(!host && port == -1);
        return;
    }
    FUZZ_CHECK(host && *host && port >= 0 && port <= 65535);
    FUZZ_CHECK(strncmp(host, text, strlen(host)) == 0);
    free(host);
}

static void run_name(const char *text)
{
    size_t length = strcspn(text, "=");

    if (is_variable_name(text, length))
        FUZZ_CHECK(length > 0 && !strpbrk(text, " ;$`'\"") == !strpbrk(text + length, " ;$`'\""));
}

static void log_levels(const char *text)
{
    int before[SPR_SUB_COUNT];
    bool good;

    memcpy(before, spr_log_levels, sizeof before);
    good = spr_log_configure(text);
    for (int i = 0; i < SPR_SUB_COUNT; i++)
        FUZZ_CHECK(good ? spr_log_levels[i] >= -1 && spr_log_levels[i] <= SPR_LOG_TRACE
                        : spr_log_levels[i] == before[i]);
    spr_log_configure("debug");
}

static void names(const char *text)
{
    spr_dtype dtype = -7, again;
    spr_op op = -7, twice;

    if (spr_dtype_parse(text, &dtype) == SPR_OK)
        FUZZ_CHECK(spr_dtype_size(dtype) > 0 &&
                   spr_dtype_parse(spr_dtype_name(dtype), &again) == SPR_OK && again == dtype);
    else
        FUZZ_CHECK(dtype == -7);
    if (spr_op_parse(text, &op) == SPR_OK)
        FUZZ_CHECK(spr_op_parse(spr_op_name(op), &twice) == SPR_OK && twice == op);
    else
        FUZZ_CHECK(op == -7);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_in in = {data, bytes};
    uint8_t which = fuzz_u8(&in);
    char *text = fuzz_rest_text(&in);

    switch (which % 14) {
    case 0:
        check_double(text, spr_parse_double, true);
        break;
    case 1:
        check_double(text, spr_parse_rate, false);
        break;
    case 2:
        check_double(text, spr_parse_ratio, false);
        break;
    case 3:
        check_double(text, spr_parse_time, false);
        break;
    case 4:
        size(text);
        break;
    case 5:
        run_rate(text);
        break;
    case 6:
        run_seconds(text);
        break;
    case 7:
        run_count(text);
        break;
    case 8:
        run_root(text);
        break;
    case 9:
        run_name(text);
        break;
    case 12:
        log_levels(text);
        break;
    case 13:
        names(text);
        break;
    default:
        run_machines(text);
    }
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    static const struct fuzz_text seeds[] = {
        {"double", 0, "-1.5e-3"},
        {"rate", 1, "2.5gbit"},
        {"ratio", 2, "1%"},
        {"time", 3, "10us"},
        {"size", 4, "64KiB"},
        {"size_most", 4, "18446744073709551615"},
        {"run_rate", 5, "250kbit"},
        {"run_seconds", 6, "0.25"},
        {"run_count", 7, "4096"},
        {"root", 8, "[fd00::1]:4711"},
        {"name", 9, "LD_LIBRARY_PATH=/x"},
        {"machines", 10, "h1,h2:4,[fd00::1]:2"},
        {"machine", 11, "localhost"},
        {"log", 12, "warn,net=debug,coll=off"},
        {"dtype", 13, "bf16"},
        {"op", 13, "avg"},
    };

    fuzz_emit_texts(seeds, SPR_ARRAY_LEN(seeds));
}
