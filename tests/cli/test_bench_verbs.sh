#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# bench/verbs without an RDMA device: its options, and jobs that take turns.
# shellcheck source=tests/cli/tool.sh
. "$(dirname "$0")/tool.sh"
export TMPDIR=$folder
tool=("$top_srcdir/bench/verbs")

run --ranks two
expect_code 2
expect err '--ranks: whole numbers with commas'
[ -d /sys/class/infiniband ] || refused 1 'this host has no RDMA device; tools/sparring-vm ' --ranks 2

cat >"$folder/turns.py" <<'EOF'
import importlib.machinery, importlib.util, sys, time, types

loader = importlib.machinery.SourceFileLoader("verbs", sys.argv[1])
verbs = importlib.util.module_from_spec(importlib.util.spec_from_loader("verbs", loader))
loader.exec_module(verbs)

class Shell:
    READY = "go"

    def __init__(self, script):
        self.script = script

    def command(self, options):
        return ["sh", "-c", self.script, f"{sys.argv[2]}/job"], {}

    def value(self, text):
        return float(text)

def measure(limit, *scripts):
    turns = verbs.Turns(*map(Shell, scripts))
    values = turns.measure(types.SimpleNamespace(limit=limit))
    return turns, [str(x) if isinstance(x, verbs.Failed) else x for x in values]

def working(value):
    return f"echo go >&2; i=0; while [ $i -lt 6 ]; do sleep 0.05; i=$((i + 1)); done; echo {value}"

verbs.unwind_on_signals()
if sys.argv[3:] == ["hang"]:
    measure(1000, "echo go >&2; sleep 1000", "echo go >&2; sleep 1000")
verbs.TURN_S = 0.1
assert measure(20, working(3), working(0))[1] == [3, 0]

# One that hangs, before it is ready or later, or that fails takes nothing from the other one, and is not started again.
for hanging, said in ("sleep 100", "sh took too long to start"), ("echo go >&2; sleep 100", "sh took too long"):
    turns, values = measure(1, hanging, working(7))
    assert values == [said, 7], values
    begin = time.monotonic()
    assert turns.measure(types.SimpleNamespace(limit=60))[1] == 7 and time.monotonic() - begin < 30
assert measure(20, "echo no >&2; exit 3", working(5))[1] == ["sh: no", 5]

# A wrong result is told as such, though sparring-perf fails after one.
class Wrong(verbs.Sparring):
    def command(self, options):
        return ["sh", "-c", "echo 'size(B)' >&2; echo '{\"rows\": [{\"wrong\": 7}]}'; exit 1"], {}

value, = verbs.Turns(Wrong(2, [])).measure(types.SimpleNamespace(limit=20))
assert str(value) == "7 wrong elements", value

# Turns grow with what is measured.
turns, values = measure(20, working(50000), working(20000))
assert values == [50000, 20000] and turns.turn_s == 5 * 0.05, turns.turn_s

# No two run at the same time once they are ready: each sees no line of the other one between two of its own in a turn.
marks = f"{sys.argv[2]}/marks"
marking = "echo go >&2; i=0; while [ $i -lt 20 ]; do echo %s >>" + marks + "; sleep 0.05; i=$((i + 1)); done; echo 1"
verbs.TURN_S = 0.3
assert measure(20, marking % "a", marking % "b")[1] == [1, 1]
with open(marks, encoding="utf-8") as file:
    order = "".join(file.read().split())
changes = sum(x != y for x, y in zip(order, order[1:]))
assert order.count("a") == order.count("b") == 20 and 2 <= changes <= 16, order
EOF
python3 "$folder/turns.py" "$top_srcdir/bench/verbs" "$folder" || fail "jobs that take turns"

# No job outlives it, stopped or not.
echo "$folder/job" >"$folder/name"
jobs_left() { grep -lsaFf "$folder/name" /proc/[0-9]*/cmdline; }
python3 "$folder/turns.py" "$top_srcdir/bench/verbs" "$folder" hang &
pid=$!
for _ in $(seq 100); do
    [ "$(jobs_left | wc -l)" -ge 2 ] && break
    sleep 0.1
done
[ "$(jobs_left | wc -l)" -ge 2 ] || fail "no two jobs were started"
kill -TERM "$pid"
wait "$pid"
code=$?
expect_code 1
! jobs_left >"$folder/out" || fail "a job outlives it"

exit "$failed"
