# SPDX-License-Identifier: BSD-2-Clause
"""Emulated hosts that stay up while several jobs run on them, one after the other.

sparring-run --emulate builds the links and starts one keeper per host, a process that does nothing.
Jobs enter a host by its keeper's namespaces. So all peers run on the very same links.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time

ALLOWED = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
POLL_S = 0.05

# $1: the folder. Rank 0 ends, and with it all hosts, when the driver is gone.
KEEPER = r"""
echo $$ >"$1/new.$SPARRING_RANK" && mv "$1/new.$SPARRING_RANK" "$1/h$SPARRING_RANK"
[ "$SPARRING_RANK" != 0 ] || { cat; exit 1; }
exec sleep infinity
"""


class Failed(Exception):
    """A job or the network cannot be used; the text says why, in one line."""


def read_text(path):
    """The text of a file, empty when there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def end_groups(processes):
    """Ends processes and their groups: TERM to all, up to two seconds, KILL to all."""
    for number, limit_s in ((signal.SIGTERM, 2), (signal.SIGKILL, 5)):
        end = time.monotonic() + limit_s
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0, end - time.monotonic()))


@contextlib.contextmanager
def congestion_allowed(name):
    """Lets network namespaces choose this congestion control; yields whether they may."""
    allowed = read_text(ALLOWED)
    if name in allowed.split():
        yield True
        return
    try:
        with open(ALLOWED, "w", encoding="ascii") as file:
            file.write(allowed.strip() + " " + name)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        with open(ALLOWED, "w", encoding="ascii") as file:
            file.write(allowed)


class Hosts:
    """Hosts 0 to count - 1, as a context. folder: for their files, must be empty and private."""

    def __init__(self, sparring_run, count, rate, folder):
        self.command = [sparring_run, "-n", str(count), "--emulate", rate]
        self.count = count
        self.folder = folder
        self.keepers = []
        self.process = None
        self.jobs = 0
        self.open = set()  # jobs that are not closed
        self.congestion = None

    def __enter__(self):
        with congestion_allowed("cubic") as allowed:
            if allowed:
                self.command += ["--cc", "cubic"]
            self.start()
        path = "/proc/sys/net/ipv4/tcp_congestion_control"
        self.congestion = self.call(0, ["cat", path], 10).strip()
        return self

    def start(self):
        """Waits until all keepers are there."""
        errors = os.path.join(self.folder, "network.err")
        with open(errors, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(
                self.command + ["--", "sh", "-c", KEEPER, "sh", self.folder],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=file,
                start_new_session=True)
        end = time.monotonic() + 60
        names = [os.path.join(self.folder, f"h{i}") for i in range(self.count)]
        while not all(os.path.exists(name) for name in names):
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                text = read_text(errors).strip().splitlines()
                raise Failed("no emulated network: " + (text[-1] if text else "it takes too long"))
            time.sleep(POLL_S)
        self.keepers = [int(read_text(name)) for name in names]
        for host, name in enumerate(names):  # for mpi-shell
            shutil.copyfile(name, os.path.join(self.folder, self.address(host)))

    def __exit__(self, *_):
        self.sweep()
        self.stop()

    def stop(self):
        """The end of its input ends the first keeper, which ends all."""
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            end_groups([self.process])

    def address(self, host):
        """As tools/run/emulate.c gives them."""
        return f"10.77.{host // 250 % 256}.{host % 250 + 1}"

    def enter(self, host):
        """The words in front of a command that shall run on the host and die with this process."""
        words = ["setpriv", "--pdeathsig", "KILL", "nsenter", "--target", str(self.keepers[host])]
        if os.geteuid() != 0:
            words += ["--user", "--preserve-credentials"]
        return words + ["--net", "--uts"]

    def call(self, host, argv, limit_s):
        """The output of a short command on a host."""
        job = Job(self, [Task(host, argv)])
        try:
            return job.wait(limit_s)
        finally:
            job.close()

    def sweep(self):
        """Kills what runs inside the hosts, besides the keepers and the open jobs."""
        def namespace(pid):
            try:
                return os.readlink(f"/proc/{pid}/ns/net")
            except OSError:
                return None

        inside = {namespace(pid) for pid in self.keepers} - {None}
        keep = set(self.keepers).union(*(job.pids() for job in self.open))
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            parent = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[1:2]
            if namespace(pid) in inside and pid not in keep and int(parent[0]) not in keep:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


class Task:
    """One process of a job. environment: added to this process's own."""

    def __init__(self, host, argv, environment=None):
        self.host = host
        self.argv = argv
        self.environment = environment or {}


class Job:
    """Processes that belong together; the output that counts is the first one's."""

    def __init__(self, hosts, tasks):
        hosts.jobs += 1
        self.hosts = hosts
        self.hosts.open.add(self)
        self.base = os.path.join(hosts.folder, f"job{hosts.jobs}")
        self.processes = []
        self.taken = 0  # lines of the output that were handed out
        try:
            for number, task in enumerate(tasks):
                self.start(number, task)
        except OSError as error:
            self.close()
            raise Failed(f"{task.argv[0]}: {error.strerror}") from error

    def start(self, number, task):
        """Starts one process."""
        with open(f"{self.base}.{number}.out", "wb") as output, \
                open(f"{self.base}.{number}.err", "wb") as error:
            self.processes.append(subprocess.Popen(
                self.hosts.enter(task.host) + task.argv, env=os.environ | task.environment,
                stdin=subprocess.PIPE, stdout=output, stderr=error, start_new_session=True))

    def pids(self):
        """Those of its processes."""
        return [process.pid for process in self.processes]

    def failure(self):
        """What the first process that failed said last."""
        for number, process in enumerate(self.processes):
            if process.poll() not in (None, 0):
                lines = read_text(f"{self.base}.{number}.err").strip().splitlines()
                lines = [line for line in lines if line.strip(" -")]
                code = f"process {number}, exit code {process.returncode}"
                return f"{code}: {lines[-1].strip()[:160]}" if lines else code
        return None

    def watch(self, done, limit_s):
        """Polls until done() gives something true, which is returned."""
        end = time.monotonic() + limit_s
        while True:
            result = done()
            if result:
                return result
            if self.failure():
                time.sleep(1)  # the others may have more to say
                raise Failed(self.failure())
            if time.monotonic() > end:
                raise Failed(f"no answer within {limit_s:.0f} s")
            time.sleep(POLL_S)

    def send(self, line):
        """A line to the standard input of each process."""
        for process in self.processes:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(line.encode() + b"\n")
                process.stdin.flush()

    def line(self, limit_s):
        """The next line of output."""
        def done():
            lines = read_text(self.base + ".0.out").splitlines(keepends=True)[self.taken:]
            return lines[0] if lines and lines[0].endswith("\n") else None

        text = self.watch(done, limit_s)
        self.taken += 1
        return text

    def wait(self, limit_s):
        """Until all have ended well; returns the output."""
        for process in self.processes:
            process.stdin.close()
        self.watch(lambda: all(process.poll() == 0 for process in self.processes), limit_s)
        return read_text(self.base + ".0.out")

    def close(self):
        """Ends what is left."""
        self.hosts.open.discard(self)
        for process in self.processes:
            with contextlib.suppress(OSError):
                process.stdin.close()
        left = [process for process in self.processes if process.poll() is None]
        if left:
            end_groups(left)
            self.hosts.sweep()
