/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SPR_TOOLS_CODEC_COMMANDS_H
#define SPR_TOOLS_CODEC_COMMANDS_H

#include "tools/codec/options.h"

/* The commands; each returns the exit code. */
int bench_run(const struct options *options);
int bench_lines(const struct options *options);
int compare_run(const struct options *options);
int try_run(const struct options *options);
int choose_run(const struct options *options);
int list_run(const struct options *options);

#endif
