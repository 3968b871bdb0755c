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

# Where it is: the last .loc before it, whose first number is that of a .file.
# shellcheck disable=SC2016
lint_files 'compress/*_avx2.c' 'compress/*_avx512.c' |
    xargs -r -n 1 -P "$(nproc)" bash -o pipefail -c '
        read -r -a simd < <(simd_flags "$1")
        ${CC:-cc} -std=gnu11 -O2 -g1 -include base/prefix.h -I "$builddir" -I "$builddir/include" -I include -I . \
            "${simd[@]}" -S -o - "$1" | awk "
            \$1 == \".file\" { n = split(\$0, quoted, \"\\\"\"); name[\$2] = quoted[n - 1] }
            \$1 == \".loc\" { where = name[\$2] \":\" \$3 }
            /%[xyz]mm/ && \$1 !~ /^[vk.#]/ { print where \": \" \$1 \" is an instruction of SSE\" }"' bash |
    sed 's,^\./,,' | sort -u >"$findings"
lint_end "$findings"
