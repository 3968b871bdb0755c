/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SPR_TOOLS_INFO_FIREWALL_H
#define SPR_TOOLS_INFO_FIREWALL_H

#include "tools/info/report.h"

/* Does a packet filter of this host drop RoCE v2 (UDP port 4791)? As far as it can be seen: the
 * rules only as root, and not those of other hosts. */
enum finding_state firewall_look(const struct report *r, char *text, size_t bytes);

/* The same of rules as nft and iptables-save print them. */
enum finding_state firewall_judge(const char *rules, char *text, size_t bytes);

#endif
