# SPDX-License-Identifier: BSD-2-Clause
"""The kernel of the guests: Debian's stock one, from this machine or downloaded, kept in the cache.

In the cache: kernel-VERSION/vmlinux (uncompressed, which saves the guest seconds) and
kernel-VERSION/lib/modules/VERSION/ with the modules that a network guest can want.
"""
import fcntl
import glob
import gzip
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

from .say import Failure, detail, say

META_PACKAGE = "linux-image-amd64"
NEEDED_MODULE = "drivers/infiniband/sw/rxe/rdma_rxe.ko"
# Everything below kernel/ that is kept; the rest of the package (graphics, sound, ...) is 300 MB.
KEPT = (
    "arch/x86/crypto",
    "crypto",
    "drivers/block",
    "drivers/char",
    "drivers/infiniband",
    "drivers/net/*.ko*",
    "drivers/virtio",
    "fs/9p",
    "fs/configfs",
    "fs/fscache",
    "fs/fuse",
    "fs/netfs",
    "fs/overlayfs",
    "lib",
    "net",
)


def cache_folder():
    """The first of the usual places that can be written."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    tried = (os.path.join(home, "sparring"), os.path.join(here, "build-vm"))
    for folder in tried:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise Failure("neither %s nor %s can be written (XDG_CACHE_HOME names another place)" % tried)


def program(name, package):
    """The path of a program; those of the administrator are not in every user's PATH."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        raise Failure("%s is missing (Debian: %s; tools/setup installs it)" % (name, package))
    return path


def version_key(text):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def modules_folder(kernel):
    """That of its version, or None."""
    found = glob.glob(glob.escape(kernel) + "/lib/modules/*")
    return found[0] if len(found) == 1 else None


def cached(cache):
    """The newest kernel of the cache, or None."""
    found = [
        path
        for path in glob.glob(os.path.join(cache, "kernel-*"))
        if os.path.exists(path + "/vmlinux") and modules_folder(path)
    ]
    return max(found, key=version_key) if found else None


def uncompressed(image):
    """The ELF file inside a bzImage, or the image itself when it is packed in another way."""
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start : start + length]
    if len(payload) < length:
        raise EOFError
    if payload[:6] == b"\xfd7zXZ\0":
        payload = lzma.LZMADecompressor().decompress(payload)
    elif payload[:2] == b"\x1f\x8b":
        payload = gzip.decompress(payload[:-4])
    # The note of an ELF file that says where a virtual machine enters it (PVH).
    entry = any(struct.pack("<III", 4, size, 18) + b"Xen\0" in payload for size in (4, 8))
    return payload if payload[:4] == b"\x7fELF" and entry else image


def unpack_modules(folder):
    """Newer packages compress each module; the guest's insmod does not know that."""
    for path in glob.glob(folder + "/kernel/**/*.ko.xz", recursive=True):
        with lzma.open(path) as packed, open(path[:-3], "wb") as plain:
            shutil.copyfileobj(packed, plain)
        os.unlink(path)


def take(tree, cache):
    """Moves what guests need of an unpacked package into the cache. Returns the folder there."""
    images = glob.glob(tree + "/boot/vmlinuz-*")
    if len(images) != 1:
        raise Failure("the package holds %d kernels, not one" % len(images))
    version = os.path.basename(images[0])[len("vmlinuz-") :]
    final = os.path.join(cache, "kernel-" + version)
    with tempfile.TemporaryDirectory(prefix="new-", dir=cache) as new:
        modules = new + "/lib/modules/" + version
        for base in ("/lib/modules/", "/usr/lib/modules/"):
            if os.path.isdir(tree + base + version):
                shutil.copytree(tree + base + version, modules)
        if not glob.glob(modules + "/kernel/" + NEEDED_MODULE + "*"):
            raise Failure("kernel %s has no rdma_rxe" % version)
        unpack_modules(modules)
        if subprocess.run([program("depmod", "kmod"), "-b", new, version], check=False).returncode:
            raise Failure("depmod does not take the modules of kernel %s" % version)
        with open(images[0], "rb") as image, open(new + "/vmlinux", "wb") as plain:
            try:
                plain.write(uncompressed(image.read()))
            except (IndexError, struct.error, EOFError, lzma.LZMAError, zlib.error) as error:
                raise Failure("the image of kernel %s is damaged" % version) from error
        os.chmod(new, 0o755)
        shutil.rmtree(final, ignore_errors=True)
        os.rename(new, final)
        os.mkdir(new)  # for the end of this block to remove
    return final


def unpack(package, cache):
    """dpkg -x, but only of the parts that are kept."""
    with tempfile.TemporaryDirectory(prefix="unpack-", dir=cache) as tree:
        wanted = ["./boot/vmlinuz-*"]
        for base in ("./lib/modules/*", "./usr/lib/modules/*"):
            wanted += [base + "/modules.*"] + ["%s/kernel/%s" % (base, part) for part in KEPT]
        packed = subprocess.Popen(
            [program("dpkg-deb", "dpkg"), "--fsys-tarfile", package], stdout=subprocess.PIPE
        )
        # tar complains of patterns that match nothing (/usr/lib here, /lib there); take() checks.
        subprocess.run(
            ["tar", "-x", "-C", tree, "--wildcards", "--no-wildcards-match-slash"] + wanted,
            stdin=packed.stdout,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        packed.stdout.close()
        if packed.wait() not in (0, -13):
            raise Failure("%s cannot be unpacked" % package)
        return take(tree, cache)


def unpack_once(package, cache):
    """A package that somebody named: it is not unpacked for every guest."""
    name = subprocess.run(
        [program("dpkg-deb", "dpkg"), "-f", package, "Package"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    final = os.path.join(cache, "kernel-" + re.sub("^linux-image-(unsigned-)?", "", name))
    if os.path.exists(final + "/vmlinux") and os.stat(final).st_ctime > os.stat(package).st_mtime:
        return final
    return unpack(package, cache)


def apt(folder, options, *words):
    return subprocess.run(
        ["apt-get", "-q", "-o", "Acquire::Retries=2"] + options + list(words),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def package_name(options):
    """What the meta package depends on."""
    shown = subprocess.run(
        ["apt-cache"] + options + ["depends", META_PACKAGE],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = re.search(r"Depends: (linux-image-\S+)", shown)
    return found.group(1) if found else None


def download(cache):
    """apt-get download; with lists of our own when the machine's are missing or out of date."""
    if shutil.which("apt-get") is None:
        raise Failure(
            "no apt-get to fetch a kernel with: SPARRING_VM_KERNEL names a .deb or a folder"
        )
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as folder:
        own = [
            "-o",
            "Dir::State::Lists=%s/lists" % folder,
            "-o",
            "Dir::Cache=%s/cache" % folder,
            "-o",
            "Debug::NoLocking=1",
            "-o",
            "APT::Sandbox::User=",
        ]
        for options in (["-o", "APT::Sandbox::User="], own):
            if options is own:
                for part in ("lists/partial", "cache/archives/partial"):
                    os.makedirs(os.path.join(folder, part))
                apt(folder, own, "update")
            name = package_name(options)
            if name is None:
                continue
            (say if sys.stderr.isatty() else detail)("fetching %s, about 70 MB" % name)
            error = apt(folder, options, "download", name).stderr
            packages = glob.glob(folder + "/*.deb")
            if packages:
                return unpack(packages[0], cache)
            detail(error.strip())
    raise Failure(
        "no kernel: %s cannot be fetched with apt-get (no network?); "
        "SPARRING_VM_KERNEL names a .deb or a folder that has it" % META_PACKAGE
    )


def installed():
    """(image, version) of this machine's own kernels that have what is needed."""
    for image in sorted(glob.glob("/boot/vmlinuz-*-amd64"), key=version_key, reverse=True):
        version = os.path.basename(image)[len("vmlinuz-") :]
        if os.access(image, os.R_OK) and glob.glob(
            "/lib/modules/%s/kernel/%s*" % (version, NEEDED_MODULE)
        ):
            yield image, version


def copy_installed(image, version, cache):
    with tempfile.TemporaryDirectory(prefix="unpack-", dir=cache) as tree:
        os.makedirs(tree + "/boot")
        shutil.copy(image, tree + "/boot")
        modules = "/lib/modules/" + version
        for part in KEPT:
            for path in glob.glob("%s/kernel/%s" % (modules, part)):
                target = tree + path
                os.makedirs(os.path.dirname(target), exist_ok=True)
                (shutil.copytree if os.path.isdir(path) else shutil.copy)(path, target)
        for path in glob.glob(modules + "/modules.*"):
            shutil.copy(path, tree + path)
        return take(tree, cache)


def find(cache):
    """The folder of the kernel to boot."""
    wanted = os.environ.get("SPARRING_VM_KERNEL")
    if wanted and os.path.isdir(wanted):
        if not os.path.exists(wanted + "/vmlinux"):
            raise Failure("SPARRING_VM_KERNEL=%s holds no vmlinux" % wanted)
        if not modules_folder(wanted):
            raise Failure("SPARRING_VM_KERNEL=%s must hold one lib/modules/VERSION" % wanted)
        return os.path.abspath(wanted)
    if wanted and not os.path.isfile(wanted):
        raise Failure("SPARRING_VM_KERNEL=%s is neither a Debian package nor a folder" % wanted)
    with open(os.path.join(cache, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in ("fetch-*", "new-*", "unpack-*"):  # of those that were killed
            for left in glob.glob(os.path.join(cache, name)):
                shutil.rmtree(left, ignore_errors=True)
        if wanted:
            return unpack_once(os.path.abspath(wanted), cache)
        kernel = cached(cache)
        for image, version in installed() if kernel is None else ():
            detail("taking the kernel of this machine, %s" % version)
            return copy_installed(image, version, cache)
        return kernel or download(cache)
