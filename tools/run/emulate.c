/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/run/emulate.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/run/output.h"
#include "tools/run/privilege.h"

/* 70 kB is just above one 64 KiB segment: below that the shaper splits segments and throughput
 * collapses; far above it short messages pass at many times the rate. */
#define SHAPER "root tbf rate %llubit burst 70kb latency 50ms\n"

/* Hosts are numbered from 1 in addresses: 10.77.HIGH.LOW, fd77::HIGH:LOW, 02:77:00:00:HIGH:LOW,
 * with 78 instead of 77 on the second link, and so on. LOW stays below 251, so no address ends in 0
 * or 255. */
enum { HOSTS_PER_BLOCK = 250, FIRST_NETWORK = 77 };

static unsigned high_part(int host) { return (unsigned)host / HOSTS_PER_BLOCK % 256; }

static unsigned low_part(int host) { return (unsigned)host % HOSTS_PER_BLOCK + 1; }

void emulated_address(int host, char address[EMULATED_ADDRESS_BYTES])
{
    snprintf(address, EMULATED_ADDRESS_BYTES, "10.77.%u.%u", high_part(host), low_part(host));
}

uint64_t emulated_rate(const struct emulated_links *links, int host, int link)
{
    return links->rate_bits_s[host < links->hosts ? host : links->hosts - 1][link];
}

bool emulated_host_enter(const struct emulated_host *host)
{
    return setns(host->name_fd, CLONE_NEWUTS) == 0 && setns(host->network_fd, CLONE_NEWNET) == 0;
}

static bool write_sysctl(const char *path, const char *value)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool written = write(fd, value, strlen(value)) > 0;
    int saved = errno;
    close(fd);
    errno = saved;
    return written;
}

/* In the child: becomes `program -batch -` with `text` as its standard input. */
static void exec_batch(const char *program, const char *text, size_t length)
{
    int fd = memfd_create("sparring-run-batch", 0);
    if (fd < 0 || write(fd, text, length) != (ssize_t)length || lseek(fd, 0, SEEK_SET) != 0 ||
        dup2(fd, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        _exit(125);
    close(fd);
    char path[4096];
    snprintf(path, sizeof path, "%s:/usr/sbin:/sbin",
             getenv("PATH") != NULL ? getenv("PATH") : "/bin");
    setenv("PATH", path, 1); /* iproute2 is where a plain user does not look */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execlp(program, program, "-batch", "-", (char *)NULL);
    _exit(127);
}

/* Runs `ip` or `tc` over a list of commands. `host`: where; NULL = here. `inherit`: namespaces
 * that the commands name as /proc/self/fd/N. False after one line that says what failed. */
static bool run_batch(const char *program, char *text, size_t length, bool inherit,
                      const struct emulated_network *network)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; inherit && i < network->count; i++)
            fcntl(network->hosts[i].network_fd, F_SETFD, 0);
        exec_batch(program, text, length);
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (pid < 0)
        say_errno("cannot start '%s'", program);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        say("--emulate needs the program '%s' (package iproute2)", program);
    else
        say("the emulated network cannot be set up: '%s' failed, see above", program);
    return false;
}

/* A text that grows. */
struct script {
    FILE *stream;
    char *text;
    size_t length;
};

static bool script_open(struct script *script)
{
    *script = (struct script){0};
    script->stream = open_memstream(&script->text, &script->length);
    if (script->stream == NULL)
        return false;
    return true;
}

static bool script_run(struct script *script, const char *program, bool inherit,
                       const struct emulated_network *network)
{
    bool whole = fclose(script->stream) == 0;
    if (!whole)
        say_errno("the emulated network cannot be set up");
    bool done = whole && run_batch(program, script->text, script->length, inherit, network);
    free(script->text);
    return done;
}

/* "sw", "p7"; of other links than the first "sw1", "p7.1". */
static const char *switch_name(int link, char name[16])
{
    snprintf(name, 16, link == 0 ? "sw" : "sw%d", link);
    return name;
}

static const char *port_name(int host, int link, char name[16])
{
    snprintf(name, 16, link == 0 ? "p%d" : "p%d.%d", host, link);
    return name;
}

/* A bridge, and a cable from it into each host. */
static bool build_switch(const struct emulated_network *network, const struct emulated_links *links,
                         int link)
{
    char bridge[16], port[16];
    struct script script;
    if (!script_open(&script))
        return false;
    switch_name(link, bridge);
    fprintf(script.stream, "link add name %s type bridge mcast_snooping 0\nlink set %s up\n",
            bridge, bridge);
    for (int i = 0; i < network->count; i++) {
        port_name(i, link, port);
        fprintf(script.stream,
                "link add name %s type veth peer name eth%d address 02:%d:00:00:%02x:%02x"
                " netns /proc/self/fd/%d\n"
                "link set %s master %s up\n",
                port, link, FIRST_NETWORK + link, high_part(i), low_part(i),
                network->hosts[i].network_fd, port, bridge);
    }
    if (!script_run(&script, "ip", true, network) || !script_open(&script))
        return false;
    for (int i = 0; i < network->count; i++)
        fprintf(script.stream, "qdisc add dev %s " SHAPER, port_name(i, link, port),
                (unsigned long long)emulated_rate(links, i, link));
    return script_run(&script, "tc", false, network);
}

static bool build_switches(const struct emulated_network *network,
                           const struct emulated_links *links)
{
    /* No address of its own, so no router solicitations into the shaped links. */
    write_sysctl("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    for (int i = 0; i < links->count; i++)
        if (!build_switch(network, links, i))
            return false;
    return true;
}

/* Addresses of one host on one link, and its neighbours as permanent entries: the kernel's table of
 * neighbours is one for all namespaces, and discovery in a full mesh of a few dozen hosts overflows
 * it. */
static void write_host_commands(FILE *stream, int host, int count, int link, bool ipv6)
{
    int network = FIRST_NETWORK + link;
    fprintf(stream, "link set eth%d up\naddress add 10.%d.%u.%u/16 dev eth%d\n", link, network,
            high_part(host), low_part(host), link);
    if (ipv6)
        fprintf(stream, "address add fd%d::%x:%x/64 dev eth%d nodad\n", network, high_part(host),
                low_part(host), link);
    for (int i = 0; i < count; i++) {
        unsigned high = high_part(i);
        unsigned low = low_part(i);
        if (i == host)
            continue;
        fprintf(stream,
                "neighbour add 10.%d.%u.%u lladdr 02:%d:00:00:%02x:%02x nud permanent dev eth%d\n",
                network, high, low, network, high, low, link);
        if (ipv6)
            fprintf(stream,
                    "neighbour add fd%d::%x:%x lladdr 02:%d:00:00:%02x:%02x nud permanent"
                    " dev eth%d\n",
                    network, high, low, network, high, low, link);
    }
}

static void read_sysctl(const char *path, char *value, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, value, room - 1) : 0;
    if (fd >= 0)
        close(fd);
    value[got > 0 ? got : 0] = '\0';
    value[strcspn(value, "\n")] = '\0';
}

static bool set_congestion(const char *name)
{
    char names[256];
    if (name == NULL || write_sysctl("/proc/sys/net/ipv4/tcp_congestion_control", name))
        return true;
    if (errno == EPERM) { /* network namespaces may only use what the machine allows everybody */
        read_sysctl("/proc/sys/net/ipv4/tcp_allowed_congestion_control", names, sizeof names);
        say("--cc %s: to allow it in network namespaces, as root: "
            "sysctl net.ipv4.tcp_allowed_congestion_control='%s %s'",
            name, names, name);
    } else if (errno != ENOENT) {
        say_errno("--cc %s", name);
    } else {
        read_sysctl("/proc/sys/net/ipv4/tcp_available_congestion_control", names, sizeof names);
        say("--cc %s: this machine does not have it, only: %s", name, names);
    }
    return false;
}

/* In a child that may stay in the host. */
static bool build_host(const struct emulated_network *network, int host,
                       const struct emulated_links *links, const char *congestion)
{
    bool ipv6 = access("/proc/sys/net/ipv6", F_OK) == 0;
    char path[64];
    struct script script;
    if (!emulated_host_enter(&network->hosts[host])) {
        say_errno("cannot enter emulated host %d", host);
        return false;
    }
    for (int i = 0; i < links->count; i++) {
        snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/eth%d/accept_dad", i);
        write_sysctl(path, "0");
    }
    if (!set_congestion(congestion) || !script_open(&script))
        return false;
    fputs("link set lo up\n", script.stream);
    for (int i = 0; i < links->count; i++)
        write_host_commands(script.stream, host, network->count, i, ipv6);
    if (!script_run(&script, "ip", false, network) || !script_open(&script))
        return false;
    for (int i = 0; i < links->count; i++)
        fprintf(script.stream, "qdisc add dev eth%d " SHAPER, i,
                (unsigned long long)emulated_rate(links, host, i));
    return script_run(&script, "tc", false, network);
}

static bool build_hosts(const struct emulated_network *network, const struct emulated_links *links,
                        const char *congestion)
{
    for (int i = 0; i < network->count; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            bool built = build_host(network, i, links, congestion);
            say_flush();
            _exit(built ? 0 : 1);
        }
        int status = 1;
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (pid < 0)
            say_errno("cannot start a process for emulated host %d", i);
        if (pid < 0 || status != 0)
            return false;
    }
    return true;
}

/* One namespace pair per host, held open by descriptors; this process ends up in one more. */
static bool make_namespaces(struct emulated_network *network)
{
    for (int i = 0; i < network->count; i++) {
        char name[16];
        int length = snprintf(name, sizeof name, "h%d", i);
        struct emulated_host *host = &network->hosts[i];
        if (i > 0 && unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0)
            return false;
        host->network_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        host->name_fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
        if (host->network_fd < 0 || host->name_fd < 0 || sethostname(name, (size_t)length) != 0)
            return false;
    }
    return unshare(CLONE_NEWNET) == 0;
}

int emulated_network_build(struct emulated_network *network, int hosts,
                           const struct emulated_links *links, const char *congestion)
{
    if (!privilege_get())
        return 2;
    *network = (struct emulated_network){.hosts = calloc((size_t)hosts, sizeof *network->hosts)};
    if (network->hosts == NULL) {
        say_errno("no memory for %d emulated hosts", hosts);
        return 1;
    }
    network->count = hosts;
    for (int i = 0; i < hosts; i++)
        network->hosts[i] = (struct emulated_host){.network_fd = -1, .name_fd = -1};
    if (!make_namespaces(network)) {
        say_errno("the namespaces of %d emulated hosts cannot be made", hosts);
        return 1;
    }
    bool built = build_switches(network, links) && build_hosts(network, links, congestion);
    return built ? 0 : 1;
}

void emulated_network_free(struct emulated_network *network)
{
    for (int i = 0; i < network->count; i++) {
        if (network->hosts[i].network_fd >= 0)
            close(network->hosts[i].network_fd);
        if (network->hosts[i].name_fd >= 0)
            close(network->hosts[i].name_fd);
    }
    free(network->hosts);
    *network = (struct emulated_network){0};
}
