#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# sparring-tune as its users see it: a line that jobs choose by, in a file whose other lines stay.
# shellcheck source=tests/cli/tool.sh
. "$(dirname "$0")/tool.sh"
# by RANKS PROGRAM: what run starts.
by() { tool=("$top_builddir/tools/sparring-run" -n "$1" -- "$top_builddir/tools/$2"); }

printf '# of mine\nTIMEOUT=77\n  SPARRING_MODEL = latency=1\nMODEL=\nMODELS=9\nEAGER=8K' >"$folder/conf"
chmod 640 "$folder/conf"
by 3 sparring-tune
run --write "$folder/conf"
expect_code 0
expect out '^MODEL=latency=[0-9.e-]+,grant=.*,byte=.*,load=[0-9.e-]+(,(sparse_)?allreduce\.[a-z]+=-?[0-9.e-]+){9,}$'
[ "$(grep -c . "$folder/out")" -eq 1 ] || fail "not one line"
model=$(cat "$folder/out")
wanted=$(printf '# of mine\nTIMEOUT=77\nMODELS=9\nEAGER=8K\n%s' "$model")
[ "$(cat "$folder/conf")" = "$wanted" ] || fail "$(cat "$folder/conf")"
[ "$(stat -c %a "$folder/conf")" = 640 ] || fail "permissions $(stat -c %a "$folder/conf")"
[ "$(find "$folder" -name 'conf*' | wc -l)" -eq 1 ] || fail "something is left behind"

# A job reads it, and does not measure.
by 3 sparring-perf
export SPARRING_CONF_FILE=$folder/conf
run sparse_allreduce --elements 20000 --density 1%,50% --algo all -n 2 --explain
expect_code 0
expect out "^# model: ${model#MODEL=}\$"
expect out '^# sparse_allreduce direct: predicted [0-9.]+ us, measured [0-9.]+ \([+-][0-9]+ %\)$'
expect out '^# auto takes [a-z]+$'
unset SPARRING_CONF_FILE

# Every algorithm is called, with a model and without; the table is as ever.
for words in "sparse_allreduce --density 1%,60%" "allreduce" \
    "compressed_allreduce --codec topk:ratio=2% --buckets 2"; do
    for explain in "" --explain; do
        # shellcheck disable=SC2086 # words
        run $words --elements 20000 --algo auto --tune -n 2 $explain
        expect_code 0
        expect out ' fp32 .* auto .* 0 '
        [ -z "$explain" ] || expect out '^# .*predicted [0-9.]+ us, measured [0-9.]+ '
    done
done
run sparse_allreduce --elements 20000 --algo auto,all --tune -n 2 --json "$folder/json"
expect_code 0
python3 - "$folder/json" <<'END' || fail "tuned_us"
import json, math, sys
rows = json.load(open(sys.argv[1]))["rows"]
auto = next(row for row in rows if row["algorithm"] == "auto")
named = {row["algorithm"]: row["tuned_us"] for row in rows if row is not auto and row["tuned_us"] is not None}
assert named and all(us > 0 for us in named.values()), rows
assert named[auto["taken"]] == auto["tuned_us"] == min(named.values()), rows
END

# What one job has found, another takes as it is told, whatever it would take by itself.
run sparse_allreduce --elements 20000 --algo auto --tune -n 2
expect_code 0
trials=$(sed -n 's/^# TRIALS=//p' "$folder/out")
for name in ring server; do
    SPARRING_TRIALS=$(sed -E "s/=[a-z]+@/=$name@/" <<<"$trials") \
        run sparse_allreduce --elements 20000 --algo auto -n 2 --explain
    expect_code 0
    expect out "^# sparse_allreduce auto: $name: "
done

by 2 sparring-tune
run --write "$folder/new"
expect_code 0
[ "$(cat "$folder/new")" = "$(cat "$folder/out")" ] || fail "the new file"
run --write "$folder/nowhere/conf"
expect_code 1
expect err 'sparring-tune: rank 0: --write .*/nowhere/conf: No such file'
expect out '^MODEL='

# What is there may be wrong, and behind a link.
printf 'MODEL=garbage\n' >"$folder/wrong"
ln -s wrong "$folder/link"
SPARRING_CONF_FILE=$folder/link run --write "$folder/link"
expect_code 0
[ -L "$folder/link" ] || fail "the link was replaced"
[ "$(cat "$folder/wrong")" = "$(cat "$folder/out")" ] || fail "$(cat "$folder/wrong")"
by 2 sparring-perf
SPARRING_MODEL=garbage run allreduce -b 4 -e 4 -n 1
expect_code 2
expect err "sparring-perf: .*'garbage' is no constant of a model; sparring-tune prints one"

# Where there are several hosts of several ranks, and not every algorithm may be taken.
if "$top_builddir/tools/sparring-run" -n 2 --emulate 1gbit -- true 2>/dev/null; then
    tool=("$top_builddir/tools/sparring-run" -n 4 --ranks-per-host 2 --emulate 1gbit --
        "$top_builddir/tools/sparring-tune")
    for level in run canonical off; do
        SPARRING_DETERMINISM=$level run
        expect_code 0
        expect out '^MODEL=latency='
        # No sum is hierarchical that has to be canonical.
        [ "$level" != canonical ] || expect out ',copy=0,'
    done
else
    echo "skipped: several hosts, which cannot be emulated here"
fi

tool=("$top_builddir/tools/sparring-tune")
refused 2 'nothing to measure with one rank'
refused 2 'unknown option --wrong' --wrong
refused 2 'unknown option -x' -xy
refused 2 'a value is missing after --write' --write
refused 2 '--write wants the name of a file' --write ''
refused 2 'it takes options only' words
run --help
expect_code 0
expect out '--write FILE'
[ "$failed" -eq 0 ] && echo "all is well"
exit "$failed"
