/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/cli/shell_line.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct result result;
static char ready[] = "/tmp/test-ready-XXXXXX";

void shell_line_setup(void)
{
    const char *folder = getenv("top_builddir");
    char path[4096];
    snprintf(path, sizeof path, "%s/tools/sparring-run", folder != NULL ? folder : ".");
    setenv("RUN", path, 1);
    snprintf(path, sizeof path, "%s/tools/sparring-vm", folder != NULL ? folder : ".");
    setenv("VM", path, 1);
    unsetenv("SPARRING_TIME_FACTOR");
    close(mkstemp(ready));
    setenv("READY", ready, 1);
}

void shell_line_end(void) { unlink(ready); }

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void read_back(int fd, char *text)
{
    ssize_t got = pread(fd, text, TEXT_BYTES - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    close(fd);
}

/* Everything that the line starts inherits the write end of a pipe, so the pipe closes when the
 * last process is gone. A process that is left behind keeps it open: that fails the test. */
void run(const char *line)
{
    int gone[2];
    int output = memfd_create("output", MFD_CLOEXEC);
    int error = memfd_create("error", MFD_CLOEXEC);
    int status = 0;
    int64_t start = now_ms();
    assert_true(truncate(ready, 0) == 0);
    assert_true(output >= 0 && error >= 0 && pipe2(gone, O_CLOEXEC) == 0);
    /* Several processes write, and the offset of a memory file is not theirs together. */
    assert_true(fcntl(output, F_SETFL, O_APPEND) == 0 && fcntl(error, F_SETFL, O_APPEND) == 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int nothing = open("/dev/null", O_RDONLY);
        dup2(nothing, STDIN_FILENO);
        dup2(output, STDOUT_FILENO);
        dup2(error, STDERR_FILENO);
        dup2(gone[1], 3);
        closefrom(4);
        signal(SIGHUP, SIG_DFL); /* a shell cannot trap what nohup has it ignore */
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(99);
    }
    close(gone[1]);
    struct pollfd last = {.fd = gone[0]};
    assert_int_equal(waitpid(pid, &status, 0), pid);
    result.took_ms = now_ms() - start;
    int ended = poll(&last, 1, 20000);
    close(gone[0]);
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    read_back(output, result.output);
    read_back(error, result.error);
    if (ended != 1)
        fail_msg("a process was left behind by: %s\n%s", line, result.error);
}

void assert_code(int code)
{
    if (result.code != code)
        fail_msg("exit code %d instead of %d\n%s%s", result.code, code, result.output,
                 result.error);
}

void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' is missing in:\n%s", part, text);
}

int count(const char *text, const char *part)
{
    int found = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        found++;
    return found;
}
