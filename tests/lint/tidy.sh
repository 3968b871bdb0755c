#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# clang-tidy with the checks of .clang-tidy.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need clang-tidy clang-tidy

lint_files 'base/*.c' 'compress/*.c' 'transport/*.c' 'collectives/*.c' 'tools/*.c' 'examples/*.c' |
    lint_compiler -- clang-tidy --quiet >"$findings"
lint_end "$findings"
