#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Every Python file compiles, without a warning. Found by their ending or their first line.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need python3 python3

{
    lint_files '*.py'
    lint_files 'bench/*' 'tools/*' 'python/*' | grep -vE '\.[a-z0-9]+$' | while read -r file; do
        ! head -n 1 "$file" | tr -d '\0' | grep -qE '^#!.*\bpython' || printf '%s\n' "$file"
    done
} | sort -u | xargs -r python3 -W error -c '
import sys
for name in sys.argv[1:]:
    try:
        with open(name, encoding="utf-8") as file:
            compile(file.read(), name, "exec")
    except (SyntaxError, ValueError) as error:
        print("%s:%s: %s" % (name, getattr(error, "lineno", 1), getattr(error, "msg", error)))' >"$findings"
lint_end "$findings"
