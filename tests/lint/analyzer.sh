#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# gcc's static analyzer: paths to a leak, a NULL dereference, a use after free. Only the version that CI has: each finds
# other things, and is wrong about others.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need gcc gcc
if [ "$(gcc -dumpversion)" != 12 ]; then
    echo "$(basename "$0"): skipped, gcc is version $(gcc -dumpversion), not 12" >&2
    exit 77
fi

lint_files 'base/*.c' 'compress/*.c' 'transport/*.c' 'collectives/*.c' 'tools/*.c' 'examples/*.c' |
    lint_compiler '' gcc -fanalyzer -S -o /dev/null >"$findings"
lint_end "$findings"
