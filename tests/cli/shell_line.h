/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Runs shell lines in which $RUN is sparring-run, $VM sparring-vm, and $READY a file, empty at the
 * start.
 */
#ifndef TESTS_CLI_SHELL_LINE_H
#define TESTS_CLI_SHELL_LINE_H

#include <stdint.h>

/* Children, and a session of its own whose leader has gone. */
#define FAMILY "sleep 50 & (setsid sh -c \"trap : TERM HUP; sleep 50; sleep 50\" & )"

/* In a rank: it is as far as the line waits for. In the line: until n ranks are. */
#define SAY_READY "echo $$ >>$READY; "
#define AWAIT_READY(n) "until [ $(wc -l <$READY) -ge " #n " ]; do sleep 0.02; done; "

enum { TEXT_BYTES = 256 * 1024 };

/* What the last run() gave. */
struct result {
    int code; /* exit code of the line, as a shell has it */
    char output[TEXT_BYTES];
    char error[TEXT_BYTES];
    int64_t took_ms;
};
extern struct result result;

/* Once, before the first, and after the last. */
void shell_line_setup(void);
void shell_line_end(void);
/* Fails the test when a process of the line outlives it. */
void run(const char *line);
void assert_code(int code);
void assert_has(const char *text, const char *part);
/* How often a part is in a text. */
int count(const char *text, const char *part);

#endif
