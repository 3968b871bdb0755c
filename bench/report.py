# SPDX-License-Identifier: BSD-2-Clause
"""The tables, the goals, and the JSON."""

import json

import plan
from findings import chosen_well, predicted_well, share, worst
from sweep_tables import print_sweep

SCHEMAS = (1, 2)
PHASES = ("select", "encode", "reduce_scatter", "merge", "allgather", "decode")
GOAL_HOSTS, GOAL_RATE, GOAL_ELEMENTS = 8, "1gbit", 25557032


def best(rows):
    """The fastest right result of another library among these, or None."""
    peers = [row for row in rows if row.peer and row.ok]
    return min(peers, key=lambda row: row.sample.p50, default=None)


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
    if row.name.startswith("compressed"):
        words.append(f"LOSSY: relerr {sample.relerr:.2g} stays for later steps")
    if row.name.startswith("sparse"):
        words.append("exact sum of lists: communication and summing only")
    lossy_or_sparse = row.name.startswith(("compressed", "sparse"))
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
    print(f"# {'row':20} {'p50(' + unit + ')':>10} {'min':>10} {'max':>10} {'n':>5} "
          f"{'cpu(' + unit + ')':>10} {'sent(MB)':>9} {'recv(MB)':>9} {'peer/this':>9} "
          f"{'#wrong':>6}  what")
    for row in rows:
        if not row.samples:
            print(f"  {row.name:20} {'-':>10} {'-':>10} {'-':>10} {0:5} {'-':>10} {'-':>9} "
                  f"{'-':>9} {'-':>9} {'-':>6}  {row.title}: {row.error or 'not measured'}")
            continue
        s = row.sample
        ratio = f"{reference.sample.p50 / s.p50:.2f}" if reference is not None else "-"
        wrong = "-" if s.wrong is None else s.wrong
        times = " ".join(figure(us / unit_us) for us in (s.p50, s.least, s.most))
        cpu = f"{'-':>10}" if s.cpu is None else figure(s.cpu / unit_us)
        print(f"  {row.name:20} {times} {s.iterations:5} {cpu} {megabytes(s.sent):>9} "
              f"{megabytes(s.received):>9} {ratio:>9} {wrong:>6}  {row.title}"
              f" [{note(row, reference)}]")


def print_phases(rows):
    """Where sparse and compressed time goes."""
    rows = [row for row in rows if row.ok and row.sample.phases]
    if not rows:
        return
    print("#\n# Phases in ms, each on the rank where it takes longest; they may overlap")
    print(f"# {'row':20} " + " ".join(f"{name:>14}" for name in PHASES))
    for row in rows:
        phases = row.sample.phases
        print(f"  {row.name:20} " + " ".join(
            f"{phases[name] / 1e3:14.1f}" if phases.get(name) is not None else f"{'-':>14}"
            for name in PHASES))


def median_ratio(rows, name, other):
    """The first's time over the second's, median of their rounds, None = unknown; details."""
    by_name = {row.name: row for row in rows}
    a, b = by_name.get(name), by_name.get(other)
    for row, what in ((a, name), (b, other)):
        if row is None or not row.ok:
            return None, f"{what} was not measured"
    middle, least, most, count = plan.pair_ratio(a, b)
    return middle, f"{count} pairs, {least:.3f} to {most:.3f}"


def over_best(rows, name):
    """Best dense peer's time over the row's."""
    row = next((row for row in rows if row.name == name), None)
    reference = best(row for row in rows if row.part == "network")
    if row is None or not row.ok:
        return None, f"{name} was not measured"
    if reference is None:
        return None, "no dense peer was measured"
    return reference.sample.p50 / row.sample.p50, f"against {reference.name}"


def is_main(point):
    """Is it that of the goals: 102 MB on 8 hosts?"""
    return (point["hosts"], point["ranks_per_host"], point["elements"]) == (
        GOAL_HOSTS, 1, GOAL_ELEMENTS)


def goals(rows, points):
    """Tuples: what, what is wanted, at most or at least, reached (None = unknown), details."""
    limit_text = "limit was not measured"
    limit = next((row for row in rows if row.name == "limit" and row.ok), None)
    dense = next((row for row in rows if row.name == "dense" and row.ok), None)
    of_limit = dense.sample.p50 / limit.sample.p50 if limit and dense else None
    table = [
        ("dense allreduce: time over Gloo's", "<=", 1.02, *median_ratio(rows, "dense", "gloo")),
        ("dense allreduce: time over the limit's", "<=", 1.04, of_limit,
         limit.sample.detail if limit else limit_text),
        ("sparse_allreduce 0.1 %, list result: times faster than the best dense peer", ">=", 60,
         *over_best(rows, "sparse-0.1-list")),
        ("sparse_allreduce 0.1 %, dense result: same", ">=", 40, *over_best(rows, "sparse-0.1")),
        ("sparse_allreduce 1 %, dense result: same", ">=", 12, *over_best(rows, "sparse-1")),
        ("sparse_allreduce 10 %, dense result: same", ">=", 2.2, *over_best(rows, "sparse-10")),
        ("compressed_allreduce 1 %, all included, lossy: same", ">=", 6.5,
         *over_best(rows, "compressed-1")),
        ("2 ranks, shared memory: times faster than Open MPI", ">=", 1.3,
         *median_ratio(rows, "local-openmpi-shm", "local-shm")),
        ("2 ranks, loopback TCP: times faster than Open MPI", ">=", 1.3,
         *median_ratio(rows, "local-openmpi-tcp", "local-tcp")),
        ("2 ranks, loopback TCP: times faster than Gloo", ">=", 1.3,
         *median_ratio(rows, "local-gloo", "local-tcp")),
        ("2 ranks, 4 KiB, shared memory: time over Open MPI's", "<=", 1,
         *median_ratio(rows, "latency-shm", "latency-openmpi")),
        ("sweep: bytes of an exact sum over the least, 102 MB on 8 hosts", "<=", 1.2,
         *worst(points, "over_bound", is_main)),
        ("sweep: sparse_allreduce, time over that of the dense sum", "<=", 1.03,
         *worst(points, "loss")),
        ("sweep: algorithms taken, of those tried, that are within 10 % of the best", ">=", 0.95,
         *share(*chosen_well(points), "points")),
        ("sweep: algorithms that the model alone would take: same", ">=", 0.95,
         *share(*chosen_well(points, model_alone=True), "points")),
        ("sweep: predictions within 20 %, where the link is no limit 35 %", ">=", 0.9,
         *share(*predicted_well(points), "rows")),
    ]
    return [{"goal": what, "relation": relation, "wanted": wanted, "reached": value,
             "yes": None if value is None else
             (value <= wanted if relation == "<=" else value >= wanted), "detail": detail}
            for what, relation, wanted, value, detail in table]


def print_goals(data):
    """Reached against wanted."""
    print("#\n# Reached against wanted")
    if (data["hosts"], data["rate"], data["elements"]) != (GOAL_HOSTS, GOAL_RATE, GOAL_ELEMENTS):
        print(f"# (wanted is meant for {GOAL_HOSTS} hosts, {GOAL_RATE}, {GOAL_ELEMENTS} elements)")
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
            ("local", f"2 ranks on one host, {size}", 1e3, "ms"),
            ("latency", "2 ranks on one host, 4 KiB", 1, "us"))


def machine(data):
    """What ran, and on what."""
    yield (f"Sparring against Gloo and Open MPI: {data['hosts']} emulated hosts, {data['rate']}, "
           f"{data['elements']} fp32 ({data['elements'] * 4 / 1e6:.1f} MB)")
    yield (f"{data['cpus']} CPUs for all ranks, Linux {data['kernel']}; congestion control "
           f"{data['congestion'] or 'unknown'}; pinned: nobody; load average "
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
