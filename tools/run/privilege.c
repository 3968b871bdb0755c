/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/run/privilege.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/run/output.h"

static bool write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    int saved = errno;
    close(fd);
    errno = saved;
    return written;
}

/* A user namespace where this user is root. setgroups must be given up before groups are mapped. */
static bool become_root_inside(void)
{
    char users[64];
    char groups[64];
    snprintf(users, sizeof users, "0 %u 1", (unsigned)geteuid());
    snprintf(groups, sizeof groups, "0 %u 1", (unsigned)getegid());
    return unshare(CLONE_NEWUSER) == 0 && write_file("/proc/self/uid_map", users) &&
           write_file("/proc/self/setgroups", "deny") && write_file("/proc/self/gid_map", groups);
}

/* Is a sysctl there, and set to this? */
static bool is_set_to(const char *path, char value)
{
    char text[2] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool equal = read(fd, text, 1) == 1 && text[0] == value;
    close(fd);
    return equal;
}

static const char *remedy(void)
{
    if (access("/proc/self/ns/user", F_OK) != 0)
        return "run as root (this kernel has no user namespaces)";
    if (is_set_to("/proc/sys/kernel/unprivileged_userns_clone", '0'))
        return "run as root, or allow user namespaces: "
               "sysctl kernel.unprivileged_userns_clone=1";
    if (is_set_to("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", '1'))
        return "run as root, or allow user namespaces: "
               "sysctl kernel.apparmor_restrict_unprivileged_userns=0";
    if (is_set_to("/proc/sys/user/max_user_namespaces", '0'))
        return "run as root, or allow user namespaces: sysctl user.max_user_namespaces=1000";
    return "run as root, or where user namespaces are allowed (containers often forbid them)";
}

bool privilege_get(void)
{
    if (unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0)
        return true;
    if (errno == EPERM && become_root_inside() && unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0)
        return true;
    const char *why = strerror(errno);
    say("--emulate needs network namespaces, which are refused (%s); %s", why, remedy());
    return false;
}
