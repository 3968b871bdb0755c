/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/verbs/gids.h"

#include <sys/types.h>

#include "base/mem.h"

size_t spr_verbs_gids(struct ibv_context *context, struct ibv_gid_entry **entries)
{
    struct ibv_device_attr device;
    size_t most = 1; /* an array that gets full is an error */
    ssize_t count;

    *entries = NULL;
    if (ibv_query_device(context, &device))
        return 0;
    for (uint8_t number = 1; number <= device.phys_port_cnt; number++) {
        struct ibv_port_attr port;
        if (!ibv_query_port(context, number, &port))
            most += (size_t)port.gid_tbl_len;
    }
    *entries = spr_calloc(most, sizeof **entries);
    count = *entries ? ibv_query_gid_table(context, *entries, most, 0) : 0;
    if (count <= 0) {
        spr_free(*entries);
        *entries = NULL;
        return 0;
    }
    return (size_t)count;
}
