#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Files for AVX have no instruction of SSE, which takes 135 ns where the upper halves of registers are in use
# (Emerald Rapids). Compilers write none; assembly of ours did.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
if [ "$(uname -m)" != x86_64 ]; then
    echo "vex.sh: skipped, this is not an x86-64" >&2
    exit 77
fi

# The line of the source is that of the last .loc before the instruction.
# shellcheck disable=SC2016
lint_files 'compress/*_avx2.c' 'compress/*_avx512.c' |
    xargs -r -n 1 -P "$(nproc)" bash -o pipefail -c '
        flags=(-std=gnu11 -include base/prefix.h -I "$builddir" -I "$builddir/include" -I include -I .)
        flags+=(-O2 -g1 -mavx2 -mf16c -mbmi2)
        case $1 in
        *_avx512.c) flags+=(-mavx512f -mavx512bw -mavx512dq -mavx512vl) ;;
        esac
        ${CC:-cc} "${flags[@]}" -S -o - "$1" | awk -v file="$1" "
            \$1 == \".loc\" { line = \$3 }
            /%[xyz]mm/ && \$1 !~ /^[vk.#]/ { print file \":\" line \": \" \$1 \" is an instruction of SSE\" }"' bash |
    sort -u >"$findings"
lint_end "$findings"
