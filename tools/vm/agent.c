/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-vm-agent PORT CONTROL: the first process of a guest, once tools/vm/init has set it up.
 * Runs the programs that the host asks for through the virtio port PORT (tools/vm/wire.h), and
 * hands on the lines that are written into the named pipe CONTROL, which it makes. Never returns:
 * the host ends the guest.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/vm/session.h"
#include "tools/vm/wire.h"

enum {
    READ_BYTES = 32 << 10,
    OUTGOING_MOST = 256 << 10, /* beyond this, programs have to wait */
    PORT = 0,
    CHILDREN,
    CONTROL,
    FIRST_SESSION
};

static struct session sessions[VM_SESSIONS_MOST];
static struct buffer incoming, outgoing, control;
static int port;

static void send_frame(enum vm_kind kind, uint16_t number, const void *payload, size_t length)
{
    struct vm_frame frame = {.length = (uint32_t)length, .kind = (uint8_t)kind, .number = number};

    buffer_add(&outgoing, &frame, sizeof frame);
    buffer_add(&outgoing, payload, length);
}

static void send_number(enum vm_kind kind, uint16_t number, uint32_t value)
{
    send_frame(kind, number, &value, sizeof value);
}

static struct session *find(uint16_t number)
{
    for (int i = 0; i < VM_SESSIONS_MOST; i++)
        if (sessions[i].used && sessions[i].number == number)
            return &sessions[i];
    return NULL;
}

static void start(uint16_t number, const unsigned char *payload, size_t length)
{
    int i = 0;

    while (i < VM_SESSIONS_MOST && sessions[i].used)
        i++;
    if (i == VM_SESSIONS_MOST || !session_start(&sessions[i], number, payload, length)) {
        const char text[] = "sparring-vm: the guest cannot start another program\n";

        send_frame(VM_ERROR, number, text, sizeof text - 1);
        send_number(VM_ENDED, number, 126);
    }
}

static void obey(const struct vm_frame *frame, const unsigned char *payload)
{
    struct session *session = find(frame->number);

    if (frame->kind == VM_ASK)
        send_frame(VM_ANSWER, 0, NULL, 0);
    if (frame->kind == VM_START && session == NULL)
        start(frame->number, payload, frame->length);
    if (session == NULL)
        return;
    switch (frame->kind) {
    case VM_INPUT:
        buffer_add(&session->input, payload, frame->length);
        break;
    case VM_INPUT_END:
        session->input_ended = true;
        break;
    case VM_SIGNAL:
        if (frame->length == 1)
            (void)kill(-session->pid, payload[0]);
        break;
    case VM_WINDOW:
        session_window(session, payload, frame->length);
        break;
    case VM_GONE:
        session->input_ended = true;
        (void)kill(-session->pid, SIGHUP);
        break;
    default:
        break;
    }
    size_t taken = session_feed(session);
    if (taken > 0)
        send_number(VM_TAKEN, session->number, (uint32_t)taken);
}

static void read_port(void)
{
    ssize_t n = read(port, buffer_space(&incoming, READ_BYTES), READ_BYTES);
    struct vm_frame frame;

    if (n > 0)
        incoming.end += (size_t)n;
    while (buffer_size(&incoming) >= sizeof frame) {
        memcpy(&frame, incoming.bytes + incoming.start, sizeof frame);
        if (frame.length > VM_FRAME_MOST) {
            fputs("sparring-vm: what the host says makes no sense\n", stderr);
            _exit(1);
        }
        if (buffer_size(&incoming) < sizeof frame + frame.length)
            break;
        obey(&frame, incoming.bytes + incoming.start + sizeof frame);
        buffer_take(&incoming, sizeof frame + frame.length);
    }
}

static void write_port(void)
{
    ssize_t n = write(port, outgoing.bytes + outgoing.start, buffer_size(&outgoing));

    if (n > 0)
        buffer_take(&outgoing, (size_t)n);
}

/* Sends what a program wrote. False when there is nothing now; then *fd is -1 if there never will
 * be. */
static bool read_output(struct session *session, int *fd, enum vm_kind kind)
{
    unsigned char bytes[READ_BYTES];
    ssize_t n = read(*fd, bytes, sizeof bytes);

    if (n > 0) {
        send_frame(kind, session->number, bytes, (size_t)n);
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(*fd);
        *fd = -1;
    }
    return false;
}

/* Sends what waits now, however much others write meanwhile. */
static void read_rest(struct session *session, int *fd, enum vm_kind kind)
{
    size_t before = buffer_size(&outgoing);
    int left = 0;

    if (*fd < 0 || ioctl(*fd, FIONREAD, &left) != 0)
        return;
    while (*fd >= 0 && buffer_size(&outgoing) - before < (size_t)left)
        if (!read_output(session, fd, kind))
            break;
}

/* The program of a session has ended: what it wrote is in the pipes. Others may hold them open;
 * what they write is lost. */
static void end(struct session *session, int status)
{
    read_rest(session, &session->out, VM_OUTPUT);
    read_rest(session, &session->err, VM_ERROR);
    session_close(session);
    session->used = false;
    sync(); /* folders of the host that it wrote to */
    send_number(VM_ENDED, session->number,
                (uint32_t)(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
}

static void reap(void)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < VM_SESSIONS_MOST; i++)
            if (sessions[i].used && sessions[i].pid == pid)
                end(&sessions[i], status);
}

static void read_control(int fd)
{
    ssize_t n = read(fd, buffer_space(&control, READ_BYTES), READ_BYTES);
    unsigned char *line;

    if (n <= 0)
        return;
    control.end += (size_t)n;
    while ((line = memchr(control.bytes + control.start, '\n', buffer_size(&control))) != NULL) {
        size_t length = (size_t)(line - control.bytes) - control.start;

        send_frame(VM_CONTROL, 0, control.bytes + control.start, length);
        buffer_take(&control, length + 1);
    }
}

/* Fills in three entries of a session. */
static void watch(struct pollfd polls[3], const struct session *session)
{
    short readable = buffer_size(&outgoing) < OUTGOING_MOST ? POLLIN : 0;
    short writable = buffer_size(&session->input) > 0 ? POLLOUT : 0;

    for (int i = 0; i < 3; i++)
        polls[i] = (struct pollfd){.fd = -1};
    if (!session->used)
        return;
    polls[0] = (struct pollfd){.fd = writable ? session->in : -1, .events = POLLOUT};
    polls[1] = (struct pollfd){.fd = session->out, .events = readable};
    if (session->terminal)
        polls[1].events = (short)(readable | writable);
    polls[2] = (struct pollfd){.fd = session->err, .events = readable};
    /* An end of file is always reported: it waits as output does. */
    for (int i = 1; i < 3; i++)
        if (polls[i].events == 0)
            polls[i].fd = -1;
}

static void serve(struct session *session, const struct pollfd polls[3])
{
    if (polls[0].revents != 0 || (session->terminal && (polls[1].revents & POLLOUT) != 0)) {
        size_t taken = session_feed(session);

        if (taken > 0)
            send_number(VM_TAKEN, session->number, (uint32_t)taken);
    }
    if ((polls[1].revents & ~POLLOUT) != 0 && session->out >= 0)
        read_output(session, &session->out, VM_OUTPUT);
    if (polls[2].revents != 0 && session->err >= 0)
        read_output(session, &session->err, VM_ERROR);
}

static void turn(struct pollfd *polls)
{
    polls[PORT].events = (short)(POLLIN | (buffer_size(&outgoing) > 0 ? POLLOUT : 0));
    for (int i = 0; i < VM_SESSIONS_MOST; i++)
        watch(&polls[FIRST_SESSION + (ptrdiff_t)3 * i], &sessions[i]);
    if (poll(polls, FIRST_SESSION + 3 * VM_SESSIONS_MOST, -1) < 0)
        return;
    for (int i = 0; i < VM_SESSIONS_MOST; i++)
        if (sessions[i].used)
            serve(&sessions[i], &polls[FIRST_SESSION + (ptrdiff_t)3 * i]);
    if (polls[PORT].revents & POLLIN)
        read_port();
    if (polls[CONTROL].revents & POLLIN)
        read_control(polls[CONTROL].fd);
    if (polls[CHILDREN].revents & POLLIN) {
        struct signalfd_siginfo ignored;

        (void)!read(polls[CHILDREN].fd, &ignored, sizeof ignored);
        reap();
    }
    if (buffer_size(&outgoing) > 0)
        write_port();
}

int main(int argc, char **argv)
{
    static struct pollfd polls[FIRST_SESSION + 3 * VM_SESSIONS_MOST];
    sigset_t children;

    if (argc != 3) {
        fputs("usage: sparring-vm-agent PORT CONTROL (started by sparring-vm)\n", stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    port = open(argv[1], O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (port < 0 || mkfifo(argv[2], 0622) != 0) {
        fprintf(stderr, "sparring-vm: the guest has no port: %s\n", strerror(errno));
        return 1;
    }
    (void)chmod(argv[2], 0622);
    polls[PORT].fd = port;
    polls[CHILDREN] = (struct pollfd){.fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK),
                                      .events = POLLIN};
    polls[CONTROL] =
        (struct pollfd){.fd = open(argv[2], O_RDWR | O_NONBLOCK | O_CLOEXEC), .events = POLLIN};
    send_frame(VM_READY, 0, NULL, 0);
    for (;;)
        turn(polls);
}
