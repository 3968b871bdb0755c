# SPDX-License-Identifier: BSD-2-Clause
"""One guest: its QEMU process, the agent in it, and the monitor of QEMU."""
import contextlib
import ctypes
import glob
import json
import os
import shlex
import signal
import socket
import subprocess

from .kernel import program
from .port import Port
from .say import say

# Nothing that the kernel could spend time on; the clock of the host needs no check.
BOOT_LINE = (
    "console=ttyS0 quiet panic=-1 rdinit=/init tsc=reliable no_timer_check mitigations=off "
    "cryptomgr.notests=1 rcupdate.rcu_expedited=1 audit=0"
)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
END_SECONDS = 20


def die_with_parent():
    """In a child: it does not outlive sparring-vm, whatever ends that."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans():
    """From now on what a child has started becomes a child, too, when its parent is gone."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children():
    """Process ids of those that run."""
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            pid, text = file.read().split(b" (", 1)
            state, parent = text.rpartition(b") ")[2].split()[:2]
            if int(parent) == os.getpid() and state != b"Z":
                yield int(pid)


def spawn(words, fds, log):
    """A process that no signal of the terminal reaches."""
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        pass_fds=fds,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def end_process(process):
    """At once. One that the kernel does not let go, as happens with KVM, is not waited for."""
    process.kill()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        say("process %d cannot be killed" % process.pid)


def kept_folders(paths):
    """Entries of the host's /tmp, /run, /dev/shm that these paths need; guests have their own."""
    kept = set()
    for path in paths:
        for base in ("/tmp/", "/run/", "/dev/shm/"):
            if path.startswith(base):
                top = base + path[len(base) :].split("/")[0]
                if os.path.isdir(top) and "\n" not in top:
                    kept.add(top)
    return sorted(kept)


def addresses(guest, rail):
    return "10.9.%d.%d" % (rail, guest + 1), "fd09:0:0:%x::%x" % (rail, guest + 1)


class Guest:
    """start() boots it; ready is set by whoever hears its agent say so."""

    def __init__(self, number, folder):
        self.number = number
        self.folder = os.path.join(folder, "guest%d" % number)
        self.console = os.path.join(self.folder, "console")
        self.job = os.path.join(self.folder, "job")
        self.port = self.monitor = self.process = None
        self.ready = False
        self.killed = False  # on purpose
        self.gone = False
        self.paused = False
        os.makedirs(self.job)

    def write_job(self, settings, lists):
        """For tools/vm/init: variables of the shell, and files with one path on a line."""
        for name, paths in lists.items():
            with open(os.path.join(self.job, name), "wb") as file:
                file.writelines(os.fsencode(path) + b"\n" for path in paths)
        with open(self.job + "/settings", "w", encoding="utf-8") as file:
            for name, value in settings.items():
                file.write("%s=%s\n" % (name, shlex.quote(str(value))))

    def shares(self, options):
        """(tag, path, read only) of the folders that it sees."""
        yield "host", "/", "on"
        yield "job", self.job, "on"
        for number, path in enumerate(options.write):
            yield "write%d" % number, path, "off"

    def words(self, options, kernel, initrd, accelerator):
        words = [program("qemu-system-x86_64", "qemu-system-x86")]
        words += ["-M", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        words += ["-accel", "kvm" if accelerator == "kvm" else "tcg,thread=multi"]
        # Emulated, "rep movsb" and "rep stosb" move a byte at a time. Without these flags kernel
        # and libc copy and clear by other instructions, and soft-RoCE is twice as fast. Those of
        # 256 bits, which libc would choose, leave the upper halves of the host's registers dirty,
        # and then each addition of floats takes a transition of 110 to 170 ns (on Emerald Rapids).
        words += ["-cpu", "host" if accelerator == "kvm" else "max,erms=off,fsrm=off,avx2=off"]
        words += ["-smp", str(options.smp), "-m", "%dM" % (options.mem >> 20)]
        words += ["-kernel", kernel + "/vmlinux", "-initrd", initrd, "-append", BOOT_LINE]
        words += ["-serial", "file:" + self.console.replace(",", ",,")]
        words += ["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]
        for tag, path, read_only in self.shares(options):
            words.append("-virtfs")
            words.append(
                "local,path=%s,mount_tag=%s,security_model=none,readonly=%s,multidevs=remap"
                % (path.replace(",", ",,"), tag, read_only)
            )
        return words

    def names(self):
        return {str(self.number), "guest%d" % self.number} | set(addresses(self.number, 0))

    def start(self, words, network):
        """network: for each rail a socket, or None where nobody else is."""
        agent, their_agent = socket.socketpair()
        monitor, their_monitor = socket.socketpair()
        fds = [their_agent.fileno(), their_monitor.fileno()]
        words += ["-chardev", "socket,id=agent,fd=%d" % fds[0]]
        words += ["-device", "virtserialport,chardev=agent,name=agent"]
        words += ["-chardev", "socket,id=monitor,fd=%d" % fds[1]]
        words += ["-mon", "chardev=monitor,mode=control"]
        for rail, stream in enumerate(network):
            if stream is None:
                words += ["-netdev", "hubport,hubid=%d,id=net%d" % (rail, rail)]
            else:
                words += ["-netdev", "socket,fd=%d,id=net%d" % (stream.fileno(), rail)]
                fds.append(stream.fileno())
            address = "52:54:00:09:%02x:%02x" % (rail, self.number + 1)
            device = "virtio-net-pci,netdev=net%d,id=nic%d,mac=%s,romfile=" % (rail, rail, address)
            words += ["-device", device]
        with open(self.folder + "/qemu", "wb") as log:
            self.process = spawn(words, fds, log)
        their_agent.close()
        their_monitor.close()
        self.port = Port(agent)
        self.monitor = monitor
        self.monitor.setblocking(False)
        self.tell_monitor("qmp_capabilities")

    def tell_monitor(self, command, **arguments):
        try:
            line = json.dumps({"execute": command, "arguments": arguments}) + "\n"
            self.monitor.sendall(line.encode())
        except OSError:
            pass  # the guest is gone, which others notice

    def stop(self):
        if self.process is not None:
            end_process(self.process)

    def evidence(self):
        """What QEMU or the guest's kernel said last, or what tools/vm/init or a panic said."""
        lines = []
        for name in (self.folder + "/qemu", self.console):
            with contextlib.suppress(OSError), open(name, "rb") as file:
                text = file.read().decode(errors="replace")
                lines += [line.strip() for line in text.splitlines() if line.strip()]
        lines = [line for line in lines if "is not connected to host network" not in line]
        for mark in ("sparring-vm: ", "Kernel panic"):
            for line in lines:
                if mark in line:
                    return line[line.index(mark) :].replace("sparring-vm: ", "")
        return lines[-1] if lines else "no output"
