#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# cppcheck: warnings, performance and portability.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need cppcheck cppcheck

lint_files 'base/*.c' 'compress/*.c' 'transport/*.c' 'collectives/*.c' 'tools/*.c' 'examples/*.c' |
    cppcheck --quiet -j "$(nproc)" --std=c11 --enable=warning,performance,portability --inline-suppr \
        --suppressions-list=tests/lint/cppcheck.suppress --template='{file}:{line}: {message} [{id}]' \
        -D__linux__ -D__x86_64__ -D_GNU_SOURCE -DHAVE_X86=1 -DHAVE_URING=1 -DHAVE_PMIX=1 \
        -I . -I include -I "$builddir/include" --file-list=- >"$findings" 2>&1 || true
lint_end "$findings"
