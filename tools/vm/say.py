# SPDX-License-Identifier: BSD-2-Clause
"""How sparring-vm speaks: one clear line on standard error."""
import sys

verbose = False


class Failure(Exception):
    """Ends the program with one line and an exit code: 1, or 2 for wrong usage."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


def say(text):
    try:
        sys.stderr.write("sparring-vm: %s\n" % text)
        sys.stderr.flush()
    except OSError:
        pass


def detail(text):
    """Said only with --verbose."""
    if verbose:
        say(text)
