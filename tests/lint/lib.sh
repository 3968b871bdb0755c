# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause
# Shared by the lint scripts: each prints one line per finding, `file:line: text`, and exits 1 when there is one.
set -euo pipefail
export LC_ALL=C
cd "${top_srcdir:-$(dirname "${BASH_SOURCE[0]}")/../..}"
export builddir=${top_builddir:-.}

# Tracked and new files that match the given git patterns; in a release archive there is no git: look at the tree.
lint_files() {
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@" | sort -u | while read -r file; do
            [ -e "$file" ] && printf '%s\n' "$file"
        done
    else
        local pattern
        for pattern in "$@"; do
            find . -name "${pattern##*/}" -type f -path "./${pattern%"${pattern##*/}"}*" \
                ! -path './build-*' ! -path './sparring-*' | sed 's,^\./,,'
        done | sort -u
    fi
}

# simd_flags FILE: what it is compiled with beyond other files (configure.ac).
simd_flags() {
    case $1 in
        *_avx2.[ch]) echo -mavx2 -mf16c -mbmi2 ;;
        *_avx512.[ch]) echo -mavx2 -mf16c -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl ;;
    esac
}

# lint_one SEPARATOR COMMAND... FILE: see lint_compiler.
lint_one() {
    local separator=$1 file=${!#} flags simd more output found status=0
    case $file in *_neon.c) [ "$(uname -m)" = aarch64 ] || return 0 ;; esac
    flags=(-std=gnu11 -include base/prefix.h -I "$builddir" -I "$builddir/include" -I include -I .)
    read -r -a simd < <(simd_flags "$file")
    read -r -a more <<<"${LINT_CPPFLAGS:-}"
    output=$("${@:2}" ${separator:+"$separator"} "${flags[@]}" "${simd[@]}" "${more[@]}" 2>&1) || status=$?
    found=$(sed -nE "s,^$PWD/,,; s/^([^ :]+:[0-9]+):[0-9]+: (warning|error|fatal error):/\1:/p" <<<"$output")
    [ "$status" -eq 0 ] || [ -n "$found" ] ||
        found="$file:1: exit code $status of $2: $(grep -m 1 -iE "(^|: )error" <<<"$output" || tail -n 1 <<<"$output")"
    [ -z "$found" ] || printf '%s\n' "$found"
}
export -f simd_flags lint_one

# lint_compiler SEPARATOR COMMAND...: what a compiler has to say of each file that is named on standard input. Behind
# the file it gets the flags of configure, after the separator if there is one. If it fails, that is a finding in any
# case.
lint_compiler() {
    # shellcheck disable=SC2016 # for the other bash
    xargs -r -n 1 -P "$(nproc)" bash -c 'lint_one "$@"' bash "$@" | sort -u
}

# lint_need TOOL PACKAGE: without the tool the check is skipped (77) and says so. CI has every tool.
lint_need() {
    command -v "$1" >/dev/null && return
    echo "$(basename "$0"): skipped, $1 is missing (Debian: $2)" >&2
    exit 77
}

# lint_end FINDINGS-FILE: prints the findings and ends the script.
lint_end() {
    cat "$1"
    [ ! -s "$1" ]
}

findings=$(mktemp)
trap 'rm -f "$findings"' EXIT
