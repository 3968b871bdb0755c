/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SPR_TOOLS_INFO_DOCTOR_H
#define SPR_TOOLS_INFO_DOCTOR_H

#include "tools/info/report.h"

/* A finding, and what to do about it. */
struct finding *doctor_add(struct findings *f, const char *check, enum finding_state state,
                           const char *format, ...) SPR_PRINTF(4, 5);
void doctor_remedy(struct finding *f, const char *format, ...) SPR_PRINTF(2, 3);
/* Does SPARRING_TRANSPORTS name it? */
bool doctor_asked(const struct spr_options *options, const char *transport);

/* doctor_rdma.c: modules, rights, ports, GIDs, MTU, registration, packet filter. */
void doctor_rdma(const struct report *r, const struct spr_options *options, struct findings *f);

#endif
