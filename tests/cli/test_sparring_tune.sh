#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# sparring-tune as its users see it: a line that jobs choose by, in a file whose other lines stay.
set -uo pipefail
top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
top_builddir=${top_builddir:-$top_srcdir}
tune=$top_builddir/tools/sparring-tune
launch=$top_builddir/tools/sparring-run
perf=$top_builddir/tools/sparring-perf
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# run COMMAND...: sets code, and the files out and err.
run() {
    timeout 120 "$@" </dev/null >"$folder/out" 2>"$folder/err"
    code=$?
    echo "$(basename "$1") ${*:2}: exit code $code"
}
fail() {
    echo "FAILED: $1"
    sed 's/^/    /' "$folder/out" "$folder/err" | head -n 40
    failed=1
}
expect_code() { [ "$code" -eq "$1" ] || fail "exit code $code, not $1"; }
# expect FILE PATTERN
expect() { grep -qE -e "$2" "$folder/$1" || fail "'$2' is not in $1"; }

printf '# of mine\nTIMEOUT=77\n  SPARRING_MODEL = latency=1\nMODEL=\nMODELS=9\nEAGER=8K' >"$folder/conf"
chmod 640 "$folder/conf"
run "$launch" -n 3 -- "$tune" --write "$folder/conf"
expect_code 0
expect out '^MODEL=latency=[0-9.e-]+,grant=.*,byte=.*,clear=[0-9.e-]+$'
[ "$(grep -c . "$folder/out")" -eq 1 ] || fail "not one line"
model=$(cat "$folder/out")
wanted=$(printf '# of mine\nTIMEOUT=77\nMODELS=9\nEAGER=8K\n%s' "$model")
[ "$(cat "$folder/conf")" = "$wanted" ] || fail "$(cat "$folder/conf")"
[ "$(stat -c %a "$folder/conf")" = 640 ] || fail "permissions $(stat -c %a "$folder/conf")"
[ "$(find "$folder" -name 'conf*' | wc -l)" -eq 1 ] || fail "something is left behind"

# A job reads it, and does not measure.
export SPARRING_CONF_FILE=$folder/conf
run "$launch" -n 3 -- "$perf" sparse_allreduce --elements 20000 --density 1%,50% --algo all -n 2 --explain
expect_code 0
expect out "^# model: ${model#MODEL=}\$"
expect out '^# sparse_allreduce direct: predicted [0-9.]+ us, measured [0-9.]+ \([+-][0-9]+ %\)$'
expect out '^# auto takes [a-z]+$'
unset SPARRING_CONF_FILE

run "$launch" -n 2 -- "$tune" --write "$folder/new"
expect_code 0
[ "$(cat "$folder/new")" = "$(cat "$folder/out")" ] || fail "the new file"
run "$launch" -n 2 -- "$tune" --write "$folder/nowhere/conf"
expect_code 1
expect err 'sparring-tune: rank 0: --write .*/nowhere/conf: No such file'
expect out '^MODEL='

run "$tune"
expect_code 2
expect err 'nothing to measure with one rank'
run "$tune" --wrong
expect_code 2
expect err 'unknown option --wrong'
run "$tune" --write
expect_code 2
expect err '^sparring-tune: --write wants a value'
run "$tune" words
expect_code 2
run "$tune" --help
expect_code 0
expect out '--write FILE'
# What is there may be wrong, and behind a link.
printf 'MODEL=garbage\n' >"$folder/wrong"
ln -s wrong "$folder/link"
SPARRING_CONF_FILE=$folder/link run "$launch" -n 2 -- "$tune" --write "$folder/link"
expect_code 0
[ -L "$folder/link" ] || fail "the link was replaced"
[ "$(cat "$folder/wrong")" = "$(cat "$folder/out")" ] || fail "$(cat "$folder/wrong")"
SPARRING_MODEL=garbage run "$launch" -n 2 -- "$perf" allreduce -b 4 -e 4 -n 1
expect_code 2
expect err "sparring-perf: .*'garbage' is no constant of a model; sparring-tune prints one"

exit "$failed"
