/* SPDX-License-Identifier: BSD-2-Clause
 *
 * For decoders that open files by their names: a folder in memory, gone at the end of the process.
 */
#ifndef TESTS_FUZZ_FILES_H
#define TESTS_FUZZ_FILES_H

#include <stddef.h>

/* The folder. */
const char *fuzz_folder(void);
/* The file of that name gets these bytes. */
void fuzz_file(const char *name, const void *data, size_t bytes);

#endif
