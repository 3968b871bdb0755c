# SPDX-License-Identifier: BSD-2-Clause
"""sparring-vm from the command line to its exit code."""
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time

from . import image, kernel, options as command_line, say
from .guest import Guest, job_command, kept_folders
from .say import Failure, detail


class Ended(Exception):
    """By a signal."""

    def __init__(self, number):
        super().__init__()
        self.number = number


def on_signal(number, _frame):
    raise Ended(number)


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data) :]


class Run:
    """The guests of one call, until they have ended."""

    def __init__(self, options, folder):
        self.options = options
        self.guest = Guest(0, folder)
        self.selector = selectors.DefaultSelector()
        self.start = time.monotonic()
        self.status = None
        self.ready = False
        self.words = b""

    def boot(self):
        cache = kernel.cache_folder()
        where = kernel.find(cache)
        initrd = image.build(where, cache)
        environment = dict(os.environ)
        environment.setdefault("SPARRING_TIME_FACTOR", "15")
        environment.update(
            SPARRING_VM_GUEST="0", SPARRING_VM_GUESTS="1", SPARRING_VM_ADDRESSES="10.9.0.1"
        )
        self.guest.write_job(
            {
                "host_name": "guest0",
                "rails": "0",
                "mtu": 9000,
                "addresses_0": "10.9.0.1/24 fd09::1/64",
            },
            kept_folders([os.getcwd()] + self.options.write + self.options.command),
            self.options.write,
            job_command(self.options.command, environment, os.getcwd()),
        )
        detail("starting QEMU with %s" % os.path.basename(where))
        self.start = time.monotonic()
        self.guest.start(self.options, where, initrd, "tcg,thread=multi")
        for port, stream in self.guest.ports.items():
            self.selector.register(stream, selectors.EVENT_READ, port)

    def hear(self, port, data):
        if port != "end":
            write_all(1 if port == "out" else 2, data)
            return
        self.words += data
        while b"\n" in self.words:
            line, self.words = self.words.split(b"\n", 1)
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "ready":
                self.ready = True
                detail("the guest is up after %.1f s" % (time.monotonic() - self.start))
            elif word == "end":
                self.status = int(rest)
            elif word == "failed":
                raise Failure("the guest cannot be used: " + rest)

    def wait(self):
        """Until the command has ended and all it wrote is here."""
        deadline = self.start + self.options.timeout if self.options.timeout else None
        while self.selector.get_map():
            if deadline is not None and time.monotonic() >= deadline:
                say.say("the time is over (--timeout %g)" % self.options.timeout)
                return 124
            left = None if deadline is None else deadline - time.monotonic()
            events = self.selector.select(0 if self.status is not None else left)
            if self.status is not None and not events:
                detail("the command has ended after %.1f s" % (time.monotonic() - self.start))
                return self.status
            for key, _ in events:
                data = key.fileobj.recv(65536)
                if data:
                    self.hear(key.data, data)
                else:
                    self.selector.unregister(key.fileobj)
        if self.status is not None:
            return self.status
        self.guest.process.wait()
        raise Failure(
            "the guest ended %s: %s"
            % (
                "before the command did" if self.ready else "while it started",
                self.guest.evidence(),
            )
        )


def run(options):
    folder = tempfile.mkdtemp(prefix="sparring-vm.")
    job = Run(options, folder)
    try:
        job.boot()
        return job.wait()
    finally:
        job.guest.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main(words, version):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    try:
        options = command_line.parse(words)
        if not isinstance(options, command_line.Options):
            print("sparring-vm (Sparring) %s" % version if options is True else options)
            return 0
        say.verbose = options.verbose
        return run(options)
    except Failure as failure:
        say.say(failure)
        return failure.code
    except Ended as ended:
        return 128 + ended.number
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    finally:
        sys.stdout.flush()
