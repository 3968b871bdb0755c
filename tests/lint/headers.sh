#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Every header compiles alone: public ones as strict C11 and as C++17, internal ones as the library is compiled.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
cc=${CC:-cc}
cxx=${INSTALLCHECK_CXX:-c++}

try() {
    local header=$1
    shift
    # Twice: include guards work too.
    printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
        "$@" -fsyntax-only -Wall -Wextra -Werror -I "$builddir/include" -I include - 2>&1 |
        grep -E ': (fatal )?error:' | head -n 3 || true
}
for header in include/sparring/*.h; do
    try "$header" "$cc" -x c -std=c11 -pedantic -I .
    ! command -v "$cxx" >/dev/null || try "$header" "$cxx" -x c++ -std=c++17 -pedantic -I .
    grep -nE '^\s*#\s*include' "$header" | grep -vE '<(sparring/[a-z_]+|std[a-z]+)\.h>' |
        sed "s,^\([0-9]*\):.*,$header:\1: public headers include standard headers and their siblings only," || true
done >"$findings"
internal() {
    local header simd cppflags
    read -r -a cppflags <<<"${LINT_CPPFLAGS:-}"
    for header; do
        read -r -a simd < <(simd_flags "$header")
        case $header in
        *_neon.h) [ "$(uname -m)" = aarch64 ] || continue ;;
        esac
        try "$header" "$cc" -x c -std=gnu11 "${simd[@]}" -include config.h -I "$builddir" -I . "${cppflags[@]}"
    done
}
export -f internal try
export cc
lint_files '*.h' | grep -vE '^(include/sparring|examples)/|^base/prefix' |
    xargs -r -n 16 -P "$(nproc)" bash -c 'internal "$@"' headers >>"$findings"
lint_end "$findings"
