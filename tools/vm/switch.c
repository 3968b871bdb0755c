/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-vm-switch GUESTS FD...: the Ethernet switch between guests. Started by sparring-vm, with
 * one datagram socket for each network device: those of all guests on rail 0, then rail 1, and so
 * on; each rail is a switch of its own. Addresses are 52:54:00:09:rail:guest+1. Standard input says
 * "PORT 0" or "PORT 1" on a line: from now on that port drops, or passes on, all frames. Its end
 * ends the switch.
 *
 * Nothing is lost between guests that take their frames: a frame waits for room, and its sender
 * with it. One that does not take any for STALL_MS, because it is stopped, loses them without
 * delaying others.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORTS_MOST = 256, FRAME_MOST = 72 << 10, STALL_MS = 100, BURST = 64 };

struct port {
    int fd;
    bool silent;
    bool stalled;
};

static struct port ports[PORTS_MOST];
static int port_count, guests;

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void wait_for_room(struct port *to)
{
    struct pollfd room = {.fd = to->fd, .events = POLLOUT};
    int64_t end = now_ms() + STALL_MS, left;

    while ((left = end - now_ms()) > 0)
        if (poll(&room, 1, (int)left) > 0)
            return;
    to->stalled = true;
}

static void pass(struct port *to, const unsigned char *frame, size_t size)
{
    while (!to->silent && to->fd >= 0) {
        if (send(to->fd, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
            to->stalled = false;
            return;
        }
        if ((errno != EAGAIN && errno != ENOBUFS) || to->stalled)
            return;
        wait_for_room(to);
    }
}

static void forward(int from, const unsigned char *frame, size_t size)
{
    int first = from / guests * guests, guest = frame[5] - 1;

    if (size < 14 || ports[from].silent)
        return;
    for (int i = 0; i < guests; i++)
        if (first + i != from && ((frame[0] & 1) != 0 || i == guest))
            pass(&ports[first + i], frame, size);
}

static void take_frames(int from)
{
    static unsigned char frame[FRAME_MOST];

    for (int i = 0; i < BURST; i++) {
        ssize_t n = recv(ports[from].fd, frame, sizeof frame, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) { /* its guest is gone */
            close(ports[from].fd);
            ports[from].fd = -1;
            return;
        }
        forward(from, frame, (size_t)n);
    }
}

/* False at the end of input. */
static bool obey(void)
{
    static char text[4096];
    static size_t used;
    ssize_t n = read(0, text + used, sizeof text - 1 - used);
    char *line = text, *end;

    if (n <= 0)
        return false;
    used += (size_t)n;
    text[used] = '\0';
    while ((end = strchr(line, '\n')) != NULL) {
        char *rest;
        long port = strtol(line, &rest, 10);

        if (port >= 0 && port < port_count)
            ports[port].silent = strtol(rest, NULL, 10) == 0;
        line = end + 1;
    }
    used -= (size_t)(line - text);
    memmove(text, line, used);
    return used < sizeof text - 1;
}

int main(int argc, char **argv)
{
    struct pollfd polls[PORTS_MOST + 1] = {{.fd = 0, .events = POLLIN}};

    guests = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
    port_count = argc - 2;
    if (guests < 1 || port_count < 1 || port_count > PORTS_MOST || port_count % guests != 0) {
        fputs("usage: sparring-vm-switch GUESTS FD... (started by sparring-vm)\n", stderr);
        return 2;
    }
    for (int i = 0; i < port_count; i++)
        ports[i].fd = (int)strtol(argv[i + 2], NULL, 10);
    for (;;) {
        for (int i = 0; i < port_count; i++)
            polls[i + 1] = (struct pollfd){.fd = ports[i].fd, .events = POLLIN};
        if (poll(polls, (nfds_t)port_count + 1, -1) < 0)
            continue;
        if (polls[0].revents != 0 && !obey())
            return 0;
        for (int i = 0; i < port_count; i++)
            if (polls[i + 1].revents != 0)
                take_frames(i);
    }
}
