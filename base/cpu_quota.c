/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The CPU quota that control groups put on this process, versions 1 and 2.
 *
 * A quota of any group on the way from our own to the root counts. Inside a container the path in
 * /proc/self/cgroup may be the host's, which does not exist below the container's own mount;
 * walking up ends at the mount's root, which then is the container's group.
 */
#include "base/cpu.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define PATH_BYTES 1024

/* A hierarchy: where it is mounted, and the files that hold its quota. */
struct hierarchy {
    bool v2;
    const char *mounts[2];
};

static const struct hierarchy v1 = {false, {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}};
static const struct hierarchy v2 = {true, {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}};

/* First line of folder/name. */
static bool read_line(const char *folder, const char *name, char *text, int bytes)
{
    char path[PATH_BYTES + 32];
    FILE *file;
    bool good;

    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return false;
    file = fopen(path, "re");
    if (!file)
        return false;
    good = fgets(text, bytes, file) != NULL;
    fclose(file);
    return good;
}

/* CPUs that one group allows; 0 = any. */
static double group_quota(const char *folder, bool is_v2)
{
    char text[64];
    long long quota, period;

    if (is_v2) {
        /* "max 100000" or "150000 100000", microseconds */
        if (!read_line(folder, "cpu.max", text, sizeof(text)) ||
            sscanf(text, "%lld %lld", &quota, &period) != 2)
            return 0;
    } else {
        if (!read_line(folder, "cpu.cfs_quota_us", text, sizeof(text)))
            return 0;
        quota = strtoll(text, NULL, 10);
        if (!read_line(folder, "cpu.cfs_period_us", text, sizeof(text)))
            return 0;
        period = strtoll(text, NULL, 10);
    }
    return quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

static double smaller(double a, double b)
{
    if (a == 0 || b == 0)
        return a + b;
    return a < b ? a : b;
}

/* The smallest quota from mount/group up to the mount itself. */
static double walk(const char *root, const char *mount, const char *group, bool is_v2)
{
    char folder[PATH_BYTES];
    size_t stop = strlen(root) + strlen(mount);
    double quota = 0;

    if (snprintf(folder, sizeof(folder), "%s%s%s", root, mount, group) >= (int)sizeof(folder))
        return 0;
    for (;;) {
        size_t length = strlen(folder);

        while (length > stop && folder[length - 1] == '/')
            folder[--length] = '\0';
        quota = smaller(quota, group_quota(folder, is_v2));
        if (length <= stop)
            return quota;
        while (length > stop && folder[length - 1] != '/')
            folder[--length] = '\0';
    }
}

/* Is "cpu" one of the comma-separated controllers? */
static bool has_cpu(const char *controllers)
{
    for (const char *s = controllers; *s; s += strcspn(s, ",")) {
        s += *s == ',';
        if (strncmp(s, "cpu", 3) == 0 && (s[3] == ',' || s[3] == '\0'))
            return true;
    }
    return false;
}

/* One line of /proc/self/cgroup: "number:controllers:path"; version 2 is "0::path". */
static double line_quota(const char *root, char *line)
{
    char *controllers = strchr(line, ':'), *group;
    const struct hierarchy *h;
    double quota = 0;

    if (!controllers)
        return 0;
    *controllers++ = '\0';
    group = strchr(controllers, ':');
    if (!group)
        return 0;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (*controllers == '\0')
        h = &v2;
    else if (has_cpu(controllers))
        h = &v1;
    else
        return 0;
    for (size_t i = 0; i < SPR_ARRAY_LEN(h->mounts); i++)
        quota = smaller(quota, walk(root, h->mounts[i], group, h->v2));
    return quota;
}

double spr_cpu_quota(const char *root)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    double quota = 0;
    FILE *file;

    if (snprintf(path, sizeof(path), "%s/proc/self/cgroup", root) >= (int)sizeof(path))
        return 0;
    file = fopen(path, "re");
    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file))
        quota = smaller(quota, line_quota(root, line));
    fclose(file);
    return quota;
}
