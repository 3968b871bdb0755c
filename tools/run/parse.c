/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/run/parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool parse_count(const char *text, int low, int high, int *value)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || number < low || number > high)
        return false;
    *value = (int)number;
    return true;
}

const char *parse_seconds(const char *text, double *seconds)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(number) || number <= 0 || number > 1e9)
        return "seconds, more than 0";
    *seconds = number;
    return NULL;
}

static bool parse_rate(const char *text, size_t length, uint64_t *bits_s)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
    char *end;
    double number = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++) {
        size_t unit = strlen(units[i].name);
        if (end + unit != text + length || strncmp(end, units[i].name, unit) != 0)
            continue;
        double rate = number * units[i].factor;
        if (!(rate >= 8e3 && rate <= 1e12))
            break;
        *bits_s = (uint64_t)rate;
        return true;
    }
    return false;
}

/* Of one host: "1gbit", or several links as "1gbit+100mbit", up to a comma. Returns how many; 0: it
 * is something else. */
static int parse_links(const char *text, uint64_t rate_bits_s[EMULATED_LINKS])
{
    for (int count = 0; count < EMULATED_LINKS; text++) {
        size_t length = strcspn(text, "+,");
        if (!parse_rate(text, length, &rate_bits_s[count++]))
            return 0;
        text += length;
        if (*text != '+')
            return count;
    }
    return 0;
}

const char *parse_rates(const char *text, struct emulated_links *links)
{
    static const char wanted[] =
        "a rate from 8kbit to 1000gbit, such as 100mbit, or up to four: 1gbit+100mbit; or those of "
        "successive hosts, of as many links each, 32 hosts at most: 100mbit,1gbit";
    struct emulated_links found = {0};
    for (const char *p = text;; p++) {
        int count =
            found.hosts < EMULATED_RATES ? parse_links(p, found.rate_bits_s[found.hosts]) : 0;
        if (count == 0 || (found.hosts > 0 && count != found.count))
            return wanted;
        found.count = count;
        found.hosts++;
        p += strcspn(p, ",");
        if (*p == '\0')
            break;
    }
    *links = found;
    return NULL;
}

#define MOST_SLOTS 4096 /* of a host */

static const char no_entry[] = "a list such as h1,h2:4 (a name, then the ranks it takes)";

/* One entry of --hosts, `length` characters long. */
static const char *parse_machine(const char *text, size_t length, struct machine *machine)
{
    char *entry = strndup(text, length);
    if (entry == NULL)
        return "less (memory is short)";
    char *name = entry;
    char *colon = strrchr(entry, ':');
    if (*entry == '[') { /* an IPv6 address: the brackets go, they only guard its colons */
        char *bracket = strchr(entry, ']');
        if (bracket == NULL || (bracket[1] != '\0' && bracket[1] != ':'))
            goto wrong;
        colon = bracket[1] == ':' ? bracket + 1 : NULL;
        *bracket = '\0';
        name = entry + 1;
    }
    if (colon != NULL) {
        *colon = '\0';
        if (!parse_count(colon + 1, 1, MOST_SLOTS, &machine->slots))
            goto wrong;
    }
    /* An IPv6 address without brackets: its last group would be taken for the ranks. */
    if (*entry != '[' && strchr(name, ':') != NULL)
        goto wrong;
    /* A name that starts with a dash would be an option of the remote shell. */
    if (*name == '\0' || *name == '-' || strpbrk(name, " \t\n'\"\\;&|<>$`[]") != NULL)
        goto wrong;
    machine->name = strdup(name);
    free(entry);
    return machine->name == NULL ? "less (memory is short)" : NULL;
wrong:
    free(entry);
    return no_entry;
}

static const char *host_of(const struct machine *machine)
{
    const char *at = strrchr(machine->name, '@');
    return at != NULL ? at + 1 : machine->name;
}

/* Into the last one, if that is the same host: then *one is empty. Of one host there is one rank of
 * each number among its ranks. */
static const char *merge_machine(struct machine *one, struct machine *list, size_t count)
{
    struct machine *last = &list[count - 1];
    for (size_t i = 0; i < count; i++) {
        if (strcmp(host_of(one), host_of(&list[i])) != 0)
            continue;
        if (&list[i] != last || strcmp(one->name, last->name) != 0)
            return "each host once, or what is said of it side by side";
        last->slots = (last->slots > 0 ? last->slots : 1) + (one->slots > 0 ? one->slots : 1);
        if (last->slots > MOST_SLOTS)
            return "at most 4096 ranks of a host";
        free(one->name);
        one->name = NULL;
        break; /* it was the last one */
    }
    return NULL;
}

/* Adds the entry, `length` characters long, to the list; NULL, or what was wrong. */
static const char *add_machine(const char *entry, size_t length, struct machine **list,
                               size_t *count)
{
    struct machine one = {0};
    const char *wanted = parse_machine(entry, length, &one);
    if (wanted == NULL && *count > 0)
        wanted = merge_machine(&one, *list, *count);
    if (wanted != NULL || one.name == NULL) {
        free(one.name);
        return wanted;
    }
    struct machine *more = realloc(*list, (*count + 1) * sizeof *more);
    if (more == NULL) {
        free(one.name);
        return "less (memory is short)";
    }
    more[*count] = one;
    *list = more;
    ++*count;
    return NULL;
}

static void replace(struct machine **machines, size_t *count, struct machine *list, size_t entries)
{
    machines_free(*machines, *count);
    *machines = list;
    *count = entries;
}

const char *parse_machines(const char *text, struct machine **machines, size_t *count)
{
    struct machine *list = NULL;
    size_t entries = 0;
    for (;;) {
        size_t length = strcspn(text, ",");
        const char *wanted = add_machine(text, length, &list, &entries);
        if (wanted != NULL) {
            machines_free(list, entries);
            return wanted;
        }
        text += length;
        if (*text++ == '\0')
            break;
    }
    replace(machines, count, list, entries);
    return NULL;
}

/* Turns a line of a file of hosts, "NAME[:N]" or "NAME [slots=N]", into an entry of --hosts, in
 * place. False: it is neither. */
static bool rewrite_line(char *line)
{
    char *save = NULL;
    const char *name = strtok_r(line, " \t\r\n", &save);
    const char *slots = strtok_r(NULL, " \t\r\n", &save);
    if (strchr(name, ',') != NULL || strtok_r(NULL, " \t\r\n", &save) != NULL ||
        (slots != NULL && strncmp(slots, "slots=", 6) != 0))
        return false;
    size_t length = strlen(name);
    memmove(line, name, length + 1);
    if (slots != NULL) { /* there was room for a blank and "slots=" */
        line[length] = ':';
        memmove(line + length + 1, slots + 6, strlen(slots + 6) + 1);
    }
    return true;
}

const char *parse_host_file(const char *path, struct machine **machines, size_t *count)
{
    static char wrong[512];
    struct machine *list = NULL;
    size_t found = 0, room = 0;
    char *line = NULL;
    int number = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        snprintf(wrong, sizeof wrong, "a file of hosts (%s)", strerrordesc_np(errno));
        return wrong;
    }
    *wrong = '\0';
    ssize_t length;
    while (*wrong == '\0' && (length = getline(&line, &room, file)) >= 0) {
        bool is_text = strlen(line) == (size_t)length;
        number++;
        line[strcspn(line, "#")] = '\0';
        if (is_text && line[strspn(line, " \t\r\n")] == '\0')
            continue;
        bool is_line = is_text && rewrite_line(line);
        const char *wanted = is_line ? add_machine(line, strlen(line), &list, &found) : no_entry;
        if (wanted == no_entry)
            snprintf(
                wrong, sizeof wrong,
                "a file of hosts, a line each, such as h1, h1:4 or h1 slots=4: line %d is none",
                number);
        else if (wanted != NULL)
            snprintf(wrong, sizeof wrong, "%s: line %d", wanted, number);
    }
    if (*wrong == '\0' && (!feof(file) || found == 0))
        snprintf(wrong, sizeof wrong, "a file of hosts (%s)",
                 feof(file) ? "there is none in it" : strerrordesc_np(errno));
    fclose(file);
    free(line);
    if (*wrong != '\0') {
        machines_free(list, found);
        return wrong;
    }
    replace(machines, count, list, found);
    return NULL;
}

void machines_free(struct machine *machines, size_t count)
{
    for (size_t i = 0; machines != NULL && i < count; i++)
        free(machines[i].name);
    free(machines);
}

int machines_fill(struct machine *machines, size_t count, int ranks)
{
    bool said = false;
    for (size_t i = 0; i < count; i++)
        said = said || machines[i].slots > 0;
    int machine_count = (int)count;
    int given = 0;
    for (int i = 0; i < machine_count; i++) {
        int room = machines[i].slots > 0 ? machines[i].slots : 1;
        if (ranks > 0 &&
            !said) /* no sizes at all: an even share each, the first ones get the rest */
            room = ranks / machine_count + (i < ranks % machine_count);
        if (ranks > 0 && room > ranks - given)
            room = ranks - given;
        machines[i].ranks = room;
        given += room;
    }
    return given < ranks ? 0 : given;
}

const char *parse_root(const char *text, char **host, int *port)
{
    const char *colon = strrchr(text, ':');
    const char *bracket = strrchr(text, ']');
    if (bracket != NULL && colon != NULL && colon < bracket)
        colon = NULL;
    int number = 0;
    if (colon != NULL && !parse_count(colon + 1, 1, 65535, &number))
        return "ADDRESS or ADDRESS:PORT (an IPv6 address in brackets)";
    size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);
    if (length == 0 || (text[0] != '[' && memchr(text, ':', length) != NULL))
        return "ADDRESS or ADDRESS:PORT (an IPv6 address in brackets)";
    char *copy = strndup(text, length);
    if (copy == NULL)
        return "less (memory is short)";
    *host = copy;
    *port = number;
    return NULL;
}

bool is_variable_name(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (!(c == '_' || isalpha(c) || (i > 0 && isdigit(c))))
            return false;
    }
    return length > 0;
}
