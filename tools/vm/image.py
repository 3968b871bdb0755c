# SPDX-License-Identifier: BSD-2-Clause
"""The initial file system of a guest: busybox, the modules in the order of their loading, the init.

It is built once for a kernel and kept in the cache, named by a hash of all that went into it.
"""
import contextlib
import glob
import hashlib
import os
import stat
import time

from .kernel import modules_folder, program
from .say import Failure

# Two lists that load at the same time, each in its order; what these need comes before. rxe asks
# for crc32_generic by name only.
MODULES = {
    "host": ("virtio_pci", "virtio_console", "9p", "9pnet_virtio", "virtio_net", "virtio_rng"),
    "rdma": ("crc32_generic", "rdma_rxe", "rdma_ucm"),
}
UNUSED_SECONDS = 7 * 86400  # then an archive is removed
APPLETS = ("sh", "cat", "chroot", "cp", "insmod", "ip", "ln", "mkdir", "mount", "sleep")


def module_files(kernel):
    """(list, path) of the modules to load, in order."""
    folder = modules_folder(kernel)
    needs, built_in = {}, set()
    with open(folder + "/modules.dep", encoding="ascii") as lines:
        for line in lines:
            path, _, others = line.strip().partition(":")
            needs[path] = others.split()
    with contextlib.suppress(OSError), open(folder + "/modules.builtin", encoding="ascii") as lines:
        built_in.update(module_name(line.strip()) for line in lines)
    paths = {module_name(path): path for path in needs}
    for group, names in MODULES.items():
        done = set()
        for name in names:
            if name in built_in:
                continue
            if name not in paths:
                raise Failure("the kernel in %s has no module %s" % (kernel, name))
            # modules.dep lists the nearest need first, so the farthest one loads first.
            for path in reversed([paths[name]] + needs[paths[name]]):
                if path not in done:
                    done.add(path)
                    yield group, os.path.join(folder, path)


def module_name(path):
    return os.path.basename(path).split(".ko")[0].replace("-", "_")


def cpio_entry(number, name, mode, data):
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def contents(kernel):
    """(name, mode, bytes) of everything in the archive."""
    with open(os.path.join(os.path.dirname(__file__), "init"), "rb") as file:
        yield "init", stat.S_IFREG | 0o755, file.read()
    for folder in ("bin", "dev", "host", "job", "kept", "modules", "proc", "sys"):
        yield folder, stat.S_IFDIR | 0o755, b""
    with open(program("busybox", "busybox-static"), "rb") as file:
        busybox = file.read()
    if b"/ld-linux" in busybox[:4096]:
        raise Failure("busybox is not a static program (Debian: busybox-static)")
    yield "bin/busybox", stat.S_IFREG | 0o755, busybox
    for applet in APPLETS:
        yield "bin/" + applet, stat.S_IFLNK | 0o777, b"busybox"
    for number, (group, path) in enumerate(module_files(kernel)):
        name = "modules/%s-%02d-%s" % (group, number, os.path.basename(path))
        with open(path, "rb") as file:
            yield name, stat.S_IFREG | 0o644, file.read()


def build(kernel, cache):
    """The path of the archive for this kernel."""
    archive = b"".join(
        cpio_entry(number + 1, *entry) for number, entry in enumerate(contents(kernel))
    )
    archive += cpio_entry(0, "TRAILER!!!", 0, b"")
    path = os.path.join(cache, "initrd-%s.cpio" % hashlib.sha256(archive).hexdigest()[:16])
    # After a power loss a file may be there without its contents.
    if os.path.exists(path) and os.path.getsize(path) == len(archive):
        os.utime(path)
        return path
    for old in glob.glob(os.path.join(cache, "initrd-*")):
        # Another release of this program may be about to use a newer one.
        with contextlib.suppress(OSError):
            if os.stat(old).st_mtime < time.time() - UNUSED_SECONDS:
                os.unlink(old)
    with open("%s.%d" % (path, os.getpid()), "wb") as file:
        file.write(archive)
    os.rename(file.name, path)
    return path
