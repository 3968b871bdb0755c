# SPDX-License-Identifier: BSD-2-Clause
"""The tables, the goals, and the JSON."""

import json
import re

import plan
from findings import split
from goals import GOAL_ELEMENTS, GOAL_HOSTS, GOAL_RATE, best, goals
from sweep_tables import print_sweep

SCHEMAS = (1, 2)
PARTLY = ("quick", "only", "cells", "densities", "trace")  # options that change what is judged
PHASES = ("select", "encode", "reduce_scatter", "merge", "allgather", "decode")


def megabytes(count):
    """In 1e6 bytes."""
    return "-" if count is None else f"{count / 1e6:.2f}"


def figure(value):
    """Four digits, ten columns."""
    return f"{value:10.0f}" if value >= 1000 else f"{value:10.4g}"


def note(row, reference):
    """What a reader must know of the row."""
    sample = row.sample
    words = [sample.detail]
    if row.wrong:
        words.insert(0, f"WRONG: {row.wrong} elements")
    if row.error:
        words.append(f"then failed: {row.error}")
    lossy = re.search("compressed|bounded", row.name)
    if lossy:
        words.append(f"LOSSY: relerr {sample.relerr:.2g} stays for later steps")
    if "sparse" in row.name:
        words.append("exact sum of lists: communication and summing only")
    if sample.over_bound is not None:
        words.append(f"sent {sample.over_bound:.2f} of the least for random positions")
    if sample.overlap is not None:
        words.append(f"overlap {sample.overlap:.2f}, one bucket at a time takes {sample.gain:.2f} "
                     "times as long")
    lossy_or_sparse = lossy or "sparse" in row.name
    if lossy_or_sparse and reference is not None and sample.p50 > reference.sample.p50:
        words.insert(0, f"LOSES to dense {reference.name}")
    return "; ".join(word for word in words if word)


def print_rows(rows, heading, unit_us, unit):
    """One part."""
    if not rows:
        return
    reference = best(rows)
    print(f"#\n# {heading}")
    if reference is not None:
        print(f"# best dense peer: {reference.name}; peer/this = its time over the row's")
    print(f"# {'row':26} {'p50(' + unit + ')':>10} {'min':>10} {'max':>10} {'n':>5} "
          f"{'cpu(' + unit + ')':>10} {'sent(MB)':>9} {'recv(MB)':>9} {'peer/this':>9} "
          f"{'#wrong':>6}  what")
    for row in rows:
        if not row.samples:
            print(f"  {row.name:26} {'-':>10} {'-':>10} {'-':>10} {0:5} {'-':>10} {'-':>9} "
                  f"{'-':>9} {'-':>9} {'-':>6}  {row.title}: {row.error or 'not measured'}")
            continue
        s = row.sample
        ratio = f"{reference.sample.p50 / s.p50:.2f}" if reference is not None else "-"
        wrong = "-" if s.wrong is None else s.wrong
        times = " ".join(figure(us / unit_us) for us in (s.p50, s.least, s.most))
        cpu = f"{'-':>10}" if s.cpu is None else figure(s.cpu / unit_us)
        print(f"  {row.name:26} {times} {s.iterations:5} {cpu} {megabytes(s.sent):>9} "
              f"{megabytes(s.received):>9} {ratio:>9} {wrong:>6}  {row.title}"
              f" [{note(row, reference)}]")


def print_phases(rows):
    """Where sparse and compressed time goes."""
    rows = [row for row in rows if row.ok and row.sample.phases]
    if not rows:
        return
    print("#\n# Phases in ms, each on the rank where it takes longest; they may overlap")
    print(f"# {'row':26} " + " ".join(f"{name:>14}" for name in PHASES))
    for row in rows:
        phases = row.sample.phases
        print(f"  {row.name:26} " + " ".join(
            f"{phases[name] / 1e3:14.1f}" if phases.get(name) is not None else f"{'-':>14}"
            for name in PHASES))


def caveats(data):
    """Why the goals may not say what they mean."""
    if (data["hosts"], data["rate"], data["elements"]) != (GOAL_HOSTS, GOAL_RATE, GOAL_ELEMENTS):
        yield f"wanted is meant for {GOAL_HOSTS} hosts, {GOAL_RATE}, {GOAL_ELEMENTS} elements"
    if data.get("partly"):
        yield "wanted is meant for everything; this run had " + " ".join(data["partly"])
    if data.get("stopped"):
        yield "wanted is meant for everything; this run was stopped"
    points = (data.get("sweep") or {}).get("points", [])
    count = sum(split(point)[0] is not None for point in points)
    if count < len(points):
        yield (f"of {len(points)} planned points of trace and sweep {count} have a right result of "
               "the library's choice; the others are not judged")


def print_goals(data):
    """Reached against wanted."""
    print("#\n# Reached against wanted")
    for line in caveats(data):
        print(f"# ({line})")
    for goal in data["goals"]:
        answer = {True: "yes", False: "NO", None: "?"}[goal["yes"]]
        value = "-" if goal["reached"] is None else f"{goal['reached']:.3f}"
        print(f"  {answer:3} {value:>8} {goal['relation']} {goal['wanted']:<5} {goal['goal']}"
              f" ({goal['detail']})")


def heads(data):
    """Tuples: part, heading, us of its unit, unit."""
    size = f"{data['elements'] * 4 / 1e6:.1f} MB"
    hosts = f"{data['hosts']} hosts, one rank each, links of {data['rate']}"
    return (("network", hosts, 1e3, "ms"),
            ("levels", f"4 hosts of 2 ranks, links of {plan.FIXED['levels']}, {size}", 1e3, "ms"),
            ("overlap", f"2 hosts of a CPU each, links of {plan.FIXED['overlap']}, {size}", 1e3,
             "ms"),
            ("fast", f"2 hosts, links of {plan.FIXED['fast']}, {size}", 1e3, "ms"),
            ("local", f"2 ranks on one host, {size}", 1e3, "ms"),
            ("latency", "2 ranks on one host, 4 KiB", 1, "us"))


def machine(data):
    """What ran, and on what."""
    yield (f"Sparring against Gloo and Open MPI: {data['hosts']} emulated hosts, {data['rate']}, "
           f"{data['elements']} fp32 ({data['elements'] * 4 / 1e6:.1f} MB)")
    pinned = "overlap alone" if any(row["part"] == "overlap" for row in data["rows"]) else "nobody"
    yield (f"{data['cpus']} CPUs for all ranks, Linux {data['kernel']}; congestion control "
           f"{data['congestion'] or 'unknown'}; pinned: {pinned}; load average "
           f"{data['load_start']:.2f} at start, {data['load_end']:.2f} at the end")
    if data.get("stopped"):
        yield "stopped before its end: some of it was not measured"
    if data["settings"]:
        yield "settings from the environment: " + " ".join(data["settings"])


def print_all(rows, data):
    """Everything. rows: those of the data."""
    for line in machine(data):
        print("# " + line)
    print("# time: from a barrier to the slowest rank; p50: median over rounds of each round's "
          "median; n: iterations")
    print("# cpu: user and system time of all ranks together, one iteration")
    print("# sent, recv: busiest host, one iteration, counted by its interface")
    for part, heading, unit_us, unit in heads(data):
        print_rows([row for row in rows if row.part == part], heading, unit_us, unit)
        if part == "network":
            print_phases(rows)
    print_sweep(data.get("sweep"))
    print_goals(data)


def as_data(rows, sweep, options, about, command):
    """What --json writes."""
    def plain(sample):
        return {key: value for key, value in vars(sample).items() if value is not None}

    return {
        "schema": SCHEMAS[-1], "command": command, "hosts": options.hosts, "rate": options.rate,
        "elements": options.elements, **about,
        "partly": [f"--{name}" for name in PARTLY if getattr(options, name)],
        "rows": [{"name": row.name, "title": row.title, "part": row.part, "kind": row.kind,
                  "error": row.error, "wrong": row.wrong,
                  "result_us": plain(row.sample) if row.samples else None,
                  "rounds_us": [plain(sample) for sample in row.samples]} for row in rows],
        "sweep": sweep,
        "goals": goals(rows, (sweep or {}).get("points", [])),
    }


def read(path):
    """The data of an earlier run; raises OSError, or ValueError that says what is wrong."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    try:
        if data["schema"] not in SCHEMAS or not data["goals"]:
            raise ValueError(f"schema {data['schema']}, known are {SCHEMAS}")
        plan.of_json(data)
    except (KeyError, TypeError) as error:
        raise ValueError("no JSON of bench/compare") from error
    return data


def write_json(file, data):
    """With a line's end."""
    json.dump(data, file, indent=1)
    file.write("\n")
