/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/zstd.h"

#include "compress/chunk_layout.h"

#ifdef HAVE_ZSTD
#include <string.h>

#include <zstd.h>

#include "base/mem.h"

struct spr_zstd {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
    int level;
};

_Bool spr_zstd_is_built_in(void) { return 1; }

spr_status spr_zstd_create(int level, struct spr_zstd **z)
{
    struct spr_zstd *made = spr_malloc(sizeof *made);

    if (!made)
        return SPR_ERR_NOMEM;
    made->level = level;
    made->compress = ZSTD_createCCtx();
    made->decompress = ZSTD_createDCtx();
    if (!made->compress || !made->decompress) {
        spr_zstd_free(made);
        return SPR_ERR_NOMEM;
    }
    *z = made;
    return SPR_OK;
}

void spr_zstd_free(struct spr_zstd *z)
{
    if (!z)
        return;
    ZSTD_freeCCtx(z->compress);
    ZSTD_freeDCtx(z->decompress);
    spr_free(z);
}

size_t spr_zstd_pack(struct spr_zstd *z, const void *chunk, size_t size, void *out)
{
    size_t head = SPR_CHUNK_HEADER_BYTES, n;
    uint8_t *to = out;

    if (size < head + 2)
        return 0;
    n = ZSTD_compressCCtx(z->compress, to + head, size - head - 1, (const char *)chunk + head,
                          size - head, z->level);
    if (ZSTD_isError(n)) /* no room: it does not get shorter */
        return 0;
    memcpy(to, chunk, head);
    to[0] |= SPR_CHUNK_ZSTD;
    return head + n;
}

/* Is this one frame of just so much content? NULL, or why not. */
static const char *check(const uint8_t *frame, size_t size, size_t content)
{
    /* libzstd would also take frames of its early versions, and frames to be skipped. */
    static const uint8_t magic[4] = {0x28, 0xb5, 0x2f, 0xfd};

    if (size < sizeof magic || memcmp(frame, magic, sizeof magic) != 0)
        return "zstd: no frame";
    if (ZSTD_findFrameCompressedSize(frame, size) != size)
        return "zstd: not one whole frame";
    if (ZSTD_getFrameContentSize(frame, size) != content)
        return "zstd: the content is not as long as the chunk says";
    return NULL;
}

spr_status spr_zstd_unpack(struct spr_zstd *z, const void *bytes, size_t size, void *out,
                           size_t room, size_t *plain, const char **why)
{
    size_t head = SPR_CHUNK_HEADER_BYTES;
    const uint8_t *frame = (const uint8_t *)bytes + head;
    struct spr_chunk_header h;
    uint8_t *to = out;

    *why = NULL;
    if (!spr_zstd_is(bytes, size)) {
        *why = "zstd: not a compressed chunk";
        return SPR_ERR_PROTO;
    }
    memcpy(&h, bytes, head);
    if (room < head || h.payload_bytes > room - head)
        *why = "zstd: more content than a chunk can have";
    else
        *why = check(frame, size - head, h.payload_bytes);
    if (!*why && ZSTD_decompressDCtx(z->decompress, to + head, h.payload_bytes, frame,
                                     size - head) != h.payload_bytes)
        *why = "zstd: damaged";
    if (*why)
        return SPR_ERR_PROTO;
    h.format &= (uint8_t)~SPR_CHUNK_ZSTD;
    memcpy(to, &h, head);
    *plain = head + h.payload_bytes;
    return SPR_OK;
}

#else

_Bool spr_zstd_is_built_in(void) { return 0; }

spr_status spr_zstd_create(int level, struct spr_zstd **z)
{
    (void)level;
    (void)z;
    return SPR_ERR_UNSUPPORTED;
}

void spr_zstd_free(struct spr_zstd *z) { (void)z; }

size_t spr_zstd_pack(struct spr_zstd *z, const void *chunk, size_t size, void *out)
{
    (void)z;
    (void)chunk;
    (void)size;
    (void)out;
    return 0;
}

spr_status spr_zstd_unpack(struct spr_zstd *z, const void *bytes, size_t size, void *out,
                           size_t room, size_t *plain, const char **why)
{
    (void)z;
    (void)bytes;
    (void)size;
    (void)out;
    (void)room;
    (void)plain;
    *why = "zstd: not built in";
    return SPR_ERR_UNSUPPORTED;
}

#endif
