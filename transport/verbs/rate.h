/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Rate of a port of an RDMA device.
 */
#ifndef SPR_TRANSPORT_VERBS_RATE_H
#define SPR_TRANSPORT_VERBS_RATE_H

#include <infiniband/verbs.h>

/* Gbit/s of its active lanes; 0: not known. */
double spr_verbs_gbit(const struct ibv_port_attr *port);

#endif
