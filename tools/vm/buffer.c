/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/vm/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned char *buffer_space(struct buffer *buffer, size_t size)
{
    if (buffer->room - buffer->end < size && buffer->start > 0) {
        buffer->end -= buffer->start;
        memmove(buffer->bytes, buffer->bytes + buffer->start, buffer->end);
        buffer->start = 0;
    }
    if (buffer->room - buffer->end < size) {
        size_t room = (buffer->end + size) * 2;
        unsigned char *bytes = realloc(buffer->bytes, room);

        if (bytes == NULL) {
            fputs("sparring-vm: no memory in the guest\n", stderr);
            exit(1);
        }
        buffer->bytes = bytes;
        buffer->room = room;
    }
    return buffer->bytes + buffer->end;
}

void buffer_add(struct buffer *buffer, const void *bytes, size_t size)
{
    if (size == 0)
        return;
    memcpy(buffer_space(buffer, size), bytes, size);
    buffer->end += size;
}

void buffer_take(struct buffer *buffer, size_t size)
{
    buffer->start += size;
    if (buffer->start == buffer->end)
        buffer->start = buffer->end = 0;
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct buffer){0};
}
