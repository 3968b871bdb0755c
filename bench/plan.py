# SPDX-License-Identifier: BSD-2-Clause
"""What is measured, in which order.

The rows of a part are measured round by round, each once per round as long as it has rounds left,
and every second round backwards: A B C, C B A, A B, B A. So every row sees the same machine, and a
machine that gets slower and slower adds to both of a pair of neighbours.
"""

import dataclasses
import os
import statistics
import sys
import time
import types

from hosts import Failed
from peers import OPENMPI_ALGORITHMS, Gloo, Link, OpenMPI, Sample, Sparring, Work


MEDIANS = ("p50", "sent", "received", "relerr", "cpu", "ratio", "bound", "over_bound", "overlap",
           "gain", "byte_us", "pass_us")


def medians_of(figures, names):
    """Of dictionaries, by name, what is not known in any of them left out."""
    values = {name: [some[name] for some in figures if some.get(name) is not None]
              for name in names}
    return {name: statistics.median(some) for name, some in values.items() if some}


@dataclasses.dataclass
class Row:
    """A line of the table. kind: of its source."""

    name: str
    title: str
    part: str  # network, levels, overlap, fast, local or latency
    source: object
    rounds: int
    samples: list = dataclasses.field(default_factory=list)
    error: str = None

    @property
    def kind(self):
        """gloo, openmpi, sparring or limit."""
        return self.source.kind

    @property
    def peer(self):
        """Is it another library's?"""
        return self.kind in ("gloo", "openmpi")

    @property
    def ok(self):
        """Measured, and every result was right."""
        return bool(self.samples) and not self.wrong

    @property
    def wrong(self):
        """Elements that were wrong, over all rounds."""
        return sum(sample.wrong or 0 for sample in self.samples)

    @property
    def sample(self):
        """All rounds together: medians of what they say, the least and the most time of all."""
        last = self.samples[-1]
        medians = medians_of([vars(sample) for sample in self.samples], MEDIANS)
        phases = [sample.phases for sample in self.samples if sample.phases]
        if phases:
            medians["phases"] = medians_of(phases, phases[-1])
        return dataclasses.replace(
            last,
            least=min(sample.least for sample in self.samples),
            most=max(sample.most for sample in self.samples),
            iterations=sum(sample.iterations for sample in self.samples),
            wrong=self.wrong if last.wrong is not None else None, **medians)


SPARSE = (("0.1", "0.1%", "dense"), ("0.1-list", "0.1%", "list"), ("1", "1%", "dense"),
          ("10", "10%", "dense"))


COMPRESSED = (("compressed-0.1", "topk:ratio=0.1%"), ("compressed-1", "topk:ratio=1%"),
              ("fp16-compressed-1", "topk:ratio=1%+fp16"))
BOUNDED = "topk:ratio=1%,union=bounded+fp16"

# Rates that no option changes, by part.
FIXED = {"levels": "1gbit", "overlap": "250mbit", "fast": "10gbit"}
LEVELS = ("hierarchical", "hosts", "relay", "direct", "ring", "doubling")
FLAT = ("direct", "ring", "doubling")


@dataclasses.dataclass
class Network:
    """Hosts, the rate of their links, and what is measured on them."""

    hosts: int
    rate: str
    rows: list


def networks(tools, options):
    """All rows. One host's link is never used: its ranks talk over loopback."""
    return [Network(options.hosts, options.rate, network_rows(tools, options)),
            Network(4, FIXED["levels"], levels_rows(tools, options)),
            Network(2, FIXED["overlap"], overlap_rows(tools, options)),
            Network(2, FIXED["fast"], fast_rows(tools, options)),
            Network(1, "1gbit", local_rows(tools, options))]


def levels_rows(tools, options):
    """4 hosts of 2 ranks: algorithms with levels, and those without."""
    work = Work(options.elements, 1, 3 if options.quick else 7, options.network_limit_s,
                [0, 0, 1, 1, 2, 2, 3, 3])
    some = LEVELS[:1] + FLAT[:1] if options.quick else LEVELS
    return [Row(f"levels-sparse-{name}", f"Sparring sparse_allreduce, 1%, {name}", "levels",
                Sparring(tools, work, ("sparse_allreduce", "--density", "1%", "--algo", name)),
                1 if options.quick else 3) for name in some]


def overlap_rows(tools, options):
    """2 hosts of a CPU each, whose link takes about as long as they compute."""
    work = Work(options.elements, 2, 5, options.network_limit_s, [0, 1], pinned=True)
    arguments = ("compressed_allreduce", "--density", "1%", "--buckets", "8")
    return [Row("overlap-compressed", "Sparring compressed_allreduce, 1%, 8 buckets", "overlap",
                Sparring(tools, work, arguments), 1 if options.quick else 5)]


def fast_rows(tools, options):
    """2 hosts whose CPUs are the limit."""
    work = Work(options.elements, 2, 3 if options.quick else 7, options.network_limit_s, [0, 1])
    rounds = 1 if options.quick else 5
    every = (0, 4) if options.quick else tuple(range(len(OPENMPI_ALGORITHMS)))
    return [Row("fast-gloo", "Gloo all_reduce (torch)", "fast", Gloo(tools, work), rounds),
            Row("fast-openmpi", "Open MPI allreduce, the best", "fast",
                OpenMPI(tools, work, every), rounds),
            Row("fast-dense", "Sparring allreduce, default", "fast",
                Sparring(tools, work, ("allreduce",)), rounds),
            Row("fast-compressed-1", "Sparring compressed_allreduce, 1%, all included", "fast",
                Sparring(tools, work, ("compressed_allreduce", "--density", "1%")), rounds)]


def network_rows(tools, options):
    """P hosts on shaped links."""
    hosts = list(range(options.hosts))
    few, many = (1, 2) if options.quick else (3, 7)

    def work(iterations, warmup=1):
        return Work(options.elements, warmup, iterations, options.network_limit_s, hosts)

    def sparring(*arguments, iterations=3, warmup=1):
        return Sparring(tools, work(iterations, warmup), arguments)

    rows = [
        Row("limit", "physical limit, 2(P-1)/P n over iperf3's rate", "network",
            Link(tools, work(1)), 1),
        Row("gloo", "Gloo all_reduce (torch)", "network", Gloo(tools, work(3)), many),
        Row("dense", "Sparring allreduce, default", "network", sparring("allreduce"), many),
    ]
    for algorithm in ("direct", "ring"):
        for transport in ("epoll", "uring"):
            rows.append(Row(f"dense-{algorithm}-{transport}",
                            f"Sparring allreduce, {algorithm}, {transport}", "network",
                            sparring("allreduce", "--algo", algorithm, "--transport", transport),
                            few))
    for name, density, result in SPARSE:
        rows.append(Row(f"sparse-{name}",
                        f"Sparring sparse_allreduce, {density}, {result} result", "network",
                        sparring("sparse_allreduce", "--density", density, "--result", result,
                                 iterations=5), few))
    rows.append(Row("clustered-sparse-1", "Sparring sparse_allreduce, 1%, clustered", "network",
                    sparring("sparse_allreduce", "--density", "1%", "--pattern", "cluster",
                             iterations=5), 1))
    for name, codec in COMPRESSED:
        rows.append(Row(name,
                        f"Sparring compressed_allreduce, {codec}, all included", "network",
                        sparring("compressed_allreduce", "--codec", codec, iterations=5, warmup=2),
                        few))
    rows.append(Row("bounded-1", f"Sparring compressed_allreduce, {BOUNDED}, all included",
                    "network", sparring("compressed_allreduce", "--codec", BOUNDED, iterations=5,
                                        warmup=2), few))
    algorithms = (0, 4, 6) if options.quick else range(len(OPENMPI_ALGORITHMS))
    for algorithm in algorithms:
        rows.append(Row(f"openmpi-{OPENMPI_ALGORITHMS[algorithm]}",
                        f"Open MPI allreduce, {OPENMPI_ALGORITHMS[algorithm]}", "network",
                        OpenMPI(tools, work(3), [algorithm]), 1))
    return rows


def local_rows(tools, options):
    """Two ranks on one host, nothing shaped: a long vector, then 4 KiB."""
    hosts = [0, 0]
    every = (0, 4, 6) if options.quick else tuple(range(len(OPENMPI_ALGORITHMS)))
    rounds = 2 if options.quick else 5
    long = Work(options.elements, 2, 7, options.local_limit_s, hosts)
    short = Work(1024, 200, 2000, options.local_limit_s, hosts)

    def sparring(work, transport):
        return Sparring(tools, work, ("allreduce", "--transport", transport))

    return [
        Row("local-openmpi-shm", "Open MPI, self,vader", "local",
            OpenMPI(tools, long, every, "vader"), rounds),
        Row("local-shm", "Sparring, default: shared memory", "local", sparring(long, "auto"),
            rounds),
        Row("local-limit", "TCP's limit, n both ways over iperf3's rate", "local",
            Link(tools, long), rounds),
        Row("local-openmpi-tcp", "Open MPI, self,tcp", "local",
            OpenMPI(tools, long, every, "tcp"), rounds),
        Row("local-gloo", "Gloo, TCP", "local", Gloo(tools, long), rounds),
        Row("local-tcp", "Sparring, TCP, default", "local", sparring(long, "epoll"), rounds),
        Row("local-uring", "Sparring, TCP, io_uring", "local", sparring(long, "uring"), rounds),
        Row("latency-openmpi", "Open MPI, self,vader", "latency",
            OpenMPI(tools, short, every, "vader"), rounds),
        Row("latency-shm", "Sparring, default: shared memory", "latency", sparring(short, "auto"),
            rounds),
    ]


def chosen(rows, names):
    """Those that are named, or whose name starts with a name and a dash; all without names."""
    return [row for row in rows if not names or
            any(row.name == name or row.name.startswith(name + "-") for name in names)]


def progress(text):
    """A line on standard error."""
    print(time.strftime("%H:%M:%S ") + text, file=sys.stderr, flush=True)


def measure_once(row, number):
    """One round of one row."""
    load = os.getloadavg()[0]
    try:
        sample = row.source.measure()
        sample.load = load
        row.samples.append(sample)
        progress(f"  {row.name}: {sample.p50 / 1e3:.3f} ms")
    except (Failed, OSError, ValueError, KeyError, MemoryError) as error:
        row.error = str(error) or type(error).__name__
        progress(f"  {row.name}: round {number + 1}: {row.error}")
        row.source.close()


def in_turn(rows, number):
    """The rows of a round, in its order."""
    left = [row for row in rows if number < row.rounds]
    return left if number % 2 == 0 else left[::-1]


def measure(rows):
    """All rounds. A row that failed once is not tried again."""
    try:
        for number in range(max((row.rounds for row in rows), default=0)):
            load = os.getloadavg()[0]
            progress(f"round {number + 1}, load average {load:.1f}")
            for row in in_turn(rows, number):
                if row.error is None:
                    measure_once(row, number)
    finally:
        for row in rows:
            row.source.close()


def of_json(data):
    """The rows of an earlier run."""
    return [Row(row["name"], row["title"], row["part"], types.SimpleNamespace(kind=row["kind"]),
                len(row["rounds_us"]), [Sample(**sample) for sample in row["rounds_us"]],
                row["error"]) for row in data["rows"]]


def pair_ratio(row, other):
    """Median, least and most of row's time over other's, of the rounds that both have."""
    ratios = [a.p50 / b.p50 for a, b in zip(row.samples, other.samples)]
    return statistics.median(ratios), min(ratios), max(ratios), len(ratios)
