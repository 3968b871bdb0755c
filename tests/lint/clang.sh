#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# clang's warnings, with the flags of configure. They come from its front end, so nothing is compiled.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need clang clang

# shellcheck disable=SC2016
lint_files 'base/*.c' 'compress/*.c' 'transport/*.c' 'collectives/*.c' 'tools/*.c' 'examples/*.c' 'bench/*.c' \
    'tests/*.c' |
    xargs -r -n 1 -P "$(nproc)" bash -c '
        flags=(-std=gnu11 -include base/prefix.h -I "$builddir" -I "$builddir/include" -I include -I .)
        read -r -a simd < <(simd_flags "$1")
        case $1 in
        *_neon.c) [ "$(uname -m)" = aarch64 ] || exit 0 ;;
        bench/peer_mpi.c) exit 0 ;; # mpicc has its flags
        esac
        read -r -a more <<<"${LINT_CPPFLAGS:-} ${LINT_WARNINGS:--Wall -Wextra}"
        clang -fsyntax-only "${flags[@]}" "${simd[@]}" "${more[@]}" "$1" 2>&1 || true' bash |
    sed -nE "s,^$PWD/,,; s/^([^ :]+:[0-9]+):[0-9]+: (warning|error|fatal error):/\1:/p" | sort -u >"$findings"
lint_end "$findings"
