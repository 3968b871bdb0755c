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
refused 2 '--cells: 2 to 64 hosts' --cells 1/1gbit/4K
refused 2 '--cells: a cell such as' --cells 2/1gbit
refused 2 '--densities: a density such as' --densities 1%,0
refused 2 '--from measures nothing: --quick has' --from old.json --quick
refused 2 '--from measures nothing: --hosts, --cells has' --from old.json --cells 2/1gbit/4K --hosts 2
refused 2 'cannot both' --json - --html -

small=(--quick --hosts 2 --elements 5000)

# Without its libraries a peer is a row that says what to do; the run goes on, and no network is needed.
run "${small[@]}" --only gloo,openmpi-ring --python /nonexistent/python3 --mpirun /nonexistent/mpirun \
    --json "$folder/json" --html "$folder/html"
expect_code 0
expect out '^  gloo .*/nonexistent/python3: No such file.*tools/setup --bench$'
expect out '^  openmpi-ring .*tools/setup --bench$'
expect out '^# .wanted is meant for everything; this run had --quick --only.$'
python3 -c 'import json, sys
data = json.load(open(sys.argv[1]))
assert data["schema"] == 2 and data["sweep"] is None
assert len(data["rows"]) == 2 and all(row["error"] for row in data["rows"])
assert all(goal["yes"] is None for goal in data["goals"])' "$folder/json" || fail "the JSON"

# page FILE: it is well-formed, has pictures or not ($2: how many at least), and needs nothing from elsewhere.
page() {
    python3 - "$1" "$2" <<'END' || fail "the page $1"
import sys, xml.etree.ElementTree as tree
text = open(sys.argv[1], encoding="utf-8").read()
assert text.startswith("<!DOCTYPE html>\n")
root = tree.fromstring(text.partition("\n")[2])
tags = [element.tag.rpartition("}")[2] for element in root.iter()]
assert tags.count("svg") >= int(sys.argv[2]) and "table" in tags, tags.count("svg")
assert not {"script", "link", "img", "iframe"} & set(tags)
names = {name.rpartition("}")[2] for element in root.iter() for name in element.attrib}
assert not {"src", "href"} & names and "url(" not in text and "@import" not in text
END
}
page "$folder/html" 0

# Which cells a sweep has, and what is known of bytes and times before anything runs.
perf=$top_builddir/tools/sparring-perf
python3 -B - "$top_srcdir/bench" "$perf" >"$folder/out" 2>"$folder/err" <<'END' || fail "cells"
import sys, types
sys.path.insert(0, sys.argv[1])
import cells
import sweep as sweeps
from cells import Cell

every = cells.all_cells(False, 25557032)
assert all(4096 <= 4 * cell.elements <= 400e6 and cell.ranks <= cells.MOST_RANKS for cell in every)
fitting = [cell for cell in every if cells.fits(cell, 2, 12e9) is None]
first = Cell(8, 1, "1gbit", 25557032)
chosen = cells.cover(fitting, [first], lambda cell: cell.elements)
met = lambda some: set().union(*map(cells.pairs, some))
assert met(chosen) == met(fitting) and first in chosen and len(chosen) < len(fitting) / 3, len(chosen)
others = [cell for cell in every if cell not in fitting]
missing = cells.never_met(others, fitting)
assert "100mbit with 100000000 elements" in missing and "2 hosts with 1gbit" not in missing, missing
assert cells.cover(fitting[:1], [], lambda cell: 0) == fitting[:1] and cells.cover([], [], None) == []

slow = Cell(8, 1, "100mbit", 25557032)
assert cells.fits(slow, 2, 1e12) == "a dense sum would take 14.9 s", cells.fits(slow, 2, 1e12)
assert "memory" in cells.fits(first, 2, 1e9)
names = ["auto", "direct", "allgather", "unheard-of"]
seconds = cells.predict_s(first, 0.5, names, 2)
assert seconds["auto"] == min(seconds.values()) and seconds["unheard-of"] == max(seconds.values())
assert cells.rows_that_fit(first, 0.01, 8 * 25557032 * (16 + 3.5 * 4.08)) == 3

# What is predicted to be slow, or has no memory, is not asked for, and the reason is kept.
sweep = sweeps.Sweep(types.SimpleNamespace(quick=True), types.SimpleNamespace(perf=sys.argv[2]))
sweep.cpus, sweep.room = 2, 1e9
sweep.add("sparse", Cell(4, 1, "10mbit", 3 << 18), 0.5)
sweep.add("dense", Cell(8, 1, "1gbit", 25557032), None)
sweep.add("sparse", Cell(8, 1, "10gbit", 1 << 22), 0.01)
slow, dense, large = sweep.points
assert "allgather" in slow["too_slow_s"] and "allgather" not in slow["algorithms"] and "ring" in slow["algorithms"]
assert sweeps.arguments(slow) == ["sparse_allreduce", "--baseline", "--explain", "--tune", "--algo",
                                  ",".join(slow["algorithms"]), "--density", "0.500000000"]
assert "flat" in dense["too_slow_s"] and dense["algorithms"][0] == "auto" and "flat" not in dense["algorithms"]
assert large["algorithms"][0] == "auto" and len(large["algorithms"]) == 3 and len(large["no_room"]) >= 3, large
assert slow["iterations"] == sweeps.FEWEST

# A list of half of all elements: 4 bytes of value and 2 bits of index per entry. 2 ranks swap lists.
assert abs(cells.bound_bytes(1 << 20, 2, 1 << 20, 3 << 18) - (1 << 19) * 4.25) < 1e-3
# 4 ranks, every entry everywhere: k + (P-2)/P n values, and no indices.
assert cells.bound_bytes(1000, 4, 4000, 1000) == 4000 + 2000
assert cells.bound_bytes(1000, 4, 0, 0) == 0
assert abs(cells.bits(0.01) - 0.0807931) < 1e-6 and abs(cells.union(0.01, 8) - (1 - 0.99 ** 8)) < 1e-12
END

# What the report says of made-up times: losing is said, wrong results are no reference, goals are judged by pairs.
python3 -B - "$top_srcdir/bench" >"$folder/out" 2>"$folder/err" <<'END' || fail "the report"
import sys, types
sys.path.insert(0, sys.argv[1])
import findings, peers, plan, report
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

def point(density, auto, taken, dense, **named):
    """Times in us; a pair: predicted, measured."""
    def one(algorithm, collective="sparse_allreduce", us=0, **more):
        predicted, measured = us if isinstance(us, tuple) else (None, us)
        return {"collective": collective, "algorithm": algorithm, "time_us": {"p50": measured}, "sent_bytes": 2e6,
                "link_sent_bytes": 100000, "entries": 8000, "union_entries": 8000, "predicted_us": predicted, **more}
    return {"kind": "sparse", "hosts": 8, "ranks_per_host": 1, "rate": "1gbit", "elements": 25557032,
            "density": density, "algorithms": ["auto", *named],
            "rows": [one("auto", us=auto, taken=taken), one("auto", "allreduce", dense),
                     *(one(name, us=us) for name, us in named.items())]}

# 100,000 bytes take 800 us: the link is the limit of what takes less than 1600.
points = [point(0.01, 110, "ring", 220, ring=(100, 118), direct=(100, 125), tree=(3000, 4000)),
          point(0.1, 105, "ring", 100, ring=(1000, 1200), direct=(1000, 1000))]
answers = [(goal["yes"], goal["reached"]) for goal in report.goals(rows, points)]
assert answers[:11] == [(True, 1.01), (None, None), (None, None), (None, None), (False, 8), (False, 0.8), (False, 4),
                        (False, 1.2), (None, None), (None, None), (None, None)], answers
assert answers[11][0] is False and answers[11][1] > 1.2 and answers[12] == (False, 1.05), answers
assert answers[13:16] == [(False, 0.5), (False, 0.5), (False, 0.8)], answers
failed = [{**points[0], "rows": []}, {**points[0], "algorithms": ["auto"], "rows": []}]
assert report.goals([], points + failed)[13]["detail"] == "1 of 2 points, of 3 planned"
assert all(yes is None for yes, _ in answers[16:])
assert all(goal["yes"] is None for goal in report.goals([], []))
# `auto` took 110 where `ring` had 118, and 105 where it had 1200.
assert findings.repeated_well(points) == (1, 2)
# A dense sum does not know the union: the others of the point do.
points[0]["rows"][0]["union_entries"] = 0
assert report.goals([], points)[11]["reached"] == answers[11][1]
report.print_rows(rows[:6], "made up", 1, "us")

# Other networks and figures. Ours sends 1000 bytes, where 800 are the least: 80 us at 10 bytes/us; all CPUs take 90 us
# for them, and 60 to write the vectors.
def given(name, part, us, **figures):
    made = row(name, part, "sparring", [us])
    vars(made.samples[0]).update(figures)
    return made

more = [given("limit", "network", 100, sent=1000, byte_us=0.1125, pass_us=60, detail="iperf3"),
        given("sparse-0.1", "network", 180, ratio=149, bound=800), given("sparse-0.1-list", "network", 120, bound=800),
        given("clustered-sparse-1", "network", 1, over_bound=1.25),
        given("bounded-1", "network", 9, phases={"select": 4}),
        row("levels-sparse-hierarchical", "levels", "sparring", [100, 50]),
        row("levels-sparse-direct", "levels", "sparring", [170, 85]),
        row("levels-sparse-ring", "levels", "sparring", [90, 60]),
        row("levels-sparse-doubling", "levels", "sparring", [900, 60]),
        given("overlap-compressed", "overlap", 1, overlap=0.8, gain=1.3),
        row("fast-openmpi", "fast", "openmpi", [90]), row("fast-compressed-1", "fast", "sparring", [50])]
answers = {goal["goal"]: (goal["yes"], goal["reached"]) for goal in report.goals([rows[0], *more], [])}
assert len(answers) == len(report.goals([], [])) # no text twice
answers = [answers[goal["goal"]] for goal in report.goals([], [])][18:]
assert answers[:4] == [(True, 40), (False, 120 / 90), (True, 1.2), (None, None)], answers
assert answers[5:6] == [(False, 149)] and answers[8:] == [
    (True, 1.25), (True, 1.7), (True, 1.05), (True, 0.8), (False, 1.3), (False, 1.8)], answers
assert report.goals(more[:-4], [])[28]["reached"] is None # not all that are flat
report.print_rows(more[-3:-2], "made up", 1, "us")
# Of several rounds the medians count.
more[-3].samples += [Sample(3, 3, 3, 1, overlap=0.5), Sample(2, 2, 2, 1, overlap=0.7)]
assert (more[-3].sample.p50, more[-3].sample.overlap) == (2, 0.7)
def bounded(*rounds):
    made = given("bounded-1", "network", 1)
    made.samples = [Sample(us, us, us, 1, phases={"select": select, "merge": 1}, sent=select, relerr=select / 10)
                    for us, select in rounds]
    return made

made = bounded((9, 4), (8, 8), (60, 25)) # 5, 0 and 35 without selection
assert [made.sample.phases, made.sample.sent, made.sample.relerr] == [{"select": 8, "merge": 1}, 8, 0.8]
unselected = lambda made: report.goals([rows[0], made], [])[18]["reached"]
assert unselected(made) == 40, unselected(made)
assert unselected(bounded((9, 4), (8, 8), (7, 8))) is None

# What an algorithm of the best of Open MPI's did is told with it; a wrong result is one of the row.
class Tried(peers.OpenMPI):
    def measure_one(self, algorithm):
        what = given_results[algorithm]
        if isinstance(what, str):
            raise peers.Failed(what)
        return Sample(9, what[0], 9, 1, wrong=what[1], detail=peers.OPENMPI_ALGORITHMS[algorithm])

given_results = {0: (5, 0), 1: (2, 3), 4: "no answer within 60 s", 6: (4, 0)}
tried = Tried(None, None, list(given_results))
for wrong in 3, 0:
    sample = tried.measure()
    assert sample.detail == "rabenseifner; ring: no answer within 60 s; linear: 3 wrong", sample.detail
    assert (sample.wrong, sample.least) == (wrong, 4)
given_results = {1: (2, 3), 4: "too slow"}
sample = Tried(None, None, list(given_results)).measure()
assert (sample.wrong, sample.detail) == (3, "linear; ring: too slow")

# Every second round goes backwards, so that drift hits both of a pair.
names = [[row.name for row in plan.in_turn(rows[:5], number)] for number in range(3)]
assert names == [["gloo", "dense", "openmpi-ring", "sparse-1", "sparse-10"], ["dense", "gloo"], ["gloo", "dense"]]
END
expect out '^  sparse-10 .* 0\.80 .*LOSES to dense gloo'
expect out '^  sparse-1  .* 8\.00 '
expect out '^  overlap-compressed .*LOSSY.*overlap 0\.80, one bucket at a time takes 1\.30 times as long'
expect out '^  compressed-1 .* 4\.00 .*LOSSY'
! grep '^  sparse-1  .*LOSES' "$folder/out" || fail "sparse-1 does not lose"

# A made-up run, an hour later a slower one, and one that only differs by what the rounds do anyway.
python3 -B - "$folder" >"$folder/out" 2>"$folder/err" <<'END' || fail "made-up runs"
import copy, json, sys

def perf(collective, algorithm, ms, **more):
    return {"collective": collective, "algorithm": algorithm, "iterations": 3, "wrong": 0, "sent_bytes": 9000,
            "cpu_sum_us": 2e3, "time_us": {"min": ms * 1e3, "p50": ms * 1e3, "p99": ms * 1e3, "max": ms * 1e3}, **more}

def point(kind, density, rows, **more):
    return {"kind": kind, "hosts": 4, "ranks_per_host": 2, "rate": "1gbit", "elements": 100000, "density": density,
            "algorithms": ["auto", "ring", "flat"], "too_slow_s": {"tree": 6.5}, "no_room": ["doubling"],
            "iterations": 3, "predicted_s": 1, "error": None,
            "load": 0.5, "rows": rows, **more}

def sparse(density, auto, ring, dense):
    known = {"entries": 8000, "union_entries": 7700, "phase_us": {"encode": 100, "merge": 300}}
    return point("sparse", density, [perf("sparse_allreduce", "auto", auto, taken="direct", **known),
                                     perf("sparse_allreduce", "ring", ring, **known), perf("allreduce", "auto", dense)])

def row(name, kind, *rounds):
    samples = [{"p50": us, "least": us, "most": us, "iterations": 1, "wrong": 0, "cpu": 1.5} for us in rounds]
    return {"name": name, "title": "<" + name + ">", "part": "network", "kind": kind, "error": None, "wrong": 0,
            "rounds_us": samples}

old = {"schema": 2, "command": ["compare"], "hosts": 4, "rate": "1gbit", "elements": 100000, "cpus": 2, "kernel": "6",
       "congestion": "cubic", "settings": [], "load_start": 0, "load_end": 0, "goals": [
           {"goal": "to be & to <stay>", "relation": "<=", "wanted": 1, "reached": 2, "yes": False, "detail": "-"}],
       "rows": [row("limit", "limit", 800), row("gloo", "gloo", 1000, 1040), row("dense", "sparring", 1000, 1040)],
       "sweep": {"slow_s": 5, "left_out": [{"cell": "8x1/100mbit/400000000", "why": "too slow"}], "points": [
           sparse(0.01, 2, 1, 4), sparse(0.04, 4, 4, 2), point("dense", None, [perf("allreduce", "auto", 4),
                                                                            perf("allreduce", "ring", 5)])]}}
noise, slow = copy.deepcopy(old), copy.deepcopy(old)
noise["rows"][2] = row("dense", "sparring", 1060, 1090)
slow["rows"][1] = row("gloo", "gloo", 1200, 1210)
slow["sweep"]["points"][0] = sparse(0.01, 3, 1, 4)
slow["sweep"]["points"].pop()
slow["kernel"] = "7"
less = copy.deepcopy(old)
less["partly"] = ["--cells"]
less["sweep"]["points"][0]["rows"][0]["wrong"] = 1
first = copy.deepcopy(old) # as schema 1 was
first["schema"] = 1
del first["sweep"]
for some in first["rows"]:
    for sample in some["rounds_us"]:
        del sample["cpu"]
for name, data in ("old", old), ("noise", noise), ("slow", slow), ("less", less), ("first", first):
    with open(f"{sys.argv[1]}/{name}.json", "w", encoding="utf-8") as file:
        json.dump(data, file)
END
run --from "$folder/old.json" --html "$folder/html"
expect_code 0
expect out '^  sparse +4x2 1gbit 0.4 MB +1% +direct +2\.000 +ring +1\.000 +2\.00 +4\.000 +2\.00 +2\.00 +9\.0 +[0-9.]+ '
# From a gain of 2 to one of 1/2: half-way between 1 % and 4 % on a logarithmic axis.
expect out '4x2 1gbit 0.4 MB: 2%, between 1% and 4%$'
expect out '^  sparse: auto over the best by name: median 1\.00, worst 2\.00 .*1%: direct against ring'
expect out '^# 8x1/100mbit/400000000: too slow$'
expect out '^# dense 4x2 .* left out: tree would take 6.5 s, no memory for doubling, flat is not for this$'
page "$folder/html" 5
! grep -q 'wanted is meant for everything' "$folder/out" "$folder/html" || fail "all was measured"
run --from "$folder/less.json" --html "$folder/html"
expect_code 1
for file in out html; do # what the goals do not say is beside them
    expect "$file" '[>(]wanted is meant for everything; this run had --cells[)<]'
    expect "$file" 'of 3 planned points of trace and sweep 2 have a right result '
done
page "$folder/html" 1
run --from "$folder/noise.json" --compare "$folder/old.json"
expect_code 0
expect out '0 of Sparring.s slower; .*: 1\.00$'
! grep -q '^  SLOWER' "$folder/out" || fail "noise is no change"
run --from "$folder/slow.json" --compare "$folder/old.json"
expect_code 3
expect out '^  SLOWER +1\.18 .* gloo, a peer$'
expect out '^  SLOWER +1\.50 .* sparse 4x2/1gbit/400000, 0.01, sparse_allreduce auto$'
expect out '^  gone   dense 4x2/1gbit/400000, allreduce ring$'
expect out '^# NOT THE SAME: kernel: 6 before, 7 now$'
expect out ' 1 of Sparring.s slower'
run --from "$folder/old.json" --compare "$folder/slow.json"
expect_code 0
expect out '^  faster +0\.67 '
run --from "$folder/first.json" --compare "$folder/old.json" --html "$folder/html"
expect_code 0
expect out '^  dense +1\.02 +1 +1\.04 +2 +- '
page "$folder/html" 1
run --from "$folder/html"
expect_code 1
expect err '^compare: --from .*html: '
echo '{"schema": 2, "rows": 3}' >"$folder/json"
run --from "$folder/json"
expect_code 1
expect err '^compare: --from .*json: no JSON of bench/compare$'
[ "$(wc -l <"$folder/err")" -eq 1 ] || fail "not one line on standard error"

if ! "$top_builddir/tools/sparring-run" -n 2 --emulate 1gbit -- true 2>/dev/null; then
    echo "no emulated network here: the rest is skipped"
    exit "$failed"
fi

# A job that is closed early takes its orphans with it, and nothing of another one.
launcher=$(realpath "$top_builddir")/tools/sparring-run
python3 -B - "$top_srcdir/bench" "$launcher" >"$folder/out" 2>"$folder/err" <<'END' || fail "jobs"
import os, sys, tempfile, time
sys.path.insert(0, sys.argv[1])
from hosts import Hosts, Job, Task

with tempfile.TemporaryDirectory() as folder, Hosts(sys.argv[2], 2, "1gbit", folder) as hosts:
    stays = Job(hosts, [Task(1, ["cat"])])
    late = Job(hosts, [Task(1, ["sh", "-c", "setsid sleep 1000 & echo $!; wait"])])
    orphan = int(late.line(20))
    while os.getsid(orphan) != orphan:
        time.sleep(0.01)
    late.close()
    stays.send("still here")
    assert stays.line(20) == "still here\n"
    stays.close()
    def ended(): # or a zombie, whom the first process does not wait for
        try:
            with open(f"/proc/{orphan}/stat") as stat:
                return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            return True

    for _ in range(1000):
        if ended():
            break
        time.sleep(0.01)
    assert ended()
END

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

# Networks and figures of their own.
run "${small[@]}" --only overlap,levels-sparse-direct,sparse-1,bounded,fast-compressed --json "$folder/json"
expect_code 0
expect out '^  levels-sparse-direct .* sent [0-9.]+ of the least for random positions'
expect out '^  fast-compressed-1 .*LOSSY'
python3 - "$folder/json" "$(nproc)" <<'END' || fail "the figures of the rows"
import json, sys
rows = {row["name"]: row for row in json.load(open(sys.argv[1]))["rows"]}
result = {name: row["result_us"] for name, row in rows.items()}
assert result["sparse-1"]["ratio"] > 5 and result["sparse-1"]["over_bound"] > 1, result
assert "over_bound" not in result["bounded-1"] and result["bounded-1"]["phases"]["select"] > 0, result
if int(sys.argv[2]) > 1:
    assert result["overlap-compressed"]["overlap"] <= 1 and result["overlap-compressed"]["gain"] > 0, result
else:
    assert "a CPU each" in rows["overlap-compressed"]["error"], rows
END

# The sweep: every algorithm beside the choice and the dense sum; a cell that would take too long is left out.
run --only sweep --cells 2/1gbit/16K,2x2/1gbit/64K,2/100kbit/16M --densities 1%,50% --json "$folder/json" \
    --html "$folder/html"
expect_code 0
expect out '^# 2x1/100kbit/16777216: a dense sum would take [0-9.]+ s$'
python3 - "$folder/json" <<'END' || fail "the sweep's JSON"
import json, sys
sweep = json.load(open(sys.argv[1]))["sweep"]
points = sweep["points"]
assert [(p["kind"], p["hosts"], p["ranks_per_host"], p["elements"], p["density"]) for p in points] == [
    (kind, 2, per_host, elements, density) for per_host, elements in ((1, 4096), (2, 16384))
    for kind, density in (("sparse", 0.01), ("sparse", 0.5), ("dense", None))], points
assert len(sweep["left_out"]) == 1
for point in points:
    rows = point["rows"]
    assert point["error"] is None and not any(row["wrong"] for row in rows), point
    assert rows[0]["algorithm"] == "auto" and all(row["cpu_sum_us"] > 0 for row in rows)
    kinds = [row["collective"] for row in rows]
    if point["kind"] == "dense":
        assert kinds == ["allreduce"] * len(point["algorithms"]) and len(kinds) >= 5, kinds
    else:
        assert kinds == ["sparse_allreduce"] * len(point["algorithms"]) + ["allreduce"] and len(kinds) >= 6, kinds
        by_name = next(row for row in rows if row["algorithm"] == "direct")
        assert 0 < by_name["union_entries"] <= by_name["entries"] and "merge" in by_name["phase_us"]
    assert sum(row.get("predicted_us", 0) > 0 for row in rows) > 4 and rows[0]["taken"], rows
    assert rows[0]["tuned_us"] == min(row["tuned_us"] for row in rows if "tuned_us" in row
                                      and row["collective"] == rows[0]["collective"]), rows
END
page "$folder/html" 4

# Recorded gradients of two ranks, whose large values are neighbours.
mkdir "$folder/trace"
python3 - "$folder/trace" <<'END'
import array, struct, sys
for rank in range(2):
    values = array.array("f", [(100 if i // 50 == rank else 1) + i / 5000 for i in range(5000)])
    with open(f"{sys.argv[1]}/step0.rank{rank}.f32", "wb") as file:
        file.write(struct.pack("<8sIIIIQ", b"SPRTRACE", 1, rank, 0, 2, 5000) + values.tobytes())
END
run --hosts 2 --only trace --trace "$folder/trace"
expect_code 0
for density in 0.1 1 10; do
    expect out "^  trace +2x1 1gbit 20000 B +$density% +[a-z]+ +[0-9.]+ "
    expect out "^  compressed +2x1 1gbit 20000 B +$density% +[a-z]+ +[0-9.]+ +- "
done
run "${small[@]}" --only trace --trace "$folder/nothing"
expect_code 0
expect out '^# trace: .*nothing has no file '

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

# Sparring itself lies by one algorithm, and fails for that: it is told, and so are the others.
mkdir -p "$folder/lying/tools"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$launcher" >"$folder/lying/tools/sparring-run"
cat >"$folder/lying/tools/sparring-perf" <<END
#!/bin/bash
$(realpath "$top_builddir")/tools/sparring-perf "\$@" || exit
[ "\${SPARRING_RANK-1}" = 0 ] || exit 0
exec python3 - "\$@" <<'EOF'
import json, sys
path = sys.argv[sys.argv.index("--json") + 1]
with open(path, encoding="utf-8") as file:
    data = json.load(file)
lies = [row for row in data["rows"] if row["algorithm"] == "ring"]
for row in lies:
    row["wrong"] = 3
with open(path, "w", encoding="utf-8") as file:
    json.dump(data, file)
sys.exit(bool(lies))
EOF
END
chmod +x "$folder"/lying/tools/*
run "${small[@]}" --only dense-ring-epoll,dense-direct-epoll,sweep --cells 2/1gbit/16K --densities 1% \
    --build "$folder/lying"
expect_code 1
expect out '^  dense-ring-epoll .*WRONG: 3 elements'
expect out '^  dense-direct-epoll .* 0  Sparring'
expect out '^  sparse +2x1 1gbit 16 KiB +1% +[a-z]+ +[0-9.]+ '
expect out '^# sparse 2x1 1gbit 16 KiB, 1%: WRONG: 3 elements$'

# What fails to train did fail, with what it said itself.
mkdir "$folder/lying/examples"
printf '#!/bin/sh\necho "train_digits: rank 1: the reason" >&2\necho more >&2\nexit 1\n' \
    >"$folder/lying/examples/train_digits"
chmod +x "$folder/lying/examples/train_digits"
run "${small[@]}" --only trace --build "$folder/lying"
expect_code 1
expect out '^# trace: train_digits: rank 1: the reason$'

# Asked to end: what was measured until then is there.
"${tool[@]}" --hosts 2 --elements 5000 --only dense,sweep --cells 2/1gbit/16M --json "$folder/json" \
    >"$folder/out" 2>"$folder/err" </dev/null &
compare=$!
for ((try = 0; try < 1200; try++)); do
    ! grep -q ' points$' "$folder/err" || break
    sleep 0.1
done
[ "$try" -lt 1200 ] || fail "no point was measured within 120 s"
kill -TERM "$compare"
wait "$compare"
code=$?
expect_code 143
expect err '^compare: stopped; what follows'
expect out '^  dense .* Sparring allreduce, default'
python3 -c 'import json, sys
data = json.load(open(sys.argv[1]))
assert all(row["result_us"] for row in data["rows"])
measured = [bool(point["rows"]) for point in data["sweep"]["points"]]
assert data["stopped"] and measured[0] and not all(measured), measured' "$folder/json" \
    || fail "what was measured is not in the JSON"

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
