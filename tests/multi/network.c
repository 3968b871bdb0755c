/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/multi/network.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/multi/faults.h"
#include "tools/run/emulate.h"
#include "tools/run/output.h"
#include "transport/frame.h"

static struct emulated_network network;

bool network_build(int hosts)
{
    const struct emulated_links links = {1, 1, {{NETWORK_RATE}}};
    bool built = emulated_network_build(&network, hosts, &links, NULL) == 0;

    say_flush();
    return built;
}

void network_enter(struct job *job, int rank)
{
    (void)job;
    RANK_CHECK(emulated_host_enter(&network.hosts[rank % network.count]));
}

/* Commands ------------------------------------------------------------------------------------- */

/* In a child on that host (-1: at the switch). */
static bool try_at(int host, bool (*act)(void *arg), void *arg)
{
    int status = -1;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        bool there = host < 0 || emulated_host_enter(&network.hosts[host]);
        _exit(there && act(arg) ? 0 : 1);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return status == 0;
}

static void do_at(int host, bool (*act)(void *arg), void *arg)
{
    assert_true(try_at(host, act, arg));
}

static bool run(void *command)
{
    setenv("PATH", "/usr/sbin:/sbin:/usr/bin:/bin", 1);
    execl("/bin/sh", "sh", "-c", (const char *)command, (char *)NULL);
    return false;
}

__attribute__((format(printf, 2, 3))) static void run_at(int host, const char *format, ...)
{
    char command[256];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    do_at(host, run, command);
}

void network_cable(int host, bool plugged)
{
    run_at(-1, "ip link set p%d %s", host, plugged ? "up" : "down");
}

/* By a hardware address that nobody has. */
void network_mute(int from, int to, bool lost)
{
    char address[EMULATED_ADDRESS_BYTES];
    unsigned a, b, c, d;

    emulated_address(to, address);
    assert_int_equal(sscanf(address, "%u.%u.%u.%u", &a, &b, &c, &d), 4);
    run_at(from, "ip neighbour replace %s lladdr %s:00:00:%02x:%02x nud permanent dev eth0",
           address, lost ? "02:7f" : "02:77", c, d);
}

void network_rate(int host, unsigned long long bits_s)
{
    run_at(-1, "tc qdisc change dev p%d root tbf rate %llubit burst 70kb latency 50ms", host,
           bits_s);
    run_at(host, "tc qdisc change dev eth0 root tbf rate %llubit burst 70kb latency 50ms", bits_s);
}

/* Connections ---------------------------------------------------------------------------------- */

/* What sock_diag(7) says of one of them. */
struct found {
    struct inet_diag_msg message;
    uint64_t bytes; /* sent and received */
};

static uint64_t bytes_moved(const struct nlmsghdr *h)
{
    const struct inet_diag_msg *m = NLMSG_DATA(h);
    int left = (int)NLMSG_PAYLOAD(h, sizeof *m);
    const struct nlattr *a = (const void *)(m + 1);
    struct tcp_info info;

    while (left >= (int)sizeof *a && a->nla_len >= sizeof *a && a->nla_len <= left) {
        if (a->nla_type == INET_DIAG_INFO && a->nla_len >= sizeof *a + sizeof info) {
            memcpy(&info, a + 1, sizeof info);
            return info.tcpi_bytes_acked + info.tcpi_bytes_received;
        }
        left -= NLA_ALIGN(a->nla_len);
        a = (const void *)((const char *)a + NLA_ALIGN(a->nla_len));
    }
    return 0;
}

/* The connections of this host over IPv4, in these states. */
static int list(int fd, uint32_t states, struct found *all, int most)
{
    struct {
        struct nlmsghdr h;
        struct inet_diag_req_v2 r;
    } ask = {{sizeof ask, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0},
             {.sdiag_family = AF_INET,
              .sdiag_protocol = IPPROTO_TCP,
              .idiag_ext = 1 << (INET_DIAG_INFO - 1),
              .idiag_states = states}};
    static _Alignas(struct nlmsghdr) char buffer[65536];
    int count = 0;

    if (send(fd, &ask, sizeof ask, 0) != (ssize_t)sizeof ask)
        return -1;
    for (;;) {
        ssize_t n = recv(fd, buffer, sizeof buffer, 0);
        struct nlmsghdr *h = (void *)buffer;
        if (n <= 0)
            return -1;
        for (; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
            if (h->nlmsg_type == NLMSG_DONE)
                return count;
            if (h->nlmsg_type == NLMSG_ERROR)
                return -1;
            if (count == most)
                continue;
            memcpy(&all[count].message, NLMSG_DATA(h), sizeof all->message);
            all[count++].bytes = bytes_moved(h);
        }
    }
}

static bool destroy(int fd, const struct inet_diag_msg *m)
{
    struct {
        struct nlmsghdr h;
        struct inet_diag_req_v2 r;
    } order = {{sizeof order, SOCK_DESTROY, NLM_F_REQUEST | NLM_F_ACK, 2, 0},
               {.sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP, .id = m->id}};
    struct {
        struct nlmsghdr h;
        struct nlmsgerr e;
    } answer = {0};

    order.r.idiag_states = UINT32_MAX;
    return send(fd, &order, sizeof order, 0) == (ssize_t)sizeof order &&
           recv(fd, &answer, sizeof answer, 0) > 0 && answer.h.nlmsg_type == NLMSG_ERROR &&
           (answer.e.error == 0 || answer.e.error == -ENOENT);
}

enum { MOST_CONNECTIONS = 64, ESTABLISHED = 1, LISTENS = 10, TIME_WAIT = 6 };

struct reset {
    int peer;
    enum network_connection which;
};

/* The data connection and the control connection to a host, when both are there. */
static bool find_two(int fd, int peer, struct found two[2])
{
    struct found all[MOST_CONNECTIONS];
    char text[EMULATED_ADDRESS_BYTES];
    struct in_addr address;
    int count = 0, n = list(fd, 1u << ESTABLISHED, all, MOST_CONNECTIONS);

    emulated_address(peer, text);
    for (int i = 0; i < n && inet_pton(AF_INET, text, &address) == 1; i++)
        if (all[i].message.id.idiag_dst[0] == address.s_addr && count++ < 2)
            two[count - 1] = all[i];
    return count == 2;
}

/* The control connections come up beside the first collectives: a few heartbeats have to pass. */
static bool await_two(void *arg)
{
    const int *peer = arg;
    struct found first[2], now[2];
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    bool found = false, moved = false;

    for (int tries = 0; tries < 6000 && !moved; tries++, fault_pause_us(5000)) {
        if (!find_two(fd, *peer, now))
            continue;
        if (!found)
            memcpy(first, now, sizeof first);
        found = true;
        moved = now[0].bytes >= first[0].bytes + 2 * SPR_FRAME_BYTES &&
                now[1].bytes >= first[1].bytes + 2 * SPR_FRAME_BYTES;
    }
    return moved;
}

void network_await(int hosts)
{
    for (int a = 0; a < hosts; a++)
        for (int b = 0; b < a; b++)
            do_at(a, await_two, &b);
}

/* The data is where the bytes are. */
static bool reset_one(void *arg)
{
    const struct reset *reset = arg;
    struct found with[2];
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), n;

    if (!find_two(fd, reset->peer, with)) {
        fprintf(stderr, "not two connections lead to host %d\n", reset->peer);
        return false;
    }
    n = (with[0].bytes > with[1].bytes) == (reset->which == NETWORK_DATA) ? 0 : 1;
    if (destroy(fd, &with[n].message))
        return true;
    fprintf(stderr, "a connection cannot be reset: %s\n", strerror(errno));
    return false;
}

void network_reset(int host, int peer, enum network_connection which)
{
    struct reset reset = {peer, which};

    do_at(host, reset_one, &reset);
}

/* One that is not there: kernels without the means do not get as far. */
static bool reset_none(void *arg)
{
    const struct inet_diag_msg nobody = {.id = {.idiag_cookie = {1, 1}}};
    struct found one;
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

    (void)arg;
    return list(fd, UINT32_MAX, &one, 1) >= 0 && destroy(fd, &nobody);
}

bool network_can_reset(void) { return try_at(0, reset_none, NULL); }

static bool forget_all(void *arg)
{
    struct found all[MOST_CONNECTIONS];
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    int n = list(fd, ~(1u << LISTENS | 1u << TIME_WAIT), all, MOST_CONNECTIONS);
    bool done = n >= 0;

    (void)arg;
    for (int i = 0; i < n; i++)
        done = destroy(fd, &all[i].message) && done;
    return done;
}

/* Processes ------------------------------------------------------------------------------------ */

static int each_process(int host, int number)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    struct stat here, there;
    int count = 0;

    assert_true(proc && fstat(network.hosts[host].network_fd, &here) == 0);
    while ((entry = readdir(proc))) {
        char path[300];
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        snprintf(path, sizeof path, "/proc/%s/ns/net", entry->d_name);
        if (pid <= 0 || stat(path, &there) || there.st_ino != here.st_ino)
            continue;
        count++;
        if (number)
            kill(pid, number);
    }
    closedir(proc);
    return count;
}

int network_processes(int host) { return each_process(host, 0); }

void network_power_off(int host)
{
    for (int tries = 0; each_process(host, SIGKILL) > 0; tries++) {
        assert_true(tries < 10000);
        usleep(1000);
    }
    do_at(host, forget_all, NULL);
}
