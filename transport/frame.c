/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/frame.h"

#include "base/crc32c.h"

static uint32_t header_crc(const struct spr_frame *f)
{
    return spr_crc32c(0, f, offsetof(struct spr_frame, header_crc));
}

void spr_frame_seal(struct spr_frame *f)
{
    f->magic = SPR_FRAME_MAGIC;
    f->version = SPR_FRAME_VERSION;
    f->zero = 0;
    f->header_crc = header_crc(f);
}

void spr_frame_seal_payload(struct spr_frame *f, const void *payload)
{
    f->flags |= SPR_FRAME_CRC;
    f->payload_crc = spr_crc32c_cold(0, payload, f->bytes);
    spr_frame_seal(f);
}

spr_status spr_frame_check(const struct spr_frame *f, const char **why)
{
    /* Strangers and other versions first, then damage, then what a correct header may not say. */
    if (f->magic != SPR_FRAME_MAGIC)
        *why = "not a frame (wrong magic)";
    else if (f->version != SPR_FRAME_VERSION)
        *why = "frame of another version";
    else if (f->header_crc != header_crc(f)) {
        *why = "frame header checksum does not match";
        return SPR_ERR_CORRUPT;
    } else if (f->type < SPR_FRAME_DATA || f->type >= SPR_FRAME_TYPES)
        *why = "frame of an unknown type";
    else if (f->flags & ~(SPR_FRAME_CRC | SPR_FRAME_PLACED))
        *why = "frame with unknown flags";
    else if (f->bytes > SPR_FRAME_MAX_PAYLOAD)
        *why = "frame payload too long";
    else if (f->zero || (f->payload_crc && !(f->flags & SPR_FRAME_CRC)))
        *why = "frame with a reserved field that is not zero";
    else
        return SPR_OK;
    return SPR_ERR_PROTO;
}
