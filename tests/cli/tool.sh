# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: BSD-2-Clause
# Shared by the scripts that test a tool as its users see it. They set `tool`, and exit with `failed`.
set -uo pipefail
top_srcdir=${top_srcdir:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
if ! command -v python3 >/dev/null; then
    echo "skipped: no python3"
    exit 77
fi
folder=$(mktemp -d)
trap 'chmod -R u+rwx "$folder"; rm -rf "$folder"' EXIT
failed=0
tool=() # the program, and what each of its command lines begins with

# run OPTIONS...: sets code, and the files out and err.
run() {
    timeout 300 "${tool[@]}" "$@" </dev/null >"$folder/out" 2>"$folder/err"
    code=$?
    echo "${tool[0]##*/} $*: exit code $code"
}
fail() {
    echo "FAILED: $1"
    sed 's/^/    /' "$folder/out" "$folder/err" | head -n 60
    failed=1
}
expect_code() { [ "$code" -eq "$1" ] || fail "exit code $code, not $1"; }
# expect FILE PATTERN
expect() { grep -qE -e "$2" "$folder/$1" || fail "'$2' is not in std$1"; }
# refused CODE PATTERN OPTIONS...: one line on standard error, and nothing else.
refused() {
    local wanted=$1 pattern=$2
    shift 2
    run "$@"
    expect_code "$wanted"
    [ "$(wc -l <"$folder/err")" -eq 1 ] && [ ! -s "$folder/out" ] || fail "not one line on standard error"
    expect err "^${tool[0]##*/}: .*$pattern"
}
