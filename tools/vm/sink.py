# SPDX-License-Identifier: BSD-2-Clause
"""Where output goes: a descriptor that others share, so it is never set to not block."""
import os
import select

AT_ONCE = select.PIPE_BUF  # a descriptor that poll calls writable takes as much without blocking


class Sink:
    """Bytes for one descriptor, in the order in which they come."""

    def __init__(self, fd):
        self.fd = fd
        self.waiting = bytearray()
        self.broken = False

    def put(self, data):
        if not self.broken:
            self.waiting += data

    def end(self):
        """Nothing more comes from one who puts."""

    def write(self):
        """Once, when poll says so, which may have been true of one of several for the same pipe."""
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        if not poll.poll(0):
            return
        try:
            del self.waiting[: os.write(self.fd, self.waiting[:AT_ONCE])]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.broken = True
            self.waiting.clear()


class Tagged:
    """Whole lines for a sink that others use too, with a tag in front."""

    def __init__(self, sink, tag):
        self.sink = sink
        self.tag = tag
        self.line = b""  # the beginning of one

    def put(self, data):
        lines = (self.line + data).split(b"\n")
        self.line = lines.pop()
        self.sink.put(b"".join(self.tag + line + b"\n" for line in lines))

    def end(self):
        """What is left of a line becomes one."""
        if self.line:
            self.put(b"\n")
