/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What sparring-info's doctor reads from the rules of a packet filter about soft-RoCE's UDP port.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tools/info/firewall.h"

static void rules_are_read_as_they_work(void **state)
{
    static const struct {
        const char *name, *rules;
        enum finding_state want;
    } cases[] = {
        {"nothing", "", FINDING_OK},
        {"nft that accepts",
         "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy "
         "accept;\n\t}\n}\n",
         FINDING_OK},
        {"nft that drops by policy",
         "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy "
         "drop;\n\t\ttcp dport 22 accept\n\t}\n}\n",
         FINDING_ADVICE},
        {"nft that lets the port pass",
         "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy "
         "drop;\n\t\tudp dport 4791 accept\n\t}\n}\n",
         FINDING_OK},
        {"nft that drops the port",
         "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy "
         "accept;\n\t\tudp dport 4791 drop\n\t}\n}\n",
         FINDING_PROBLEM},
        {"nft that drops by policy, and has counted as many packets and more",
         "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy "
         "drop;\n\t\ttcp dport 22 counter packets 47910 bytes 24791 accept\n\t}\n}\n",
         FINDING_ADVICE},
        {"nft that lets the port of TCP pass",
         "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy "
         "drop;\n\t\ttcp dport 4791 accept\n\t}\n}\n",
         FINDING_ADVICE},
        {"nft that lets the port of both pass",
         "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy "
         "drop;\n\t\tmeta l4proto { tcp, udp } th dport 4791 accept\n\t}\n}\n",
         FINDING_OK},
        {"nft that drops what is forwarded, as docker does",
         "table ip filter {\n\tchain DOCKER {\n\t}\n\tchain FORWARD {\n\t\ttype filter hook "
         "forward "
         "priority filter; policy drop;\n\t\tcounter jump DOCKER\n\t\tcounter drop\n\t}\n}\n",
         FINDING_OK},
        {"nft whose input jumps to a chain that rejects, as firewalld does",
         "table inet firewalld {\n\tchain filter_INPUT {\n\t\ttype filter hook input priority "
         "filter + 10; policy accept;\n\t\tjump filter_INPUT_ZONES\n\t}\n\tchain "
         "filter_INPUT_ZONES {\n\t\treject with icmpx admin-prohibited\n\t}\n}\n",
         FINDING_ADVICE},
        {"iptables that accepts",
         "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n",
         FINDING_OK},
        {"iptables that drops by policy",
         "*filter\n:INPUT DROP [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n", FINDING_ADVICE},
        {"iptables that lets the port pass",
         "*filter\n:INPUT DROP [0:0]\n-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\nCOMMIT\n",
         FINDING_OK},
        {"iptables that rejects the port",
         "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p udp -m udp --dport 4791 -j REJECT\nCOMMIT\n",
         FINDING_PROBLEM},
        {"iptables whose input jumps to a chain that drops, as ufw does",
         "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j ufw-before-input\n-A ufw-before-input -m "
         "conntrack --ctstate INVALID -j DROP\nCOMMIT\n",
         FINDING_ADVICE},
        {"iptables whose input jumps to a chain that drops nothing",
         "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n-A INPUT -j LIBVIRT_INP\n-A "
         "LIBVIRT_INP -p udp -m udp --dport 53 -j ACCEPT\nCOMMIT\n",
         FINDING_OK},
        {"iptables that drops what is forwarded",
         "*filter\n:INPUT ACCEPT [0:0]\n-A FORWARD -j DROP\nCOMMIT\n", FINDING_OK},
    };
    char text[INFO_TEXT];

    (void)state;
    for (size_t i = 0; i < SPR_ARRAY_LEN(cases); i++) {
        enum finding_state found = firewall_judge(cases[i].rules, text, sizeof text);
        if (found != cases[i].want)
            fail_msg("%s: %d instead of %d: %s", cases[i].name, found, cases[i].want, text);
        assert_true(text[0] != '\0' && !strchr(text, '\n'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rules_are_read_as_they_work)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
