/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/fuzz/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

static char folder[64];

static void remove_folder(void)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir)) != NULL)
        (void)unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    (void)rmdir(folder);
}

const char *fuzz_folder(void)
{
    if (*folder)
        return folder;
    snprintf(folder, sizeof folder, "%s/sparring-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder));
    (void)atexit(remove_folder);
    return folder;
}

void fuzz_file(const char *name, const void *data, size_t bytes)
{
    char path[256];
    int fd;

    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
}
