#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# clang-tidy with the checks of .clang-tidy.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need clang-tidy clang-tidy

# shellcheck disable=SC2016
lint_files 'base/*.c' 'compress/*.c' 'transport/*.c' 'collectives/*.c' 'tools/*.c' 'examples/*.c' |
    xargs -r -n 1 -P "$(nproc)" bash -c '
        flags=(-std=gnu11 -include base/prefix.h -I "$builddir" -I "$builddir/include" -I include -I .)
        read -r -a simd < <(simd_flags "$1")
        case $1 in
        *_neon.c) [ "$(uname -m)" = aarch64 ] || exit 0 ;;
        esac
        read -r -a more <<<"${LINT_CPPFLAGS:-}"
        clang-tidy --quiet "$1" -- "${flags[@]}" "${simd[@]}" "${more[@]}" 2>/dev/null || true' bash |
    sed -nE "s,^$PWD/,,; s/^([^ :]+:[0-9]+):[0-9]+: (warning|error):/\1:/p" | sort -u >"$findings"
lint_end "$findings"
