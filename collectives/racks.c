/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/racks.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"

#define BLANK " \t\r\n"
#define LINE_BYTES 16384

/* The one word before the colon, the rest behind it; false: there is no such word. */
static bool split(char *line, char **name, char **hosts)
{
    char *end;

    line += strspn(line, BLANK);
    end = line + strcspn(line, BLANK ":");
    *hosts = end + strspn(end, BLANK);
    if (end == line || **hosts != ':')
        return false;
    ++*hosts;
    *end = '\0';
    *name = line;
    return true;
}

static bool names(char *hosts, const char *host)
{
    char *save = NULL;

    for (char *one = strtok_r(hosts, BLANK, &save); one; one = strtok_r(NULL, BLANK, &save))
        if (fnmatch(one, host, 0) == 0)
            return true;
    return false;
}

static uint64_t number_of(const char *name)
{
    uint64_t h = 1;

    for (; *name; name++)
        h = spr_rng_u64(h, (uint64_t)(unsigned char)*name);
    return h ? h : 1;
}

static spr_status read_racks(FILE *file, const char *path, const char *host, uint64_t *rack,
                             struct spr_error *error)
{
    char line[LINE_BYTES], *name, *hosts;

    for (int number = 1; fgets(line, sizeof line, file); number++) {
        if (!strchr(line, '\n') && !feof(file))
            return spr_error_set(error, SPR_ERR_INVALID, -1, "%s:%d: longer than %d bytes", path,
                                 number, LINE_BYTES - 2);
        line[strcspn(line, "#")] = '\0';
        if (line[strspn(line, BLANK)] == '\0')
            continue;
        if (!split(line, &name, &hosts))
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "%s:%d: no rack; write NAME: HOST..., hosts as patterns", path,
                                 number);
        if (!names(hosts, host))
            continue;
        if (*rack && *rack != number_of(name))
            return spr_error_set(error, SPR_ERR_INVALID, -1,
                                 "%s:%d: host %s is in rack %s, and in another one before", path,
                                 number, host, name);
        *rack = number_of(name);
    }
    return ferror(file) ? spr_error_set(error, SPR_ERR_SYSTEM, -1, "%s: %s", path, strerror(errno))
                        : SPR_OK;
}

spr_status spr_rack_find(const char *path, const char *host, uint64_t *rack,
                         struct spr_error *error)
{
    FILE *file = fopen(path, "re");
    spr_status status;

    *rack = 0;
    if (!file)
        return spr_error_set(error, SPR_ERR_SYSTEM, -1,
                             "topology file %s: %s; see SPARRING_TOPOLOGY", path, strerror(errno));
    status = read_racks(file, path, host, rack, error);
    fclose(file);
    return status;
}
