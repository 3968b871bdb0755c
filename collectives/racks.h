/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Topology files: which host stands in which rack. A line is a rack, its name, a colon, and its
 * hosts, by name or as patterns of fnmatch(3):
 *
 *   # what shares a switch
 *   a1: node01 node02 node0[3-8]
 *   a2: node1*
 *
 * Each rank looks up its own host, by the name of gethostname(), and tells the others; so files may
 * differ from host to host, and all have the same picture. A host that no line names has a rack of
 * its own.
 */
#ifndef SPR_COLLECTIVES_RACKS_H
#define SPR_COLLECTIVES_RACKS_H

#include <stdint.h>

#include <sparring/status.h>

#include "base/error.h"

/* The rack of a host, as a number that is the same wherever its name is; 0: it has none. INVALID: a
 * line that says something else, or a host in two racks; SYSTEM: the file cannot be read. */
spr_status spr_rack_find(const char *path, const char *host, uint64_t *rack,
                         struct spr_error *error);

#endif
