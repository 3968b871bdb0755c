#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Layout of C files as in .clang-format; `make format` (format.sh --apply) puts it right.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need clang-format clang-format

if [ "${1-}" = --apply ]; then
    lint_files '*.c' '*.h' | xargs -r clang-format -i --style=file
    exit
fi
lint_files '*.c' '*.h' | xargs -r clang-format --dry-run --style=file 2>&1 |
    sed -nE 's,^(.*:[0-9]+):[0-9]+: warning: .*,\1: not laid out as in .clang-format (make format),p' >"$findings"
lint_end "$findings"
