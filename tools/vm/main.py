# SPDX-License-Identifier: BSD-2-Clause
"""sparring-vm from the command line to its exit code."""
import os
import sys

from . import VERSION, options as command_line, say
from .say import Failure
from .signals import Ended, Signals


def open_missing():
    """Standard streams that are closed lead nowhere: else another file would get the number."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, "w" if fd else "r"))


def main(words, helpers):
    open_missing()
    signals = Signals()
    try:
        if words[:1] in (["exec"], ["control"]):
            from . import caller

            return (caller.run_in_guest if words[0] == "exec" else caller.control)(words[1:])
        options = command_line.parse(words)
        if options.help or options.version:
            print(command_line.help_text() if options.help else "sparring-vm (Sparring) " + VERSION)
            sys.stdout.flush()
            return 0
        say.verbose = options.verbose
        from .boot import run  # most of this program, which --help does not wait for

        return run(options, helpers, signals)
    except Failure as failure:
        say.say(failure)
        return failure.code
    except OSError as error:
        where = error.filename + ": " if isinstance(error.filename, str) else ""
        say.say(where + (error.strerror or str(error)))
        return 1
    except Ended as ended:
        return 128 + ended.number
