/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The right to make network namespaces.
 */
#ifndef TOOLS_RUN_PRIVILEGE_H
#define TOOLS_RUN_PRIVILEGE_H

#include <stdbool.h>

/* Makes sure that this process may make and set up namespaces: as it is, or as root of a user
 * namespace of its own that has only this user. It is in a new network namespace afterwards.
 * False after one line that says what is needed. */
bool privilege_get(void);

#endif
