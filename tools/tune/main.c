/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-tune: measures the model by which algorithms are chosen, and prints it as a line of a
 * configuration file, or puts it into one.
 *
 *   every rank   spr_comm_create, spr_comm_tune; all have the same constants then
 *   rank 0       MODEL=... to standard output, and with --write in place of the line in the file
 */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparring/sparring.h>

#include "base/util.h"
#include "tools/command_line.h"
#include "tools/first_rank.h"
#include "tools/streams.h"

struct options {
    const char *file; /* NULL: none */
};

static void SPR_PRINTF(1, 2) complain(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("sparring-tune: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

static const char *take_write(struct options *options, const char *value)
{
    options->file = value;
    return *value != '\0' ? NULL : "the name of a file";
}

static const struct option_row rows[] = {
    {"write", 0, "FILE", take_write,
     "also put the line into this file, in place of the one\nthat is there"},
    {"help", 'h', NULL, NULL, "print this text"},
    {"version", 'V', NULL, NULL, "print the version"},
};

static void print_help(void)
{
    puts(
        "Usage: sparring-run -n RANKS -- sparring-tune [options]\n"
        "Measures links and CPUs, and prints the line of a configuration file by which algorithms\n"
        "are chosen. Run it where and as the jobs will run, while nothing else does.\n");
    option_rows_print(rows, SPR_ARRAY_LEN(rows), 18);
}

static enum options_next complete(struct options *options, uint64_t used, int count, char **words)
{
    (void)options;
    (void)used;
    return count == 0 ? OPTIONS_RUN : options_wrong("it takes options only, not '%s'", words[0]);
}

static bool is_silent(void) { return !first_rank(); }

const struct tool tool = {.name = "sparring-tune",
                          .rows = rows,
                          .row_count = SPR_ARRAY_LEN(rows),
                          .print_help = print_help,
                          .complete = complete,
                          .is_silent = is_silent};

/* Is this the line of the model? As base/opt reads it: with SPARRING_ in front or without. */
static bool is_model(const char *line)
{
    line += strspn(line, " \t");
    if (!strncmp(line, "SPARRING_", 9))
        line += 9;
    if (strncmp(line, "MODEL", 5) != 0)
        return false;
    line += 5 + strspn(line + 5, " \t");
    return *line == '=';
}

/* All lines of the old file but that one, and then the new one. */
static bool copy(const char *from, FILE *to, const char *model)
{
    FILE *old = fopen(from, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    bool ended = true, all;

    if (!old && errno != ENOENT)
        return false;
    while (old && (n = getline(&line, &room, old)) > 0) {
        if (is_model(line))
            continue;
        fputs(line, to);
        ended = line[n - 1] == '\n';
    }
    free(line);
    all = !old || !ferror(old);
    if (old)
        fclose(old);
    return all && fprintf(to, "%sMODEL=%s\n", ended ? "" : "\n", model) > 0 && fflush(to) == 0 &&
           fsync(fileno(to)) == 0;
}

/* The file has the old lines or the new ones, whatever happens. */
static bool replace_line(const char *name, const char *model)
{
    char *real = realpath(name, NULL); /* behind a symbolic link */
    const char *file = real ? real : name;
    size_t bytes = strlen(file) + 8;
    char *temporary = malloc(bytes);
    struct stat was;
    bool exists = stat(file, &was) == 0, done = false;
    FILE *out;
    int fd;

    if (!temporary) {
        free(real);
        return false;
    }
    snprintf(temporary, bytes, "%s.XXXXXX", file);
    fd = mkstemp(temporary);
    out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out) {
        done = copy(file, out, model) &&
               (!exists || fchown(fd, was.st_uid, was.st_gid) == 0 || geteuid() != 0) &&
               fchmod(fd, exists ? was.st_mode & 07777 : 0644) == 0;
        done = fclose(out) == 0 && done && rename(temporary, file) == 0;
    } else if (fd >= 0) {
        close(fd);
    }
    if (!done && fd >= 0) {
        int why = errno;
        unlink(temporary);
        errno = why;
    }
    free(temporary);
    free(real);
    return done;
}

static int tell(spr_comm *comm, const struct options *options)
{
    char model[SPR_MODEL_BYTES];
    struct stat was;

    if (spr_comm_size(comm) == 1) {
        complain("there is nothing to measure with one rank: sparring-run -n RANKS -- "
                 "sparring-tune");
        return 2;
    }
    if (spr_comm_rank(comm) != 0)
        return 0;
    spr_comm_model(comm, model, sizeof model);
    printf("MODEL=%s\n", model);
    if (fflush(stdout) != 0) /* main() says so */
        return 1;
    /* A device or a pipe would be replaced by a file. */
    if (options->file && stat(options->file, &was) == 0 && !S_ISREG(was.st_mode)) {
        complain("rank 0: --write %s: not a regular file", options->file);
        return 1;
    }
    if (options->file && !replace_line(options->file, model)) {
        complain("rank 0: --write %s: %s", options->file, strerror(errno));
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    spr_comm *comm = NULL;
    spr_status status;
    int code;

    streams_open();
    if (options_end(command_line_parse(&options, argc, argv), &code))
        return code;
    /* A line that is wrong, or of another version, is to be replaced. */
    status = setenv("SPARRING_MODEL", "", 1) ? SPR_ERR_NOMEM : spr_comm_create(NULL, &comm);
    if (status == SPR_OK)
        status = spr_comm_tune(comm);
    if (status != SPR_OK) {
        if (status == SPR_ERR_INVALID)
            first_rank_first();
        complain("rank %s: %s", getenv("SPARRING_RANK") ? getenv("SPARRING_RANK") : "0",
                 spr_last_error(comm));
        code = status == SPR_ERR_INVALID ? 2 : 1;
    } else {
        code = tell(comm, &options);
    }
    spr_comm_destroy(comm);
    return streams_close(tool.name, code);
}
