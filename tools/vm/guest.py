# SPDX-License-Identifier: BSD-2-Clause
"""One guest: its QEMU process, and the ports through which it speaks."""
import ctypes
import os
import shlex
import signal
import socket
import subprocess

from .kernel import program

PORTS = ("out", "err", "end")
# Nothing that the kernel could spend time on; the clock of the host needs no check.
BOOT_LINE = (
    "console=ttyS0 quiet panic=-1 rdinit=/init tsc=reliable no_timer_check mitigations=off "
    "cryptomgr.notests=1 rcupdate.rcu_expedited=1 audit=0"
)
PR_SET_PDEATHSIG = 1


def die_with_parent():
    """In the child: QEMU does not outlive sparring-vm, whatever ends that."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def job_command(words, environment, folder):
    """A shell script that runs the command as it would run here."""
    lines = []
    for name, value in environment.items():
        if name.isidentifier() and name.isascii():
            lines.append("export %s=%s" % (name, shlex.quote(value)))
    lines.append("cd %s || exit 1" % shlex.quote(folder))
    lines.append("exec %s" % " ".join(shlex.quote(word) for word in words))
    return "\n".join(lines) + "\n"


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


class Guest:
    """Started by start(); ends when its command has ended, or by stop()."""

    def __init__(self, number, folder):
        self.number = number
        self.folder = os.path.join(folder, "guest%d" % number)
        self.console = os.path.join(self.folder, "console")
        self.job = os.path.join(self.folder, "job")
        self.ports = {}
        self.process = None
        os.makedirs(self.job)

    def write_job(self, settings, kept, written, command):
        with open(self.job + "/settings", "w", encoding="utf-8") as file:
            file.writelines(
                "%s=%s\n" % (name, shlex.quote(str(value))) for name, value in settings.items()
            )
        for name, paths in (("kept", kept), ("written", written)):
            with open(
                os.path.join(self.job, name), "w", encoding="utf-8", errors="surrogateescape"
            ) as file:
                file.writelines(path + "\n" for path in paths)
        with open(self.job + "/command", "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(command)

    def shares(self, options):
        yield "host", "/", "on"
        yield "job", self.job, "on"
        for number, path in enumerate(options.write):
            yield "write%d" % number, path, "off"

    def start(self, options, kernel, initrd, accelerator):
        words = [
            program("qemu-system-x86_64", "qemu-system-x86"),
            "-M",
            "q35",
            "-nodefaults",
            "-no-user-config",
            "-accel",
            accelerator,
            "-cpu",
            "host" if accelerator == "kvm" else "max",
            "-smp",
            str(options.smp),
            "-m",
            "%dM" % (options.mem >> 20),
            "-display",
            "none",
            "-no-reboot",
            "-serial",
            "file:" + self.console,
            "-kernel",
            kernel + "/vmlinux",
            "-initrd",
            initrd,
            "-append",
            BOOT_LINE,
        ]
        for tag, path, access in self.shares(options):
            words += [
                "-virtfs",
                "local,path=%s,mount_tag=%s,security_model=none,readonly=%s,multidevs=remap"
                % (path.replace(",", ",,"), tag, access),
            ]
        words += [
            "-netdev",
            "hubport,hubid=0,id=net0",
            "-device",
            "virtio-net-pci,netdev=net0,romfile=,mac=52:54:00:09:00:%02x" % (self.number + 1),
            "-device",
            "virtio-rng-pci",
            "-device",
            "virtio-serial-pci",
        ]
        theirs = []
        for port in PORTS:
            ours, their = socket.socketpair()
            self.ports[port] = ours
            theirs.append(their)
            words += [
                "-chardev",
                "socket,id=%s,fd=%d" % (port, their.fileno()),
                "-device",
                "virtserialport,chardev=%s,name=%s" % (port, port),
            ]
        with open(self.folder + "/qemu", "wb") as log:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[their.fileno() for their in theirs],
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        for their in theirs:
            their.close()

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def evidence(self):
        """What QEMU or the console said last."""
        for name in (self.folder + "/qemu", self.console):
            try:
                with open(name, encoding="utf-8", errors="replace") as file:
                    lines = [line.strip() for line in file if line.strip()]
            except OSError:
                continue
            lines = [line for line in lines if "is not connected" not in line]
            if lines:
                return lines[-1]
        return "no output"
