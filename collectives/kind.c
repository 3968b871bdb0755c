/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/kind.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collective.h"

#define MOST_BITS 64
#define VALUES_BYTES 12

static const char *const value_names[] = {
    [SPR_V_FP32] = "fp32", [SPR_V_FP16] = "fp16", [SPR_V_BF16] = "bf16", [SPR_V_CODED] = "coded"};

/* int8 and int4 take as long as their bytes take. */
static int coded_bits(enum spr_vtype type, const struct spr_coding *coding)
{
    if (type != SPR_V_CODED || !coding->coder)
        return 0;
    return (int)(8 * spr_coding_value_bytes(coding) + 0.5);
}

struct spr_kind spr_kind_of(const struct spr_comm *comm, const struct spr_plan *plan)
{
    return (struct spr_kind){.collective = (int)plan->collective,
                             .ranks = comm->size,
                             .hosts = comm->topology.hosts,
                             .element_bytes = spr_dtype_size(plan->dtype),
                             .count = plan->count,
                             .most_entries = plan->most_entries,
                             .vtype = (int)plan->vtype,
                             .sum_vtype = (int)plan->sum_vtype,
                             .bits = coded_bits(plan->vtype, &plan->coding),
                             .sum_bits = coded_bits(plan->sum_vtype, &plan->sum_coding),
                             .bound_union = plan->bound_union,
                             .bound_hosts = plan->bound_hosts};
}

/* They differ by this part at most. */
static bool are_near(size_t a, size_t b, double part)
{
    size_t low = spr_min_size(a, b), high = spr_max_size(a, b);

    return (double)(high - low) <= part * (double)high;
}

bool spr_kind_near(const struct spr_kind *a, const struct spr_kind *b, double part)
{
    return a->collective == b->collective && a->ranks == b->ranks && a->hosts == b->hosts &&
           a->element_bytes == b->element_bytes && a->vtype == b->vtype &&
           a->sum_vtype == b->sum_vtype && a->bits == b->bits && a->sum_bits == b->sum_bits &&
           a->bound_union == b->bound_union && a->bound_hosts == b->bound_hosts &&
           are_near(a->count, b->count, part) && are_near(a->most_entries, b->most_entries, part);
}

/* As text ---------------------------------------------------------------------------------------
 */

bool spr_text_take(const char **at, const char *text)
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

static bool take_values(const char **at, int *type, int *bits)
{
    for (size_t i = 0; i < SPR_ARRAY_LEN(value_names); i++)
        if (spr_text_take(at, value_names[i])) {
            uint64_t n = 0;
            *type = (int)i;
            if (i == SPR_V_CODED && isdigit((unsigned char)**at) && !take_number(at, MOST_BITS, &n))
                return false;
            *bits = (int)n;
            return true;
        }
    return false;
}

static void print_values(int type, int bits, char text[VALUES_BYTES])
{
    snprintf(text, VALUES_BYTES, bits ? "%s%d" : "%s", value_names[type], bits);
}

/* No name is the beginning of another one. */
static bool take_collective(const char **at, int *collective)
{
    for (int i = 0; i < SPR_C_COUNT; i++)
        if (spr_text_take(at, spr_collective_names[i])) {
            *collective = i;
            return true;
        }
    return false;
}

static bool take_bound(const char **at, struct spr_kind *k)
{
    k->bound_union = spr_text_take(at, ":bounded");
    k->bound_hosts = !k->bound_union && spr_text_take(at, ":hosts");
    return k->bound_union || k->bound_hosts;
}

bool spr_kind_take(const char **at, struct spr_kind *k)
{
    uint64_t ranks, hosts, count, bytes, entries = 0;

    *k = (struct spr_kind){0};
    if (!take_collective(at, &k->collective) || !spr_text_take(at, ":"))
        return false;
    if (!take_number(at, INT32_MAX, &ranks) || !spr_text_take(at, "/") ||
        !take_number(at, INT32_MAX, &hosts) || !spr_text_take(at, ":") ||
        !take_number(at, SIZE_MAX, &count) || !spr_text_take(at, "x") ||
        !take_number(at, 8, &bytes))
        return false;
    if (**at == ':' && isdigit((unsigned char)(*at)[1])) {
        ++*at;
        if (!take_number(at, SIZE_MAX, &entries))
            return false;
    }
    if (!take_bound(at, k) && spr_text_take(at, ":")) {
        if (!take_values(at, &k->vtype, &k->bits) || !spr_text_take(at, "/") ||
            !take_values(at, &k->sum_vtype, &k->sum_bits))
            return false;
        (void)take_bound(at, k);
    }
    k->ranks = (int)ranks;
    k->hosts = (int)hosts;
    k->count = count;
    k->element_bytes = bytes;
    k->most_entries = entries;
    return true;
}

const char *spr_kind_print(const struct spr_kind *k, char *text, size_t bytes)
{
    char entries[24] = "", values[2 * VALUES_BYTES + 1] = "", one[VALUES_BYTES], sum[VALUES_BYTES];

    if (k->most_entries)
        snprintf(entries, sizeof entries, ":%zu", k->most_entries);
    print_values(k->vtype, k->bits, one);
    print_values(k->sum_vtype, k->sum_bits, sum);
    if (k->vtype != SPR_V_FP32 || k->sum_vtype != SPR_V_FP32)
        snprintf(values, sizeof values, ":%s/%s", one, sum);
    snprintf(text, bytes, "%s:%d/%d:%zux%zu%s%s%s", spr_collective_names[k->collective], k->ranks,
             k->hosts, k->count, k->element_bytes, entries, values,
             k->bound_union   ? ":bounded"
             : k->bound_hosts ? ":hosts"
                              : "");
    return text;
}
