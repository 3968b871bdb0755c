/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/info/firewall.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/info/report.h"

#define PORT 4791
#define PORT_TEXT "4791"
#define RULES_BYTES ((size_t)1 << 20)

extern char **environ;

/* A datagram to ourselves: refused when nobody listens or a rule rejects it, not permitted when a
 * rule for outgoing packets drops it. The soft device throws it away: it is no RoCE packet. */
static int send_one(const struct spr_tcp_address *address)
{
    struct spr_tcp_address to = *address;
    struct sockaddr_storage sa;
    socklen_t length;
    int fd, result = 0;

    to.port = PORT;
    length = spr_tcp_address_to(&to, &sa);
    fd = length ? socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0)
        return 0;
    if (connect(fd, (struct sockaddr *)&sa, length) || send(fd, "", 1, 0) < 0 ||
        /* The refusal of the first is reported to the second. */
        send(fd, "", 1, 0) < 0)
        result = errno;
    close(fd);
    return result;
}

/* The output of a program; "" when it cannot be run or fails. To be freed. */
static char *output_of(char *const *words)
{
    char *text = calloc(1, RULES_BYTES);
    posix_spawn_file_actions_t actions;
    int pipes[2], status = -1;
    size_t used = 0;
    ssize_t n;
    pid_t pid;

    if (!text || pipe2(pipes, O_CLOEXEC)) {
        free(text);
        return NULL;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&pid, words[0], &actions, NULL, words, environ))
        pid = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    while (pid > 0 && used + 1 < RULES_BYTES &&
           (n = read(pipes[0], text + used, RULES_BYTES - 1 - used)) > 0)
        used += (size_t)n;
    close(pipes[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        used = 0;
    text[used] = '\0';
    return text;
}

/* Is it in the line, as a word? */
static bool has_word(const char *line, const char *word)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-";
    size_t n = strlen(word);

    for (const char *p = line; (p = strstr(p, word)); p += n)
        if ((p == line || !strchr(letters, p[-1])) && (!p[n] || !strchr(letters, p[n])))
            return true;
    return false;
}

/* Not the number of something else, and not a port of TCP alone. */
static bool names_port(const char *line)
{
    const char *found = line;

    while ((found = strstr(found, PORT_TEXT))) {
        bool begins = found == line || !isdigit((unsigned char)found[-1]);
        found += strlen(PORT_TEXT);
        if (begins && !isdigit((unsigned char)*found))
            return !has_word(line, "tcp") || has_word(line, "udp");
    }
    return false;
}

static bool says_drop(const char *line)
{
    return has_word(line, "drop") || has_word(line, "reject") || has_word(line, "DROP") ||
           has_word(line, "REJECT");
}

/* What is known after some lines of rules. */
struct rules {
    enum { OTHER, INPUT, ELSEWHERE } chain; /* nft: of the line; ELSEWHERE: forward, output */
    bool drops;                             /* incoming packets, or some of them */
    bool jumps;                             /* incoming packets go to other chains */
    bool others_drop;                       /* which drop some */
    char named[200];                        /* the rule about our port */
};

static void read_line(struct rules *r, const char *line)
{
    bool forward = strstr(line, "hook forward") || strstr(line, "hook output") ||
                   strstr(line, "-A FORWARD") || strstr(line, "-A OUTPUT");
    bool input = strstr(line, "hook input") || strstr(line, "-A INPUT");

    if (strstr(line, "chain "))
        r->chain = OTHER;
    if (strstr(line, "hook "))
        r->chain = input ? INPUT : ELSEWHERE;
    r->drops |= strstr(line, ":INPUT DROP") != NULL;
    if (input || r->chain == INPUT) {
        r->drops |= says_drop(line);
        r->jumps |= has_word(line, "jump") || has_word(line, "goto") ||
                    (strstr(line, " -j ") && !strstr(line, "-j ACCEPT"));
    } else if (!forward && r->chain == OTHER && line[0] != ':') {
        r->others_drop |= says_drop(line);
    }
    if (names_port(line) && !r->named[0])
        snprintf(r->named, sizeof r->named, "%s", line + strspn(line, " \t"));
}

enum finding_state firewall_judge(const char *rules, char *text, size_t bytes)
{
    struct rules r = {0};
    char line[1024];

    for (const char *p = rules; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
        read_line(&r, line);
    }
    if (r.named[0]) {
        snprintf(text, bytes, "the packet filter says of UDP port 4791: %s", r.named);
        return says_drop(r.named) ? FINDING_PROBLEM : FINDING_OK;
    }
    if (r.drops || (r.jumps && r.others_drop)) {
        snprintf(text, bytes,
                 "this host's packet filter drops packets, and no rule names UDP port 4791");
        return FINDING_ADVICE;
    }
    snprintf(text, bytes, "no rule of this host's packet filter drops what comes in");
    return FINDING_OK;
}

static enum finding_state read_rules(char *text, size_t bytes)
{
    static char *const nft[] = {"nft", "list", "ruleset", NULL};
    static char *const iptables[] = {"iptables-save", NULL};
    char *rules = output_of(nft);
    enum finding_state state;

    if (!rules || !rules[0]) {
        free(rules);
        rules = output_of(iptables);
    }
    if (!rules || !rules[0]) {
        free(rules);
        snprintf(text, bytes,
                 "this host has a packet filter, whose rules cannot be read (root, and nft or "
                 "iptables): make sure that UDP port 4791 passes");
        return FINDING_ADVICE;
    }
    state = firewall_judge(rules, text, bytes);
    free(rules);
    return state;
}

enum finding_state firewall_look(const struct report *r, char *text, size_t bytes)
{
    bool filter = false;
    int error = 0;

    for (int i = 0; i < r->system.module_count; i++)
        filter |= r->system.modules[i].state == MODULE_THERE &&
                  !strcmp(r->system.modules[i].purpose, "packet filter");
    for (int i = 0; i < r->network.interface_count; i++)
        if (r->network.interfaces[i].chosen)
            error = send_one(&r->network.interfaces[i].at.address);
    if (error) {
        snprintf(text, bytes, "a datagram to UDP port 4791 of this host: %s", strerror(error));
        return FINDING_PROBLEM;
    }
    if (filter)
        return read_rules(text, bytes);
    snprintf(text, bytes, "this host has no packet filter");
    return FINDING_OK;
}
