/* SPDX-License-Identifier: BSD-2-Clause
 *
 * One program in the guest, in a session of its own, with pipes or a terminal.
 */
#ifndef SPR_TOOLS_VM_SESSION_H
#define SPR_TOOLS_VM_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/vm/buffer.h"

struct session {
    bool used;
    uint16_t number;
    pid_t pid;
    int in, out, err; /* our ends, not blocking, or -1; all input and output of a terminal is out */
    bool terminal;
    struct buffer input;
    bool input_ended;
};

/* Starts what the payload of a VM_START says. False when the payload makes no sense; a program that
 * cannot be run says so itself and ends with 126 or 127. */
bool session_start(struct session *session, uint16_t number, const unsigned char *payload,
                   size_t length);

/* Writes waiting input; returns the bytes that were taken. Closes the input at its end. */
size_t session_feed(struct session *session);

void session_window(const struct session *session, const unsigned char *payload, size_t length);

/* Closes all that is open and frees what waits. */
void session_close(struct session *session);

#endif
