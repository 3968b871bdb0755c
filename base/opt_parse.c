/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Numbers with units. strtod and printf follow the locale of the program that loaded us, where
 * "0.01" may end at the point; so the thread takes the C locale for the conversion.
 */
#include "base/opt.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"

struct unit {
    const char *name;
    double factor;
};

static pthread_once_t locale_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* Switch this thread to the C locale; returns what to give to uselocale() afterwards. */
static locale_t enter_c_locale(void)
{
    pthread_once(&locale_once, make_locale);
    /* (locale_t)0, when the locale could not be had, only asks and changes nothing. */
    return uselocale(c_locale);
}

/* A finite decimal number at the start of text; *rest is what follows. No blanks before it. */
static bool number(const char *text, double *value, const char **rest)
{
    const char *digits = text + (*text == '-' || *text == '+');
    locale_t old;
    char *end;

    if (!isdigit((unsigned char)digits[0]) &&
        !(digits[0] == '.' && isdigit((unsigned char)digits[1])))
        return false;
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X'))
        return false;
    old = enter_c_locale();
    *value = strtod(text, &end);
    uselocale(old);
    *rest = end;
    return isfinite(*value);
}

bool spr_parse_double(const char *text, double *value)
{
    const char *rest;
    double v;

    if (!number(text, &v, &rest) || *rest)
        return false;
    *value = v;
    return true;
}

/* A number that is not negative, with a unit of the table; no unit = factor 1. */
static bool number_with_unit(const char *text, const struct unit *units, size_t n, double *value)
{
    const char *rest;
    double v;

    if (!number(text, &v, &rest) || v < 0 || *text == '-')
        return false;
    if (*rest == '\0') {
        *value = v;
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(rest, units[i].name) == 0) {
            /* Dividing by 1000 rounds once where multiplying by 0.001 would round twice. */
            v = units[i].factor < 1 ? v / round(1 / units[i].factor) : v * units[i].factor;
            if (!isfinite(v))
                return false;
            *value = v;
            return true;
        }
    }
    return false;
}

bool spr_parse_rate(const char *text, double *bits_per_s)
{
    static const struct unit units[] = {
        {"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"tbit", 1e12},
    };

    return number_with_unit(text, units, SPR_ARRAY_LEN(units), bits_per_s);
}

bool spr_parse_ratio(const char *text, double *ratio)
{
    static const struct unit units[] = {{"%", 1e-2}};

    return number_with_unit(text, units, SPR_ARRAY_LEN(units), ratio);
}

bool spr_parse_time(const char *text, double *seconds)
{
    static const struct unit units[] = {
        {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600},
    };

    return number_with_unit(text, units, SPR_ARRAY_LEN(units), seconds);
}

/* K, M, G or T, alone or followed by B or iB. Returns the shift, or -1. */
static int size_shift(const char *suffix)
{
    static const char letters[] = "KMGT";
    const char *letter;

    if (*suffix == '\0' || strcasecmp(suffix, "b") == 0)
        return 0;
    letter = strchr(letters, toupper((unsigned char)*suffix));
    if (!letter)
        return -1;
    if (suffix[1] && strcasecmp(suffix + 1, "b") != 0 && strcasecmp(suffix + 1, "ib") != 0)
        return -1;
    return 10 * (int)(letter - letters + 1);
}

bool spr_parse_size(const char *text, size_t *bytes)
{
    unsigned long long v;
    char *end;
    int shift;

    if (strcmp(text, "inf") == 0) {
        *bytes = SIZE_MAX;
        return true;
    }
    if (!isdigit((unsigned char)*text))
        return false; /* strtoull would take a sign and blanks */
    errno = 0;
    v = strtoull(text, &end, 10);
    shift = size_shift(end);
    if (errno || shift < 0 || v > (SIZE_MAX >> shift))
        return false;
    *bytes = (size_t)v << shift;
    return true;
}

const char *spr_print_double(double value, char *buf, size_t bytes)
{
    locale_t old = enter_c_locale();

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, bytes, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    uselocale(old);
    /* "1e20": a plus has a meaning of its own in codec strings. */
    char *plus = strchr(buf, '+');
    if (plus)
        memmove(plus, plus + 1, strlen(plus));
    return buf;
}
