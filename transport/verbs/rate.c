/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/verbs/rate.h"

#include "base/util.h"

double spr_verbs_gbit(const struct ibv_port_attr *port)
{
    static const double lane[] = {2.5, 5, 10, 10, 14.0625, 25.78125, 53.125, 106.25};
    static const int lanes[] = {1, 4, 8, 12, 2};
    double each = 0;
    int count = 0;

    for (size_t i = 0; i < SPR_ARRAY_LEN(lane); i++)
        if (port->active_speed == 1u << i)
            each = lane[i];
    for (size_t i = 0; i < SPR_ARRAY_LEN(lanes); i++)
        if (port->active_width == 1u << i)
            count = lanes[i];
    return each * count;
}
