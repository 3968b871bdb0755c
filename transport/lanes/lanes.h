/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Lanes: several TCP connections to each peer, over one interface or several, as one link.
 *
 *    sender                lane 0 (eth0)  lane 1 (eth1)   receiver
 *      frame 7, 256 KiB     ====>                           is read
 *      frame 8, 256 KiB                    ====>            waits in the kernel until 7 is read
 *      frame 9, 64 bytes     -->                            likewise
 *
 * Each lane is a transport of its own, epoll or io_uring, with its own listener on its own
 * interface. A frame goes whole, over the lane that would bring it soonest (send.c). Frames have a
 * number on their link (struct spr_frame), and are taken in that order: one whose turn has not come
 * stays in its socket, which is not read meanwhile, so nothing is copied, and what the peer may
 * have under way on a lane is what the kernel buffers. To let several payloads arrive at the same
 * time was measured: it is seldom faster (docs/tuning.md). A lane that fails takes the link with
 * it, after what others have brought (link.c).
 *
 * Ranks tell each other the addresses of all their lanes, one after the other, in the place of one.
 * As many are connected as both have: with a rank that has one, a plain transport, it is one.
 */
#ifndef SPR_TRANSPORT_LANES_LANES_H
#define SPR_TRANSPORT_LANES_LANES_H

#include "transport/transport.h"

#define SPR_LANES 4u /* most of a link */

/* Do the options ask for more than one? */
bool spr_lanes_wanted(const struct spr_options *options);

/* `ops` over several connections. */
extern const struct spr_transport_ops spr_lanes_epoll;
#ifdef HAVE_URING
extern const struct spr_transport_ops spr_lanes_uring;
#endif

#endif
