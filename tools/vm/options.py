# SPDX-License-Identifier: BSD-2-Clause
"""The command line: a table of options, from which parsing and --help come."""
import os
import re

from .say import Failure

HEAD = """\
Usage: sparring-vm [options] -- COMMAND [ARGUMENTS]
Runs COMMAND in a virtual machine that has RDMA (soft-RoCE) and sees this machine's files."""
TAIL = """
The exit code is that of COMMAND; 1 when there could be no guest, 124 when the time is over."""


def number(low, high):
    def take(text):
        if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
            return None
        return int(text)

    return take, "a number from %d to %d" % (low, high)


def seconds(text):
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?|\.[0-9]+", text) or float(text) <= 0:
        return None
    return float(text)


def memory(text):
    match = re.fullmatch(r"([0-9]{1,9})([MG])", text)
    size = int(match.group(1)) << (20 if match.group(2) == "M" else 30) if match else 0
    return size if 256 << 20 <= size <= 1 << 40 else None


def folder(text):
    path = os.path.realpath(text)
    return path if os.path.isdir(path) and "\n" not in path and path != "/" else None


# name, letter, argument, (parser, what it wants), default, help
OPTIONS = (
    ("smp", "", "C", number(1, 64), 2, "CPUs of the guest [2]"),
    (
        "mem",
        "",
        "SIZE",
        (memory, "a size of at least 256M, such as 512M or 3G"),
        2 << 30,
        "memory of the guest [2G]",
    ),
    (
        "write",
        "",
        "DIR",
        (folder, "a folder other than /"),
        [],
        "let the guest write there; elsewhere it only reads (repeatable)",
    ),
    (
        "timeout",
        "",
        "SECONDS",
        (seconds, "seconds"),
        None,
        "end after this time, start-up included, with exit code 124",
    ),
    ("verbose", "v", None, None, False, "say what happens, with times"),
)


class Options:
    """One attribute per option, and command, a list of words."""

    def __init__(self):
        self.command = []
        for name, _, _, _, default, _ in OPTIONS:
            setattr(
                self,
                name.replace("-", "_"),
                list(default) if isinstance(default, list) else default,
            )


def wrong(text):
    return Failure(text + " (see --help)", 2)


def help_text():
    lines = [HEAD]
    for name, letter, argument, _, _, text in OPTIONS + (
        ("help", "h", None, None, None, "print this text"),
        ("version", "V", None, None, None, "print the version"),
    ):
        left = "%3s --%s%s" % (
            "-%s," % letter if letter else "",
            name,
            " " + argument if argument else "",
        )
        for line in text.split("\n"):
            lines.append("  %-25s %s" % (left, line))
            left = ""
    return "\n".join(lines) + "\n" + TAIL


def find(word):
    for row in OPTIONS:
        if word in ("--" + row[0], "-" + row[1] if row[1] else None):
            return row
    raise wrong("unknown option %s" % word)


def parse(words):
    """Options, or the text to print instead (a string, or True for the version)."""
    options = Options()
    words = list(words)
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        if word in ("-h", "--help"):
            return help_text()
        if word in ("-V", "--version"):
            return True
        word, given, value = word.partition("=") if word.startswith("--") else (word, "", "")
        name, _, argument, parser, _, _ = find(word)
        if argument is None:
            if given:
                raise wrong("%s takes no value" % word)
            setattr(options, name, True)
            continue
        if not given:
            if not words:
                raise wrong("a value is missing after %s" % word)
            value = words.pop(0)
        taken = parser[0](value)
        if taken is None:
            raise Failure("%s wants %s, not '%s'" % (word, parser[1], value), 2)
        old = getattr(options, name.replace("-", "_"))
        setattr(options, name.replace("-", "_"), old + [taken] if isinstance(old, list) else taken)
    if not words:
        raise wrong("no command to run")
    options.command = words
    return options
