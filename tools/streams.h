/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The standard streams of a tool, at its begin and at its end.
 */
#ifndef SPR_TOOLS_STREAMS_H
#define SPR_TOOLS_STREAMS_H

/* First of all: a file that is opened later must not become a standard stream that the caller has
 * closed. What is written to such a stream still fails. */
void streams_open(void);
/* Last of all: the exit code, which is 1 instead of 0 if not all of standard output could be
 * written; then a line says why. */
int streams_close(const char *tool, int code);

#endif
