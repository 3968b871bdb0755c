/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/fuzz/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

#define MOST_FILES 2

static char folder[64];
/* They stay open: to look a path up and to cut a file short takes longer than most decoders. */
static struct {
    char name[64];
    int fd;
    size_t bytes;
} files[MOST_FILES];
static int file_count;

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
    int i = 0;

    while (i < file_count && strcmp(files[i].name, name) != 0)
        i++;
    if (i == file_count) {
        FUZZ_CHECK(file_count < MOST_FILES && strlen(name) < sizeof files[i].name);
        snprintf(files[i].name, sizeof files[i].name, "%s", name);
        snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
        files[i].fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        FUZZ_CHECK(files[i].fd >= 0);
        file_count++;
    }
    if (files[i].bytes > bytes)
        FUZZ_CHECK(ftruncate(files[i].fd, (off_t)bytes) == 0);
    FUZZ_CHECK(pwrite(files[i].fd, data, bytes, 0) == (ssize_t)bytes);
    files[i].bytes = bytes;
}
