#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# bench/compare as its users see it: options, rows of peers that are missing, fail, lie or hang, nothing left behind.
# shellcheck source=tests/cli/tool.sh
. "$(dirname "$0")/tool.sh"
export TMPDIR=$folder
tool=("$top_srcdir/bench/compare" --build "$top_builddir")

run --help
expect_code 0
expect out '--only NAME'
expect out '^  openmpi-ring$'

refused 2 '--frobnicate' --frobnicate
refused 2 '--hosts: a whole number from 2 on' --hosts 1
refused 2 "--rate: a rate such as .* not 'fast'" --rate fast
refused 2 '--rate: a rate such as' --rate 0gbit
refused 2 '--elements: a whole number from 1 on' --elements 0
refused 2 "--only: no row 'nonsense'; there is: " --only dense,nonsense
refused 2 'dense' dense

# Without an RDMA device bench/verbs says where there is one.
if [ ! -d /sys/class/infiniband ]; then
    "$top_srcdir/bench/verbs" --ranks 2 >"$folder/out" 2>"$folder/err"
    code=$?
    expect_code 1
    expect err '^verbs: this host has no RDMA device; tools/sparring-vm '
    [ "$(wc -l <"$folder/err")" -eq 1 ] || fail "not one line on standard error"
fi
"$top_srcdir/bench/verbs" --ranks two >"$folder/out" 2>"$folder/err"
code=$?
expect_code 2

small=(--quick --hosts 2 --elements 5000)

# Without its libraries a peer is a row that says what to do; the run goes on, and no network is needed.
run "${small[@]}" --only gloo,openmpi-ring --python /nonexistent/python3 --mpirun /nonexistent/mpirun \
    --json "$folder/json"
expect_code 0
expect out '^  gloo .*/nonexistent/python3: No such file.*tools/setup --bench$'
expect out '^  openmpi-ring .*tools/setup --bench$'
python3 -c 'import json, sys
data = json.load(open(sys.argv[1]))
assert data["schema"] == 1 and len(data["rows"]) == 2 and all(row["error"] for row in data["rows"])
assert all(goal["yes"] is None for goal in data["goals"])' "$folder/json" || fail "the JSON"

# What the report says of made-up times: losing is said, wrong results are no reference, goals are judged by pairs.
python3 -B - "$top_srcdir/bench" >"$folder/out" 2>"$folder/err" <<'END' || fail "the report"
import sys, types
sys.path.insert(0, sys.argv[1])
import plan, report
from peers import Sample

def row(name, part, kind, times, wrong=0):
    samples = [Sample(us, us, us, 1, wrong=wrong, relerr=0.5) for us in times]
    return plan.Row(name, name, part, types.SimpleNamespace(kind=kind), len(times), samples)

rows = [row("gloo", "network", "gloo", [100, 200, 300]), row("dense", "network", "sparring", [101, 220, 270]),
        row("openmpi-ring", "network", "openmpi", [1], wrong=3), row("sparse-1", "network", "sparring", [25]),
        row("sparse-10", "network", "sparring", [250]), row("compressed-1", "network", "sparring", [50]),
        row("local-shm", "local", "sparring", [50]), row("local-openmpi-shm", "local", "openmpi", [60])]
assert report.best(rows[:6]).name == "gloo"
assert plan.pair_ratio(rows[1], rows[0])[0] == 1.01
answers = [(goal["yes"], goal["reached"]) for goal in report.goals(rows)]
assert answers == [(True, 1.01), (None, None), (None, None), (None, None), (True, 8), (False, 0.8), (False, 4),
                   (False, 1.2), (None, None), (None, None), (None, None)], answers
report.print_rows(rows[:6], "made up", 1, "us")

# Every second round goes backwards, so that drift hits both of a pair.
names = [[row.name for row in plan.in_turn(rows[:5], number)] for number in range(3)]
assert names == [["gloo", "dense", "openmpi-ring", "sparse-1", "sparse-10"], ["dense", "gloo"], ["gloo", "dense"]]
END
expect out '^  sparse-10 .* 0\.80 .*LOSES to dense gloo'
expect out '^  sparse-1  .* 8\.00 '
expect out '^  compressed-1 .* 4\.00 .*LOSSY'
! grep '^  sparse-1  .*LOSES' "$folder/out" || fail "sparse-1 does not lose"

if ! "$top_builddir/tools/sparring-run" -n 2 --emulate 1gbit -- true 2>/dev/null; then
    echo "no emulated network here: the rest is skipped"
    exit "$failed"
fi

run "${small[@]}" --only dense-ring-epoll,sparse-1,compressed,local-shm,gloo,openmpi-ring
expect_code 0
for row in gloo openmpi-ring; do # with the processor time, or with what is missing
    expect out "^  $row (( +[0-9.]+){7} +[0-9.]+ +0 |.*tools/setup --bench$)"
done
for row in dense-ring-epoll sparse-1 compressed-1; do
    expect out "^  $row( +[0-9.]+){7} +[-0-9.]+ +0 "
done
expect out '^  compressed-1 .*LOSSY'
expect out '^  local-shm( +[0-9.]+){5}( +-){3} +0 '

# What takes python3's place with torch. Its search for torch succeeds.
cat >"$folder/python" <<'END'
#!/bin/sh
[ "$1" != -c ] || exit 0
case $(cat "$FAKE") in
    hangs) echo $$ >"$FAKE.$RANK" && exec sleep 1000 ;;
    fails) echo "the reason" >&2 && exit 3 ;;
    babbles) echo "no JSON" && exec sleep 1000 ;;
    lies) echo '{"times_us": [1], "wrong": 7, "sent_bytes": 1, "recv_bytes": 1, "version": "0"}' && cat ;;
esac
END
chmod +x "$folder/python"
export FAKE=$folder/fake
gloo=("${small[@]}" --only gloo --python "$folder/python")

# gone FILE...: the processes whose numbers are in there have ended, or do so soon.
gone() {
    local file try
    for file; do
        for ((try = 0; try < 200; try++)); do
            [ -d "/proc/$(<"$file")" ] || continue 2
            sleep 0.1
        done
        fail "process $(<"$file") was left behind"
    done
}

echo hangs >"$FAKE"
run "${gloo[@]}" --timeout 2
expect_code 0
expect out '^  gloo .*no answer within 2 s$'
gone "$FAKE.0" "$FAKE.1"

echo fails >"$FAKE"
run "${gloo[@]}"
expect_code 0
expect out '^  gloo .*exit code 3: the reason$'

echo babbles >"$FAKE"
run "${gloo[@]}"
expect_code 0
expect out "^  gloo .*makes no sense: 'no JSON"

echo lies >"$FAKE"
run "${gloo[@]}" --timeout 20
expect_code 1
expect out '^  gloo .*WRONG: [0-9]+ elements'

# Killed without a chance to clear up.
echo hangs >"$FAKE"
rm -f "$FAKE".[01]
"${tool[@]}" "${gloo[@]}" >"$folder/out" 2>"$folder/err" </dev/null &
compare=$!
for ((try = 0; try < 300; try++)); do
    [ ! -s "$FAKE.0" ] || [ ! -s "$FAKE.1" ] || break
    sleep 0.1
done
kill -KILL "$compare"
wait "$compare" 2>/dev/null
gone "$FAKE.0" "$FAKE.1"

exit "$failed"
