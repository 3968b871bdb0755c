# SPDX-License-Identifier: BSD-2-Clause
"""The command line: a table of options, from which parsing and --help come."""
import os
import re
from collections import namedtuple

from . import script
from .say import Failure

HEAD = """\
Usage: sparring-vm [options] -- COMMAND [ARGUMENTS]
       sparring-vm exec GUEST COMMAND [ARGUMENTS]
       sparring-vm control ACTION
Runs COMMAND in a virtual machine that has RDMA (soft-RoCE) and sees this machine's files.
With several guests it runs in each. exec and control: from inside --outside."""
TAIL = """
Actions of --script and control; G is a guest, or GUEST.RAIL, or not there (all of them):
  cut G          pull the cable: the device loses its carrier
  silence G      frames vanish on the way, the carrier stays
  restore G      undo both
  degrade G SPEC set netem on the device: degrade loss 1%; SPEC none: take it off
  kill GUEST     the guest is gone, as a host that loses its power
  pause GUEST, resume GUEST
                 stop its CPUs, let them go on

The exit code is that of COMMAND, with several guests the first that is not 0; 1 when there
could be no guest, 124 when the time is over."""


def number(low, high):
    def take(text):
        if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
            return None
        return int(text)

    return take, "a number from %d to %d" % (low, high)


def seconds(text):
    return float(text) if script.SECONDS.fullmatch(text) and float(text) > 0 else None


def memory(text):
    match = re.fullmatch(r"([0-9]{1,9})([MG])", text)
    size = int(match.group(1)) << (20 if match.group(2) == "M" else 30) if match else 0
    return size if 256 << 20 <= size <= 1 << 40 else None


def folder(text):
    path = os.path.realpath(text)
    return path if os.path.isdir(path) and "\n" not in path and path != "/" else None


def netem(text):
    return text.split() or None


def accelerator(text):
    return text if text in ("auto", "kvm", "tcg") else None


# take(text) gives the value, or None when the text is none; wanted says what it wants to see.
Option = namedtuple("Option", "name letter argument take wanted default help")


def option(name, argument, parser, default, text):
    return Option(name, "", argument, parser[0], parser[1], default, text)


def flag(name, letter, text):
    return Option(name, letter, None, None, None, False, text)


OPTIONS = (
    option("guests", "N", number(1, 16), 1, "how many guests, joined by an Ethernet switch [1]"),
    option("smp", "C", number(1, 64), 2, "CPUs of each guest [2]"),
    option(
        "mem",
        "SIZE",
        (memory, "a size of at least 256M, such as 512M or 3G"),
        2 << 30,
        "memory of each guest [2G]",
    ),
    option("rails", "R", number(1, 8), 1, "network and RDMA devices of each guest [1]"),
    option("mtu", "BYTES", number(1280, 9216), 9000, "of the network devices [9000]"),
    option(
        "netem",
        "SPEC",
        (netem, "what tc-netem takes, such as 'loss 1%'"),
        None,
        "loss, delay and so on of what each guest sends",
    ),
    option(
        "script",
        "SCRIPT",
        (script.parse, script.WANTED),
        [],
        "what happens when, in seconds from the start of COMMAND:\n"
        "'t=5 cut; t=8 restore; t=10 kill 1'; may be repeated",
    ),
    option(
        "timeout",
        "SECONDS",
        (seconds, "seconds"),
        None,
        "end after this time, start-up included, with exit code 124",
    ),
    option(
        "write",
        "DIR",
        (folder, "a folder other than /"),
        [],
        "let the guests write there; elsewhere they only read;\nmay be repeated",
    ),
    flag("outside", "", "run COMMAND on this machine, while the guests are up"),
    flag("tag", "t", "prefix each line of output with [guest]"),
    flag("tty", "", "a terminal for COMMAND, for a shell or a debugger"),
    option(
        "accel",
        "NAME",
        (accelerator, "auto, kvm or tcg"),
        "auto",
        "how CPUs are emulated; auto: by KVM if that works [auto]",
    ),
    flag("prepare", "", "only get what guests need, such as the kernel; no command"),
    flag("verbose", "v", "say what happens, with times"),
    flag("help", "h", "print this text"),
    flag("version", "V", "print the version"),
)


class Options:
    """One attribute per option, and command, a list of words."""

    def __init__(self):
        self.command = []
        for row in OPTIONS:
            default = list(row.default) if isinstance(row.default, list) else row.default
            setattr(self, row.name, default)


def wrong(text):
    return Failure(text + " (see --help)", 2)


def help_text():
    lines = [HEAD, ""]
    for row in OPTIONS:
        short = "-%s," % row.letter if row.letter else ""
        left = "%3s --%s %s" % (short, row.name, row.argument or "")
        for line in row.help.split("\n"):
            lines.append("  %-22s %s" % (left, line))
            left = ""
    return "\n".join(lines) + "\n" + TAIL


def find(word):
    for row in OPTIONS:
        if word == "--" + row.name or (row.letter and word == "-" + row.letter):
            return row
    raise wrong("unknown option %s" % word)


def take(options, words):
    """The first option of words, and its value."""
    word, given, value = words.pop(0), "", ""
    if word.startswith("--"):
        word, given, value = word.partition("=")
    row = find(word)
    if row.argument is None:
        if given:
            raise wrong("%s takes no value" % word)
        setattr(options, row.name, True)
        return
    if not given:
        if not words:
            raise wrong("a value is missing after %s" % word)
        value = words.pop(0)
    taken = row.take(value)
    if taken is None:
        raise Failure("%s wants %s, not '%s'" % (word, row.wanted, value), 2)
    if isinstance(row.default, list):
        taken = getattr(options, row.name) + (taken if isinstance(taken, list) else [taken])
    setattr(options, row.name, taken)


def check(options):
    """What does not depend on one option alone."""
    if options.prepare and options.command:
        raise wrong("--prepare takes no command")
    if not options.command and not options.prepare:
        raise wrong("no command to run")
    if options.tty and (options.guests > 1 or options.outside or options.tag):
        raise wrong("--tty is for one guest, without --outside and --tag")
    if options.tty and not (os.isatty(0) and os.isatty(1)):
        raise Failure("--tty needs a terminal", 2)
    if options.tag and options.outside:
        raise wrong("--tag and --outside exclude each other")
    for event in options.script:
        script.check(event.action, options.guests, options.rails)
    for one in options.write:
        if (one + "/").startswith(("/proc/", "/sys/", "/dev/")):
            raise wrong("--write: guests have their own %s" % one)


def parse(words):
    """Options, of which help and version come alone."""
    options = Options()
    words = list(words)
    while words and words[0].startswith("-") and words[0] != "-":
        if words[0] == "--":
            words.pop(0)
            break
        take(options, words)
        if options.help or options.version:
            return options
    options.command = words
    check(options)
    return options
