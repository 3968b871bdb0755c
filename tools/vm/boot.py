# SPDX-License-Identifier: BSD-2-Clause
"""All of one call that has a command: what guests need, the guests, and their end."""
import fcntl
import glob
import os
import shutil
import signal
import tempfile
import time

from . import accelerator, image, kernel
from .guest import Guest, kept_folders
from .network import Network
from .run import Run
from .say import Failure, detail


def helper(folder, name):
    path = os.path.join(folder, name)
    if not os.access(path, os.X_OK):
        raise Failure("%s is missing: build it with make" % path)
    return path


def settings(guest, options, agent, where):
    """What tools/vm/init of a guest has to know."""
    return {
        "guest": guest.number,
        "guests": options.guests,
        "rails": " ".join(str(rail) for rail in range(options.rails)),
        "mtu": options.mtu,
        "netem": " ".join(options.netem or []),
        "agent": agent,
        "kernel": where,
    }


def make_folder():
    """A private folder. Those of runs that were killed are removed: nobody holds their locks."""
    for lock in glob.glob(os.path.join(tempfile.gettempdir(), "sparring-vm.*", "lock")):
        try:
            with open(lock, "w", encoding="ascii") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(os.path.dirname(lock), ignore_errors=True)
        except OSError:
            pass
    folder = tempfile.mkdtemp(prefix="sparring-vm.")
    path = os.path.join(folder, "new")
    lock = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(path, os.path.join(folder, "lock"))  # nobody sees it while it is not held
    return folder


def limit_start(seconds):
    """Until 0 is given: what comes before Run, such as a download, does not look at a clock."""

    def late(*_):
        raise Failure("the time is over (--timeout %g)" % seconds, 124)

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def run(options, helpers, signals):
    end = None if options.timeout is None else time.monotonic() + options.timeout
    limit_start(options.timeout or 0)
    kernel.program("qemu-system-x86_64", "qemu-system-x86")
    agent, switch = (helper(helpers, "sparring-vm-" + name) for name in ("agent", "switch"))
    cache = kernel.cache_folder()
    where = kernel.find(cache)
    initrd = image.build(where, cache)
    chosen = accelerator.choose(options.accel, where, initrd, cache)
    limit_start(0)
    if options.prepare:
        return 0
    folder = make_folder()
    guests, network, job = [], None, None
    try:
        network = Network(options.guests, options.rails, switch, folder)
        paths = [os.getcwd(), agent, where] + options.write + options.command
        detail("starting %d with %s, %s" % (options.guests, os.path.basename(where), chosen))
        for number in range(options.guests):
            guest = Guest(number, folder)
            guest.write_job(
                settings(guest, options, agent, where),
                {"kept": kept_folders(paths), "written": options.write},
            )
            guests.append(guest)
            guest.start(guest.words(options, where, initrd, chosen), network.sockets[number])
            network.hand_over(number)
        job = Run(options, guests, network, folder, accelerator.TIME_FACTOR[chosen], end)
        return job.loop(signals)
    finally:
        for part in [job] + guests + [network]:
            if part is not None:
                part.stop()
        shutil.rmtree(folder, ignore_errors=True)
