#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Every source file is named in a makefile list (else a release archive lacks it), and every unit test is run. No
# program that make has made is among them.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

lint_files 'base/*' 'compress/*' 'transport/*' 'collectives/*' 'include/*' 'tools/*' 'tests/*' 'examples/*' 'man/*' \
    'bench/*' 'docs/*' 'python/*' |
    grep -vE '\.(mk|in)$|/\.gitignore$|^tests/fuzz/(corpus|dict)/' |
    # A program's default source is its name with .c, so the name alone is enough.
    awk 'NR == FNR { named[$0]; next }
        { program = $0; sub(/\.c$/, "", program) }
        !($0 in named) && !(program in named) { print $0 ":1: not in any list of Makefile.am or */local.mk" }
        { there[$0] }
        END { for (file in there) if (file ".c" in there) print file ":1: made from " file ".c: add it to .gitignore" }
    ' <(cat Makefile.am ./*/local.mk ./*/*/local.mk | tr -s '[:space:]' '\n') - >"$findings"
lint_end "$findings"
