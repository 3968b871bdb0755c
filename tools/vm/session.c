/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/vm/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

extern char **environ;

enum { HEAD_BYTES = 5, WORDS_MOST = 1 << 18 };

/* A VM_START, taken apart; the strings lie in the payload. */
struct order {
    bool terminal;
    const char *folder;
    char **words;       /* NULL behind the last; environment is behind that */
    char **environment; /* NULL behind the last */
};

static bool read_order(struct order *order, const unsigned char *payload, size_t length)
{
    const char *text = (const char *)payload + HEAD_BYTES, *end = (const char *)payload + length;
    size_t count = 0, strings = 0;

    if (length <= HEAD_BYTES || end[-1] != '\0')
        return false;
    order->terminal = payload[0];
    for (const char *at = text; at < end; at++)
        strings += *at == '\0';
    order->folder = text;
    text += strlen(text) + 1;
    if (text < end)
        count = strtoul(text, NULL, 10);
    if (count == 0 || count > WORDS_MOST || strings < count + 2)
        return false;
    text += strlen(text) + 1;
    order->words = calloc(strings, sizeof *order->words);
    if (order->words == NULL)
        return false;
    order->environment = order->words + count + 1;
    for (size_t i = 0; i < strings - 2; i++) {
        /* strdup is not needed: execve copies, before the payload goes. */
        order->words[i + (i >= count)] = (char *)(uintptr_t)text;
        text += strlen(text) + 1;
    }
    return true;
}

static void do_not_block(int fd) { (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

/* Both ends of a terminal. */
static bool open_terminal(int *ours, int *theirs)
{
    char name[64];

    *ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*ours < 0)
        return false;
    if (grantpt(*ours) == 0 && unlockpt(*ours) == 0 && ptsname_r(*ours, name, sizeof name) == 0 &&
        (*theirs = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)) >= 0)
        return true;
    close(*ours);
    return false;
}

_Noreturn static void run(const struct order *order, const int theirs[3])
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    if (order->terminal)
        (void)ioctl(theirs[0], TIOCSCTTY, 0);
    for (int i = 0; i < 3; i++)
        dup2(theirs[i], i);
    environ = order->environment;
    if (chdir(order->folder) != 0)
        fprintf(stderr, "sparring-vm: %s: %s in the guest\n", order->folder, strerror(errno));
    execvp(order->words[0], order->words);
    int code = errno == ENOENT ? 127 : 126;
    fprintf(stderr, "sparring-vm: cannot run %s: %s\n", order->words[0], strerror(errno));
    _exit(code);
}

static bool open_streams(struct session *session, bool terminal, int theirs[3])
{
    int in[2], out[2], err[2];

    if (terminal) {
        if (!open_terminal(&session->out, &theirs[0]))
            return false;
        theirs[1] = theirs[2] = theirs[0];
        do_not_block(session->out);
        return true;
    }
    if (pipe2(in, O_CLOEXEC) != 0)
        return false;
    if (pipe2(out, O_CLOEXEC) != 0)
        goto no_out;
    if (pipe2(err, O_CLOEXEC) != 0)
        goto no_err;
    memcpy(theirs, (int[]){in[0], out[1], err[1]}, 3 * sizeof *theirs);
    session->in = in[1];
    session->out = out[0];
    session->err = err[0];
    do_not_block(in[1]);
    do_not_block(out[0]);
    do_not_block(err[0]);
    return true;
no_err:
    close(out[0]);
    close(out[1]);
no_out:
    close(in[0]);
    close(in[1]);
    return false;
}

bool session_start(struct session *session, uint16_t number, const unsigned char *payload,
                   size_t length)
{
    struct order order = {0};
    int theirs[3];

    if (!read_order(&order, payload, length))
        return false;
    *session = (struct session){
        .number = number, .terminal = order.terminal, .in = -1, .out = -1, .err = -1};
    if (!open_streams(session, order.terminal, theirs)) {
        free(order.words);
        return false;
    }
    session_window(session, payload + 1, HEAD_BYTES - 1);
    session->pid = fork();
    if (session->pid == 0)
        run(&order, theirs);
    close(theirs[0]);
    if (!order.terminal) {
        close(theirs[1]);
        close(theirs[2]);
    }
    free(order.words);
    session->used = session->pid > 0;
    if (!session->used)
        session_close(session);
    return session->used;
}

void session_window(const struct session *session, const unsigned char *payload, size_t length)
{
    struct winsize size = {0};

    if (!session->terminal || length != 2 * sizeof(uint16_t))
        return;
    memcpy(&size.ws_row, payload, sizeof size.ws_row);
    memcpy(&size.ws_col, payload + 2, sizeof size.ws_col);
    (void)ioctl(session->out, TIOCSWINSZ, &size);
}

size_t session_feed(struct session *session)
{
    int fd = session->terminal ? session->out : session->in;
    size_t size = buffer_size(&session->input), taken = 0;

    if (fd >= 0 && size > 0) {
        ssize_t n = write(fd, session->input.bytes + session->input.start, size);

        /* Nobody reads it any more: gone is as good as taken. */
        taken = n > 0 ? (size_t)n : n < 0 && errno != EAGAIN && errno != EINTR ? size : 0;
    } else if (fd < 0) {
        taken = size;
    }
    buffer_take(&session->input, taken);
    if (session->input_ended && buffer_size(&session->input) == 0 && session->in >= 0) {
        close(session->in);
        session->in = -1;
    }
    return taken;
}

void session_close(struct session *session)
{
    int *fds[] = {&session->in, &session->out, &session->err};

    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
    buffer_free(&session->input);
}
