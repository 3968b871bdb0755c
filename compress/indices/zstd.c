/* SPDX-License-Identifier: BSD-2-Clause */
#include "compress/indices/zstd.h"

#include "compress/indices/coder.h"

#ifdef HAVE_ZSTD
#include <stdlib.h>

#include <zstd.h>

#include "base/mem.h"

struct spr_index_zstd {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
    size_t room; /* of plain */
    uint8_t plain[];
};

spr_status spr_index_zstd_create(size_t bytes, struct spr_index_zstd **z)
{
    struct spr_index_zstd *made = spr_malloc(sizeof(*made) + bytes);

    if (!made)
        return SPR_ERR_NOMEM;
    made->room = bytes;
    made->compress = ZSTD_createCCtx();
    made->decompress = ZSTD_createDCtx();
    if (!made->compress || !made->decompress) {
        spr_index_zstd_free(made);
        return SPR_ERR_NOMEM;
    }
    *z = made;
    return SPR_OK;
}

void spr_index_zstd_free(struct spr_index_zstd *z)
{
    if (!z)
        return;
    ZSTD_freeCCtx(z->compress);
    ZSTD_freeDCtx(z->decompress);
    spr_free(z);
}

size_t spr_index_zstd_encode(struct spr_index_zstd *z, int level, const void *bytes, size_t size,
                             void *out)
{
    const uint8_t *from = bytes;
    uint8_t *to = out;

    if (size < 3)
        return 0;
    size_t n = ZSTD_compressCCtx(z->compress, to + 1, size - 2, from + 1, size - 1, level);
    if (ZSTD_isError(n)) /* no room: it does not get shorter */
        return 0;
    to[0] = (uint8_t)(from[0] | SPR_INDEX_ZSTD);
    return n + 1;
}

static const char *check(const struct spr_index_zstd *z, const uint8_t *bytes, size_t size,
                         uint64_t universe, size_t count, size_t *content)
{
    if (!spr_index_is_zstd(bytes, size) || (bytes[0] & ~SPR_INDEX_ZSTD) >= SPR_INDEX_IDS)
        return "zstd of indices: unknown coder";
    if (count == 0 || count > universe)
        return "zstd of indices: of none, or of more than there are positions";
    /* libzstd would also take frames of its early versions, and frames to be skipped. */
    static const uint8_t magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    if (size < 1 + sizeof(magic) || memcmp(bytes + 1, magic, sizeof(magic)) != 0)
        return "zstd of indices: no frame";
    if (ZSTD_findFrameCompressedSize(bytes + 1, size - 1) != size - 1)
        return "zstd of indices: not one whole frame";
    unsigned long long n = ZSTD_getFrameContentSize(bytes + 1, size - 1);
    if (n == ZSTD_CONTENTSIZE_UNKNOWN || n == ZSTD_CONTENTSIZE_ERROR)
        return "zstd of indices: no content size";
    const struct spr_index_coder *coder = spr_index_coder_at(bytes[0] & ~SPR_INDEX_ZSTD);
    if (n >= z->room || n > coder->bound(universe, count))
        return "zstd of indices: more content than there can be";
    *content = (size_t)n;
    return NULL;
}

spr_status spr_index_zstd_decode(struct spr_index_zstd *z, const void *bytes, size_t size,
                                 uint64_t universe, size_t count, const void **plain,
                                 size_t *plain_size, const char **why)
{
    const uint8_t *from = bytes;
    size_t content = 0;
    const char *reason = check(z, from, size, universe, count, &content);

    if (!reason &&
        ZSTD_decompressDCtx(z->decompress, z->plain + 1, content, from + 1, size - 1) != content)
        reason = "zstd of indices: damaged";
    if (reason) {
        *why = reason;
        return SPR_ERR_PROTO;
    }
    z->plain[0] = (uint8_t)(from[0] & ~SPR_INDEX_ZSTD);
    *plain = z->plain;
    *plain_size = content + 1;
    return SPR_OK;
}

#else

spr_status spr_index_zstd_create(size_t bytes, struct spr_index_zstd **z)
{
    (void)bytes;
    (void)z;
    return SPR_ERR_UNSUPPORTED;
}

void spr_index_zstd_free(struct spr_index_zstd *z) { (void)z; }

size_t spr_index_zstd_encode(struct spr_index_zstd *z, int level, const void *bytes, size_t size,
                             void *out)
{
    (void)z;
    (void)level;
    (void)bytes;
    (void)size;
    (void)out;
    return 0;
}

spr_status spr_index_zstd_decode(struct spr_index_zstd *z, const void *bytes, size_t size,
                                 uint64_t universe, size_t count, const void **plain,
                                 size_t *plain_size, const char **why)
{
    (void)z;
    (void)bytes;
    (void)size;
    (void)universe;
    (void)count;
    (void)plain;
    (void)plain_size;
    *why = "zstd of indices: not built in";
    return SPR_ERR_UNSUPPORTED;
}

#endif
