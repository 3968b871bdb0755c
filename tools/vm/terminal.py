# SPDX-License-Identifier: BSD-2-Clause
"""The terminal of the caller."""
import os
import termios
import tty


def may_read(fd):
    """A terminal stops those who read it in the background."""
    try:
        return not os.isatty(fd) or os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


class Terminal:
    """Hands on every key, until restore()."""

    def __init__(self):
        self.before = termios.tcgetattr(0)
        tty.setraw(0)

    def window(self):
        columns, rows = os.get_terminal_size(0)
        return rows, columns

    def restore(self):
        termios.tcsetattr(0, termios.TCSADRAIN, self.before)
