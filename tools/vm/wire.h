/* SPDX-License-Identifier: BSD-2-Clause
 *
 * What sparring-vm and the agent in a guest say to each other over one virtio port: frames
 *
 *     0        4      5      6        8
 *     | length | kind | zero | number | length bytes ... |
 *
 * little-endian; number is that of the session, chosen by the host, in which one program runs.
 * tools/vm/port.py is the other end.
 */
#ifndef SPR_TOOLS_VM_WIRE_H
#define SPR_TOOLS_VM_WIRE_H

#include <stdint.h>

struct vm_frame {
    uint32_t length;
    uint8_t kind;
    uint8_t zero;
    uint16_t number;
};

enum {
    VM_FRAME_MOST = 8 << 20, /* bytes in a frame */
    VM_SESSIONS_MOST = 256
};

enum vm_kind {
    /* From the host. */
    VM_START = 1, /* u8 has a terminal, u16 rows, u16 columns, then strings, each with its NUL:
                     folder, number of words, words, environment */
    VM_INPUT,     /* bytes for its standard input, 64 KiB at most not taken */
    VM_INPUT_END, /* no more */
    VM_SIGNAL,    /* u8, for the process group of the program */
    VM_WINDOW,    /* u16 rows, u16 columns of its terminal */
    VM_GONE,      /* nobody listens any more: the end of its input, and SIGHUP */
    VM_ASK,       /* of no session: VM_ANSWER is wanted */

    /* From the guest. */
    VM_READY = 65, /* once */
    VM_OUTPUT,     /* of its standard output, or its terminal */
    VM_ERROR,      /* of its standard error */
    VM_TAKEN,      /* u32 bytes of input have been handed over */
    VM_ENDED,      /* u32 exit code, 128 + signal; the last frame of a session */
    VM_CONTROL,    /* a line that was written into the control pipe */
    VM_ANSWER,     /* to VM_ASK */
};

#endif
