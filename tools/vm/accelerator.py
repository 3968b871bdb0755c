# SPDX-License-Identifier: BSD-2-Clause
"""How the guests' CPUs are emulated: by KVM where it works, else by translation (TCG).

Machines offer /dev/kvm where a guest hangs, so a trial decides: once for each boot and kernel.
"""
import os
import subprocess
import tempfile

from .kernel import program
from .guest import die_with_parent, end_process
from .say import Failure, detail

DEVICE = "/dev/kvm"
TRIAL_SECONDS = 8
# Emulated CPUs against real ones.
TIME_FACTOR = {"tcg": "15", "kvm": "2"}


def works(kernel, initrd):
    """Boots a kernel until it runs programs; tools/vm/init then ends the guest."""
    with tempfile.TemporaryFile() as console:
        words = [program("qemu-system-x86_64", "qemu-system-x86"), "-M", "q35", "-nodefaults"]
        words += ["-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]
        words += ["-accel", "kvm", "-cpu", "host", "-m", "256M", "-kernel", kernel + "/vmlinux"]
        words += [
            "-initrd",
            initrd,
            "-append",
            "console=ttyS0 quiet panic=-1 rdinit=/init sparring-vm-trial",
        ]
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        try:
            process.wait(TRIAL_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            end_process(process)
        console.seek(0)
        return b"sparring-vm: it works" in console.read()


def choose(wanted, kernel, initrd, cache):
    """kvm or tcg."""
    if wanted == "tcg":
        return wanted
    usable = os.access(DEVICE, os.R_OK | os.W_OK)
    if wanted == "kvm":
        if not usable:
            raise Failure("--accel kvm: %s cannot be opened" % DEVICE)
        return wanted
    if not usable:
        return "tcg"
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        trial = "%s %s" % (file.read().strip(), os.path.basename(kernel))
    path = os.path.join(cache, "kvm-trial")
    try:
        with open(path, encoding="ascii") as file:
            before, _, verdict = file.read().rpartition(" ")
    except OSError:
        before = verdict = ""
    if before != trial:
        detail("trying KVM")
        verdict = "kvm" if works(kernel, initrd) else "tcg"
        with open("%s.%d" % (path, os.getpid()), "w", encoding="ascii") as file:
            file.write("%s %s" % (trial, verdict))
        os.rename(file.name, path)
    detail("KVM works" if verdict == "kvm" else "KVM does not work here, CPUs are translated")
    return verdict
