#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# clang's warnings, with the flags of configure. They come from its front end, so nothing is compiled.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need clang clang

# mpicc has its flags for one of them.
read -r -a warnings <<<"${LINT_WARNINGS:--Wall -Wextra}"
lint_files 'base/*.c' 'compress/*.c' 'transport/*.c' 'collectives/*.c' 'tools/*.c' 'examples/*.c' 'bench/*.c' \
    'tests/*.c' | grep -vx bench/peer_mpi.c |
    lint_compiler '' clang -fsyntax-only "${warnings[@]}" >"$findings"
lint_end "$findings"
