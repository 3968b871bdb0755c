# SPDX-License-Identifier: BSD-2-Clause
"""Signals as bytes that a loop reads; before there is a loop, the bad ones end the program."""
import os
import signal

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(Exception):
    """By a signal."""

    def __init__(self, number):
        super().__init__()
        self.number = number


class Signals:
    """Of this process; one object."""

    def __init__(self):
        self.raising = True
        self.reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING + (signal.SIGCHLD, signal.SIGWINCH))
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in ENDING + (signal.SIGCHLD, signal.SIGWINCH):
            signal.signal(number, self.on_signal)

    def on_signal(self, number, _):
        if self.raising and number in ENDING:
            raise Ended(number)

    def fileno(self):
        """From now on they are read."""
        self.raising = False
        return self.reader

    def read(self):
        try:
            return os.read(self.reader, 4096)
        except BlockingIOError:
            return b""
