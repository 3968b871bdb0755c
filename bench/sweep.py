# SPDX-License-Identifier: BSD-2-Clause
"""Runs the points of the sweep, and those of the recorded gradients.

A point is one job of sparring-perf: the library's choice, each algorithm by name and the dense sum
take turns, iteration by iteration, in an order that is drawn for each, so none of them has a
quieter machine. A point is kept as a dictionary, as the JSON has it.
"""

import contextlib
import glob
import os
import struct
import subprocess
import tempfile

import cells
import plan
from hosts import Failed, Hosts
from peers import Sparring, Work

FEWEST, MOST = 3, 200  # iterations of a point
POINT_S = {False: 5, True: 0.4}  # as many as fit into this time, by prediction; --quick
LARGE_BYTES = 64 << 20  # from here on only every other density
KEPT = ("collective", "algorithm", "taken", "codec", "iterations", "time_us", "cpu_sum_us",
        "sent_bytes", "link_sent_bytes", "entries", "union_entries", "wrong", "relerr", "phase_us",
        "predicted_us", "tuned_us")


def memory_room():
    """Half of what is free."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024 / 2
    return 4e9


def algorithm_names(perf):
    """{collective: [name]}, as the program lists them."""
    done = subprocess.run([perf, "--algo", "help"], stdout=subprocess.PIPE, check=False, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    return {words[0]: words[1:] for words in lines if words[1:2] == ["auto"]}


def iterations_of(seconds, quick):
    """How often, when all rows together take so long."""
    return max(FEWEST, min(MOST, int(POINT_S[quick] / max(seconds, 1e-9))))


class TrainingFailed(Failed):
    """A program of ours that was there did not do its part."""


class Sweep:
    """Its points, and what was left out and why."""

    def __init__(self, options, tools):
        self.options = options
        self.tools = tools
        self.cpus = len(os.sched_getaffinity(0))
        self.room = memory_room()
        self.names = algorithm_names(tools.perf)
        self.points = []
        self.left_out = []
        self.congestion = None

    def add(self, kind, cell, density, **more):
        """Plans a point: the algorithms that are predicted to be fast enough and have room."""
        names = ["auto"]
        if kind != "compressed":
            names = self.names["allreduce" if kind == "dense" else "sparse_allreduce"]
        seconds = cells.predict_s(cell, density, names, self.cpus)
        slow = {name: round(s, 2) for name, s in seconds.items() if s > cells.SLOW_S}
        names = [name for name in names if name not in slow]
        room = len(names)
        if density is not None:
            room = max(1, cells.rows_that_fit(cell, density, self.room))
        point = {"kind": kind, "hosts": cell.hosts, "ranks_per_host": cell.per_host,
                 "rate": cell.rate, "elements": cell.elements, "density": density, **more,
                 "algorithms": names[:room], "too_slow_s": slow, "no_room": names[room:],
                 "error": None, "load": None, "rows": []}
        point["predicted_s"] = sum(seconds[name] for name in names[:room])
        point["iterations"] = iterations_of(point["predicted_s"], self.options.quick)
        if names:
            self.points.append(point)
        else:
            self.left_out.append({"cell": title(point), "why": f"it would take longer than "
                                                               f"{cells.SLOW_S} s"})

    def plan_cells(self):
        """The covering set, or what --cells says."""
        options, fitting, others = self.options, [], {}
        for cell in options.cells or cells.all_cells(options.quick, options.elements):
            why = cells.fits(cell, self.cpus, self.room)
            if why:
                others[cell] = why
            else:
                fitting.append(cell)
        if options.cells:
            wanted = fitting
            missing = {cell.name: why for cell, why in others.items()}
        else:
            usual = cells.Cell(options.hosts, 1, options.rate, options.elements)
            wanted = cells.cover(fitting, [] if options.quick else [usual], self.cost)
            easiest = sorted(others, key=lambda cell: (cell.ranks, self.cost(cell)))
            missing = cells.never_met(easiest, fitting)
            missing = {words: others[cell] for words, cell in missing.items()}
        self.left_out += [{"cell": name, "why": why} for name, why in missing.items()]
        for cell in wanted:
            self.plan_cell(cell)

    def cost(self, cell):
        """Seconds of a dense sum."""
        return cells.predict_s(cell, None, ["auto"], self.cpus)["auto"]

    def plan_cell(self, cell):
        """Its densities, and the dense algorithms."""
        densities = self.options.densities or cells.SETS[self.options.quick]["density"]
        if cell.elements * 4 >= LARGE_BYTES and not self.options.densities:
            densities = densities[1::2]
        for density in densities:
            if density * cell.elements >= 1:
                self.add("sparse", cell, density)
        self.add("dense", cell, None)

    def plan_trace(self, folder):
        """Points of the gradients in a folder, on the network of the other rows."""
        elements, ranks = trace_shape(folder)
        cell = cells.Cell(min(self.options.hosts, ranks), 1, self.options.rate, elements)
        why = cells.fits(cell, self.cpus, self.room)
        if why:
            self.left_out.append({"cell": f"trace {cell.name}", "why": why})
            return
        for density in (0.01,) if self.options.quick else (0.001, 0.01, 0.1):
            self.add("trace", cell, density, pattern=f"trace:{folder}")
            self.add("compressed", cell, density, pattern=f"trace:{folder}")

    def measure(self):
        """All points, network by network."""
        total = sum(point["predicted_s"] * (point["iterations"] + 3) for point in self.points)
        plan.progress(f"sweep: {len(self.points)} points; left out: {len(self.left_out)}; the sums "
                      f"alone should take about {total:.0f} s, start and checks come on top")
        networks = {}
        for point in self.points:
            networks.setdefault((point["hosts"], point["rate"]), []).append(point)
        for (hosts, rate), points in networks.items():
            with tempfile.TemporaryDirectory(prefix="sparring-compare.") as folder:
                write_secret(folder)
                try:
                    with Hosts(self.tools.run, hosts, rate, folder) as network:
                        self.tools.hosts = network
                        self.congestion = network.congestion
                        for point in points:
                            self.measure_point(point)
                except Failed as failure:
                    for point in points:
                        if not point["rows"]:
                            point["error"] = point["error"] or str(failure)

    def measure_point(self, point):
        """One job."""
        hosts = [h for h in range(point["hosts"]) for _ in range(point["ranks_per_host"])]
        limit_s = self.options.timeout or (60 + 50 * point["predicted_s"]
                                           + len(hosts) * point["elements"] / 5e5)
        work = Work(point["elements"], 1, point["iterations"], limit_s, hosts)
        point["load"] = os.getloadavg()[0]
        try:
            rows = Sparring(self.tools, work, arguments(point)).rows()
        except (Failed, OSError, ValueError, KeyError) as error:
            point["error"] = str(error) or type(error).__name__
            plan.progress(f"  {title(point)}: {point['error']}")
            return
        point["rows"] = [{key: row[key] for key in KEPT if row.get(key) is not None}
                         for row in rows]
        auto = point["rows"][0]["time_us"]["p50"] / 1e3
        done = self.points.index(point) + 1
        plan.progress(f"  {title(point)}: auto {auto:.3f} ms, {len(rows)} rows; {done} of "
                      f"{len(self.points)} points")

    def run(self):
        """Plans what the options ask for, and measures it."""
        options = self.options
        with tempfile.TemporaryDirectory(prefix="sparring-trace.") as folder:
            if options.wants("trace"):
                try:
                    if options.trace is None:
                        record(options, self.tools, folder)
                    self.plan_trace(options.trace or folder)
                except (Failed, OSError) as failure:
                    self.left_out.append({"cell": "trace", "why": str(failure),
                                          "failed": isinstance(failure, TrainingFailed)})
                    plan.progress(f"trace: {failure}")
            if options.wants("sweep"):
                self.plan_cells()
            if self.points:
                self.measure()

    def result(self):
        """For the JSON; None when nothing of it was asked for."""
        if not self.points and not self.left_out:
            return None
        return {"slow_s": cells.SLOW_S, "congestion": self.congestion, "left_out": self.left_out,
                "points": self.points}


def title(point):
    """A point in a few words."""
    density = "" if point["density"] is None else f", {point['density']:.4g}"
    return (f"{point['kind']} {point['hosts']}x{point['ranks_per_host']}/{point['rate']}/"
            f"{point['elements'] * 4}{density}")


def arguments(point):
    """For sparring-perf, which measures a model first, if none is given, and says what that
    predicts; then what all algorithms take for such calls, by which auto chooses."""
    words = {"dense": ["allreduce"], "compressed": ["compressed_allreduce", "--baseline"]}.get(
        point["kind"], ["sparse_allreduce", "--baseline"])
    words += ["--explain", "--tune", "--algo", ",".join(point["algorithms"])]
    if point["density"] is not None:
        words += ["--density", f"{point['density']:.9f}"]
    return words + (["--pattern", point["pattern"]] if "pattern" in point else [])


def write_secret(folder):
    """The secret of a folder's jobs."""
    secret = os.open(os.path.join(folder, "secret"), os.O_WRONLY | os.O_CREAT, 0o600)
    with open(secret, "wb") as file:
        file.write(os.urandom(32))


def trace_shape(folder):
    """Elements and ranks of recorded gradients (man sparring-perf, FILES)."""
    for name in sorted(glob.glob(os.path.join(glob.escape(folder), "step*.rank0.f32"))):
        with open(name, "rb") as file:
            head = file.read(32)
        if len(head) == 32 and head[:8] == b"SPRTRACE":
            *_, ranks, elements = struct.unpack("<8sIIIIQ", head)
            return elements, ranks
    raise Failed(f"{folder} has no file step<S>.rank0.f32 of a trace")


def record(options, tools, folder):
    """Trains a few steps as tools/demo does, and keeps two gradients of each rank."""
    program = os.path.join(options.build, "examples", "train_digits")
    if not os.access(program, os.X_OK):
        raise Failed(f"{program} is missing (make examples/train_digits)")
    ranks = min(options.hosts, 4) if options.quick else options.hosts
    words = [tools.run, "-n", str(ranks), "--", program, "--method", "dense", "--epochs", "1",
             "--steps-per-epoch", "20", "--dump-gradients", folder, "--dump-steps", "9,19"]
    plan.progress(f"recording gradients of {ranks} ranks")
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired as error:
        raise TrainingFailed("train_digits: no end within 300 s") from error
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("train_digits:")]
        raise TrainingFailed(said[-1] if said else f"train_digits: exit code {done.returncode}")
