#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Every source file is named in a makefile list (else a release archive lacks it), and every unit test is run.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

lint_files 'base/*' 'compress/*' 'transport/*' 'collectives/*' 'include/*' 'tools/*' 'tests/*' 'examples/*' 'man/*' \
    'bench/*' 'docs/*' 'python/*' |
    grep -vE '\.(mk|in)$|/\.gitignore$|^tests/fuzz/(corpus|dict)/' | while read -r file; do
    # A program's default source is its name with .c, so the name alone is enough.
    grep -qE "(^|[[:space:]])${file//./\\.}([[:space:]]|\$)" Makefile.am ./*/local.mk ./*/*/local.mk ||
        { [ "${file%.c}" != "$file" ] &&
            grep -qE "(^|[[:space:]])${file%.c}([[:space:]]|\$)" Makefile.am ./*/local.mk ./*/*/local.mk; } ||
        echo "$file:1: not in any list of Makefile.am or */local.mk"
done >"$findings"
lint_end "$findings"
