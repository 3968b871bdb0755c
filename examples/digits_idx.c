/* SPDX-License-Identifier: BSD-2-Clause
 *
 * MNIST's IDX files: a big-endian magic number, one 32-bit length per dimension, then bytes.
 */
#include "digits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    IMAGES_MAGIC = 0x00000803,
    LABELS_MAGIC = 0x00000801,
    IMAGES_HEADER = 16,
    LABELS_HEADER = 8
};

typedef struct idx_file {
    FILE *stream;
    char path[4096];
    uint32_t items;
} idx_file;

/* What went wrong, and where to say so. */
typedef struct complaint {
    char *text;
    size_t capacity;
} complaint;

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static int check_magic(const idx_file *file, const uint8_t *header, uint32_t magic, complaint why)
{
    uint32_t found = big_endian(header);
    if (found == magic)
        return 0;
    int gzip = header[0] == 0x1F && header[1] == 0x8B;
    snprintf(why.text, why.capacity, "%s: magic number 0x%08x, expected 0x%08x%s", file->path,
             found, magic, gzip ? " (compressed: gunzip it first)" : "");
    return -1;
}

/* The length of the file must be what its header says, to the byte. */
static int check_length(const idx_file *file, size_t header, size_t item_bytes, complaint why)
{
    struct stat status;
    unsigned long long expected = header + (unsigned long long)file->items * item_bytes;

    if (fstat(fileno(file->stream), &status)) {
        snprintf(why.text, why.capacity, "%s: %s", file->path, strerror(errno));
        return -1;
    }
    if ((unsigned long long)status.st_size != expected) {
        snprintf(why.text, why.capacity, "%s: %lld bytes, but its header says %u items: %llu bytes",
                 file->path, (long long)status.st_size, file->items, expected);
        return -1;
    }
    return 0;
}

/* Open a file and check its header of `bytes` bytes; the stream then stands at the first item. */
static int idx_open(idx_file *file, const char *directory, const char *prefix, const char *suffix,
                    size_t bytes, complaint why)
{
    uint8_t header[IMAGES_HEADER];
    int images = bytes == IMAGES_HEADER;

    snprintf(file->path, sizeof(file->path), "%s/%s-%s", directory, prefix, suffix);
    file->stream = fopen(file->path, "rb");
    if (!file->stream) {
        snprintf(why.text, why.capacity, "%s: %s", file->path, strerror(errno));
        return -1;
    }
    if (fread(header, 1, bytes, file->stream) != bytes) {
        snprintf(why.text, why.capacity, "%s: shorter than its header of %zu bytes", file->path,
                 bytes);
        return -1;
    }
    if (check_magic(file, header, images ? IMAGES_MAGIC : LABELS_MAGIC, why))
        return -1;
    file->items = big_endian(header + 4);
    if (images &&
        (big_endian(header + 8) != DIGITS_SIDE || big_endian(header + 12) != DIGITS_SIDE)) {
        snprintf(why.text, why.capacity, "%s: images of %u x %u pixels, expected 28 x 28",
                 file->path, big_endian(header + 8), big_endian(header + 12));
        return -1;
    }
    return check_length(file, bytes, images ? DIGITS_PIXELS : 1, why);
}

/* Read the next item, or pass over it when it belongs to another rank. */
static int read_item(idx_file *file, uint8_t *item, size_t bytes, int wanted, complaint why)
{
    int failed = wanted ? fread(item, 1, bytes, file->stream) != bytes
                        : fseek(file->stream, (long)bytes, SEEK_CUR) != 0;
    if (failed)
        snprintf(why.text, why.capacity, "%s: %s", file->path,
                 errno ? strerror(errno) : "cut short");
    return failed ? -1 : 0;
}

static int read_items(digits_set *set, const digits_shard *shard, idx_file *images,
                      idx_file *labels, complaint why)
{
    size_t done = 0;

    errno = 0;
    for (uint64_t i = 0; i < images->items && done < set->count; i++) {
        int wanted = i >= shard->first && (i - shard->first) % shard->stride == 0;
        uint8_t *label = &set->labels[done];
        if (read_item(images, set->pixels + done * DIGITS_PIXELS, DIGITS_PIXELS, wanted, why) ||
            read_item(labels, label, 1, wanted, why))
            return -1;
        if (wanted && *label >= DIGITS_CLASSES) {
            snprintf(why.text, why.capacity, "%s: label %llu is %u, expected 0 to 9", labels->path,
                     (unsigned long long)i, *label);
            return -1;
        }
        done += (size_t)wanted;
    }
    return 0;
}

static int read_pair(digits_set *set, const digits_shard *shard, idx_file *images, idx_file *labels,
                     complaint why)
{
    uint64_t items = images->items;
    size_t count = items > shard->first ? (items - shard->first - 1) / shard->stride + 1 : 0;

    if (images->items != labels->items) {
        snprintf(why.text, why.capacity, "%s: %u images, but %s: %u labels", images->path,
                 images->items, labels->path, labels->items);
        return -1;
    }
    if (digits_set_alloc(set, count < shard->count ? count : shard->count, why.text, why.capacity))
        return -1;
    if (read_items(set, shard, images, labels, why)) {
        digits_set_free(set);
        return -1;
    }
    return 0;
}

int digits_set_read(digits_set *set, const char *directory, const char *prefix,
                    const digits_shard *shard, char *error, size_t capacity)
{
    idx_file images = {0}, labels = {0};
    complaint why = {error, capacity};
    int failed = idx_open(&images, directory, prefix, "images-idx3-ubyte", IMAGES_HEADER, why) ||
                 idx_open(&labels, directory, prefix, "labels-idx1-ubyte", LABELS_HEADER, why) ||
                 read_pair(set, shard, &images, &labels, why);

    if (images.stream)
        fclose(images.stream);
    if (labels.stream)
        fclose(labels.stream);
    return failed ? -1 : 0;
}
