/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Bytes that wait for somebody to take them.
 */
#ifndef SPR_TOOLS_VM_BUFFER_H
#define SPR_TOOLS_VM_BUFFER_H

#include <stddef.h>

struct buffer {
    unsigned char *bytes;
    size_t start, end, room;
};

/* Space for size more bytes behind those that wait; the caller adds what it wrote to end. Never
 * NULL: the program ends when there is no memory. */
unsigned char *buffer_space(struct buffer *buffer, size_t size);

void buffer_add(struct buffer *buffer, const void *bytes, size_t size);

/* The first size bytes are done with. */
void buffer_take(struct buffer *buffer, size_t size);

void buffer_free(struct buffer *buffer);

static inline size_t buffer_size(const struct buffer *buffer)
{
    return buffer->end - buffer->start;
}

#endif
