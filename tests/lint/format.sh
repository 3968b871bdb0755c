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
lint_files '*.c' '*.h' | while read -r file; do
    clang-format --style=file "$file" | diff "$file" - | grep -E '^[0-9]' | sed -E 's/^([0-9]+).*/\1/' |
        sed "s,.*,$file:&: not laid out as in .clang-format (make format)," || true
done >"$findings"
lint_end "$findings"
