# SPDX-License-Identifier: BSD-2-Clause
"""How each library is run and asked for one measurement.

A source has measure(), which returns a Sample or raises Failed, and close(). All count each
iteration from a barrier to its slowest rank, drop the first ones, and check the result.
"""

import contextlib
import ctypes
import dataclasses
import json
import math
import os
import shutil
import subprocess
import time

from cells import bound_bytes
from hosts import Failed, Job, Task

HERE = os.path.dirname(os.path.abspath(__file__))
OPENMPI_ALGORITHMS = ("default", "linear", "nonoverlapping", "doubling", "ring", "segmented",
                      "rabenseifner")
HOW_TO_GET = "run: tools/setup --bench"


@dataclasses.dataclass
class Work:
    """What is measured. limit_s: for one run. hosts: a host for each rank."""

    elements: int
    warmup: int
    iterations: int
    limit_s: float
    hosts: list
    seconds: float = 20  # a run of a slow peer gets fewer iterations
    pinned: bool = False  # each rank to a CPU


@dataclasses.dataclass
class Sample:
    """Times in us. sent and received: bytes of the busiest host per iteration, None = unknown."""

    p50: float
    least: float
    most: float
    iterations: int
    sent: float = None
    received: float = None
    wrong: int = None
    relerr: float = None
    cpu: float = None  # of all ranks together, user and system, one iteration
    phases: dict = None
    detail: str = ""  # version, or what was chosen
    load: float = None  # load average when it began
    ratio: float = None  # bytes that a dense ring sends over those of the busiest rank
    bound: float = None  # the least bytes there can be, of exact sums at random positions,
    over_bound: float = None  # and those of the busiest rank over them
    overlap: float = None  # of buckets: what part of the shorter of wire and CPU is hidden,
    gain: float = None  # and how much faster than one at a time they are
    byte_us: float = None  # of a limit: all CPUs together, when each rank sends a byte by TCP,
    pass_us: float = None  # and when each rank writes a vector once

    @staticmethod
    def of_times(text, network):
        """From the line of JSON that peer_mpi and peer_gloo.py print."""
        try:
            data = json.loads(text)
            times = sorted(data["times_us"])
            sent, received = data["sent_bytes"], data["recv_bytes"]
            return Sample(times[math.ceil(len(times) / 2) - 1], times[0], times[-1], len(times),
                          sent if network else None, received if network else None,
                          data["wrong"], cpu=data.get("cpu_sum_us"), detail=data["version"])
        except (ValueError, KeyError, IndexError) as error:
            raise Failed(f"output that makes no sense: {text[:100]!r}") from error


class Tools:
    """Where the programs are, and what all sources need."""

    def __init__(self, build, python, mpirun, hosts=None):
        self.perf = os.path.join(build, "tools", "sparring-perf")
        self.run = os.path.join(build, "tools", "sparring-run")
        self.peer_mpi = os.path.join(build, "bench", "peer_mpi")
        self.python = python
        self.mpirun = mpirun
        self.hosts = hosts
        self.port = 20000

    def next_port(self):
        """One that no earlier job has left in TIME_WAIT."""
        self.port += 2
        return str(self.port)

    def root(self, work):
        """The address of rank 0, and the interface that leads to it."""
        if len(set(work.hosts)) == 1:
            return "127.0.0.1", "lo"
        return self.hosts.address(work.hosts[0]), "eth0"

    def missing(self, kind):
        """Why a kind of peer cannot run here, or None."""
        if kind == "gloo":
            return self.missing_torch()
        if kind == "openmpi":
            if not os.access(self.peer_mpi, os.X_OK):
                return f"not built (make bench/peer_mpi); {HOW_TO_GET}"
            if not shutil.which(self.mpirun):
                return f"{self.mpirun} is missing; {HOW_TO_GET}"
        if kind == "limit" and not shutil.which("iperf3"):
            return f"iperf3 is missing; {HOW_TO_GET}"
        return None

    def missing_torch(self):
        """torch is looked for without loading it, which takes seconds."""
        words = [self.python, "-c", "import importlib.util as u, sys; "
                 "sys.exit(u.find_spec('torch') is None)"]
        try:
            found = subprocess.run(words, check=False, timeout=60, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{self.python}: {getattr(error, 'strerror', error)}; {HOW_TO_GET}"
        return None if found.returncode == 0 else f"{self.python} has no torch; {HOW_TO_GET}"


class Gloo:
    """Its ranks stay, asleep between two measurements."""

    kind = "gloo"

    def __init__(self, tools, work):
        self.tools = tools
        self.work = work
        self.job = None

    def start(self):
        """Starts the ranks."""
        address, interface = self.tools.root(self.work)
        common = {"WORLD_SIZE": str(len(self.work.hosts)), "MASTER_ADDR": address,
                  "MASTER_PORT": self.tools.next_port(), "GLOO_SOCKET_IFNAME": interface,
                  "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        words = [self.tools.python, os.path.join(HERE, "peer_gloo.py"), str(self.work.elements)]
        self.job = Job(self.tools.hosts, [Task(host, words, common | {"RANK": str(rank)})
                                          for rank, host in enumerate(self.work.hosts)])

    def measure(self):
        """One measurement."""
        if self.job is None:
            self.start()
        work = self.work
        self.job.send(f"{work.warmup} {work.iterations} {work.seconds}")
        return Sample.of_times(self.job.line(work.limit_s), len(set(work.hosts)) > 1)

    def close(self):
        """Ends the ranks."""
        if self.job is not None:
            self.job.close()


class OpenMPI:
    """One algorithm of its component `tuned`, or the best of several: the first measurement tries
    each of them, later ones take the fastest. A wrong result of any is one of the row."""

    kind = "openmpi"

    def __init__(self, tools, work, algorithms, btl="tcp"):
        self.tools = tools
        self.work = work
        self.algorithms = algorithms
        self.btl = btl
        self.others = ""  # what became of algorithms that failed or were wrong

    def command(self, algorithm):
        """The words of mpirun."""
        hosts, work = self.tools.hosts, self.work
        words = [self.tools.mpirun, "--allow-run-as-root", "--bind-to", "none", "-n",
                 str(len(work.hosts)), "--timeout", str(int(work.limit_s) + 5)]
        settings = {"pml": "ob1", "btl": "self," + self.btl, "plm_rsh_no_tree_spawn": "1",
                    "plm_rsh_agent": os.path.join(HERE, "mpi-shell")}
        if len(set(work.hosts)) > 1:
            names = ",".join(hosts.address(host) + ":1" for host in work.hosts)
            words += ["--host", names]
            settings |= {"btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0"}
        else:
            words += ["--host", f"localhost:{len(work.hosts)}"]
            settings |= {"btl_tcp_if_include": "lo", "oob_tcp_if_include": "lo"}
        if len(work.hosts) > len(os.sched_getaffinity(0)):
            settings["mpi_yield_when_idle"] = "1"
        if algorithm > 0:
            settings |= {"coll_tuned_use_dynamic_rules": "1",
                         "coll_tuned_allreduce_algorithm": str(algorithm)}
        if OPENMPI_ALGORITHMS[algorithm] == "segmented":
            settings["coll_tuned_allreduce_algorithm_segmentsize"] = str(1 << 20)
        for name, value in settings.items():
            words += ["--mca", name, value]
        return words + [self.tools.peer_mpi, str(work.elements), str(work.warmup),
                        str(work.iterations), str(work.seconds)]

    def measure_one(self, algorithm):
        """One run of mpirun."""
        job = Job(self.tools.hosts, [Task(self.work.hosts[0], self.command(algorithm),
                                          {"BENCH_HOSTS": self.tools.hosts.folder})])
        try:
            lines = job.wait(self.work.limit_s).strip().splitlines()
        finally:
            job.close()
        sample = Sample.of_times(lines[-1] if lines else "", len(set(self.work.hosts)) > 1)
        sample.detail += ", " + OPENMPI_ALGORITHMS[algorithm]
        return sample

    def measure(self):
        """One measurement, the first time of every algorithm."""
        if len(self.algorithms) == 1:
            sample = self.measure_one(self.algorithms[0])
            sample.detail += self.others
            return sample
        samples, failures = {}, []
        for algorithm in self.algorithms:
            try:
                samples[algorithm] = self.measure_one(algorithm)
            except Failed as failure:
                failures.append(failure)
                self.others += f"; {OPENMPI_ALGORITHMS[algorithm]}: {failure}"
        if not samples:
            raise failures[0]
        # The least: of a few iterations on a busy machine, the median says more of the machine.
        best = min(samples, key=lambda a: (samples[a].wrong > 0, samples[a].least))
        for algorithm, sample in samples.items():
            if algorithm != best and sample.wrong:
                self.others += f"; {OPENMPI_ALGORITHMS[algorithm]}: {sample.wrong} wrong"
        self.algorithms = [best]
        return dataclasses.replace(samples[best], detail=samples[best].detail + self.others,
                                   wrong=sum(sample.wrong for sample in samples.values()))

    def close(self):
        """Nothing runs between measurements."""


class Sparring:
    """sparring-perf with these arguments."""

    kind = "sparring"

    def __init__(self, tools, work, arguments):
        self.tools = tools
        self.work = work
        self.arguments = arguments

    def environment(self, rank, address, port):
        """What a rank is told."""
        hosts = self.work.hosts
        return {"SPARRING_RANK": str(rank), "SPARRING_SIZE": str(len(hosts)),
                "SPARRING_LOCAL_RANK": str(hosts[:rank].count(hosts[rank])),
                "SPARRING_LOCAL_SIZE": str(hosts.count(hosts[rank])),
                "SPARRING_ROOT": f"{address}:{port}", "SPARRING_JOB": f"{int(port):016x}",
                "SPARRING_SECRET_FILE": os.path.join(self.tools.hosts.folder, "secret")}

    def pin(self, rank):
        """The words in front of a rank's command."""
        cpus = sorted(os.sched_getaffinity(0))
        return ["taskset", "-c", str(cpus[rank % len(cpus)])] if self.work.pinned else []

    def bytes_of(self, row):
        """What is known of what the busiest rank sent."""
        entries, together = row.get("entries"), row.get("union_entries")
        known = {"ratio": row.get("ratio")}
        if row["collective"] == "sparse_allreduce" and entries and together:
            known["bound"] = bound_bytes(row["elements"], row["ranks"], entries, together)
            known["over_bound"] = row["sent_bytes"] / known["bound"]
        return known

    @staticmethod
    def pipeline_of(row):
        """What is known of buckets, beside which they are measured one at a time."""
        buckets = row.get("buckets")
        return {"overlap": row["overlap"], "gain": buckets["gain"]} if buckets else {}

    def rows(self):
        """One run of all ranks: the rows of its JSON."""
        work, address = self.work, self.tools.root(self.work)[0]
        if work.pinned and len(os.sched_getaffinity(0)) < len(work.hosts):
            raise Failed(f"{len(work.hosts)} ranks want a CPU each")
        port = self.tools.next_port()
        result = os.path.join(self.tools.hosts.folder, f"perf{port}.json")
        words = [self.tools.perf, *self.arguments, "--elements", str(work.elements), "-w",
                 str(work.warmup), "-n", str(work.iterations), "--json", result]
        job = Job(self.tools.hosts,
                  [Task(host, self.pin(rank) + words, self.environment(rank, address, port))
                   for rank, host in enumerate(work.hosts)])
        try:
            job.wait(work.limit_s)
        except Failed:
            # It fails after a wrong result, too, which it tells in its JSON.
            with contextlib.suppress(OSError, ValueError, KeyError):
                rows = rows_of(result)
                if any(row["wrong"] for row in rows):
                    return rows
            raise
        finally:
            job.close()
        return rows_of(result)

    def measure(self):
        """One run, of which the first row counts."""
        row = self.rows()[0]
        network = len(set(self.work.hosts)) > 1
        time = row["time_us"]
        return Sample(time["p50"], time["min"], time["max"], row["iterations"],
                      row["link_sent_bytes"] if network else None,
                      row["link_recv_bytes"] if network else None, row["wrong"], row["relerr"],
                      row["cpu_sum_us"], row.get("phase_us"),
                      f"{row['algorithm']}, {row['transport']}", **self.bytes_of(row),
                      **self.pipeline_of(row))

    def close(self):
        """Nothing runs between measurements."""


def rows_of(path):
    """Of the JSON of sparring-perf."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)["rows"]


class Link:
    """What iperf3 moves from the last host to the first, as the time of the least that a dense
    allreduce has to send and receive: 2(P-1)/P of the vector. Two ranks on one host share its
    CPUs: both send and receive there, and the rate is half of what both move together."""

    kind = "limit"

    def __init__(self, tools, work):
        self.tools = tools
        self.work = work

    def measure(self):
        """One run of three seconds."""
        hosts = self.tools.hosts
        last = self.work.hosts[-1]
        both = ["--bidir"] if last == 0 else []
        server = Job(hosts, [Task(0, ["iperf3", "--server", "--one-off", "--forceflush"])])
        try:
            server.watch(lambda: "listening" in read_output(server), 10)
            text = hosts.call(last, ["iperf3", "--client", hosts.address(0), "--time", "3",
                                     "--omit", "1", "--json", *both], 30)
        finally:
            server.close()
        end = json.loads(text)["end"]
        rate = end["sum_received"]["bits_per_second"]
        if both:
            rate = (rate + end["sum_received_bidir_reverse"]["bits_per_second"]) / 2
        ranks = len(self.work.hosts)
        least = 2 * (ranks - 1) / ranks * self.work.elements * 4
        us = least * 8 / rate * 1e6
        busy = end["cpu_utilization_percent"]
        busy = (busy["host_total"] + busy["remote_total"]) / 100
        each = ranks / len(os.sched_getaffinity(0))
        sample = Sample(us, us, us, 1, least, least, detail=f"iperf3: {rate / 1e6:.0f} Mbit/s")
        if not both:
            sample.byte_us = each * busy * 8e6 / rate
            sample.pass_us = each * pass_us(4 * self.work.elements)
        return sample

    def close(self):
        """Nothing runs between measurements."""


def pass_us(count):
    """The least time in which one CPU writes so many bytes that are there already."""
    memory, times = ctypes.create_string_buffer(count), []
    for value in range(4):
        begin = time.monotonic()
        ctypes.memset(memory, value, count)
        times.append(time.monotonic() - begin)
    return min(times) * 1e6


def read_output(job):
    """What the first process of a job has written so far."""
    with open(job.base + ".0.out", encoding="utf-8", errors="replace") as file:
        return file.read()
