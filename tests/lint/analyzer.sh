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

# shellcheck disable=SC2016
lint_files 'base/*.c' 'compress/*.c' 'transport/*.c' 'collectives/*.c' 'tools/*.c' 'examples/*.c' |
    xargs -r -n 1 -P "$(nproc)" bash -c '
        flags=(-std=gnu11 -include base/prefix.h -I "$builddir" -I "$builddir/include" -I include -I .)
        read -r -a simd < <(simd_flags "$1")
        case $1 in
        *_neon.c) [ "$(uname -m)" = aarch64 ] || exit 0 ;;
        esac
        read -r -a more <<<"${LINT_CPPFLAGS:-}"
        gcc -fanalyzer -S -o /dev/null "${flags[@]}" "${simd[@]}" "${more[@]}" "$1" 2>&1 || true' bash |
    sed -nE "s,^$PWD/,,; s/^([^ :]+:[0-9]+):[0-9]+: (warning|error|fatal error):/\1:/p" | sort -u >"$findings"
lint_end "$findings"
