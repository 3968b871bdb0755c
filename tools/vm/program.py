# SPDX-License-Identifier: BSD-2-Clause
"""A program that runs in a guest, seen from here."""
import os
import struct

from . import port


class Program:
    """Its standard streams are descriptors of ours; ended(code) is called once."""

    def __init__(self, guest, number, streams, ended):
        self.guest = guest
        self.number = number
        self.input, self.out, self.err = streams  # a descriptor or None, two sinks
        self.ended = ended
        self.window = port.INPUT_WINDOW
        self.code = None

    def start(self, payload):
        self.guest.port.send(port.START, self.number, payload)
        if self.input is None:
            self.guest.port.send(port.INPUT_END, self.number)

    def wants_input(self):
        return self.input is not None and self.code is None and self.window > 0

    def read_input(self, _):
        try:
            data = os.read(self.input, self.window)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self.window -= len(data)
        if data:
            self.guest.port.send(port.INPUT, self.number, data)
        else:
            self.input = None
            self.guest.port.send(port.INPUT_END, self.number)

    def hear(self, kind, payload):
        if kind in (port.OUTPUT, port.ERROR):
            if self.ended is not None:
                (self.out if kind == port.OUTPUT else self.err).put(payload)
        elif kind == port.TAKEN:
            self.window += struct.unpack("<I", payload)[0]
        elif kind == port.ENDED:
            self.end(struct.unpack("<I", payload)[0])

    def end(self, code):
        """Also when its guest is gone: code None."""
        if self.ended is not None:
            ended, self.ended = self.ended, None
            self.code = code
            self.out.end()
            self.err.end()
            ended(self, code)

    def signal(self, number):
        self.guest.port.send(port.SIGNAL, self.number, bytes([number]))

    def change_window(self, window):
        self.guest.port.send(port.WINDOW, self.number, struct.pack("<HH", *window))

    def leave(self):
        """Nobody listens to it any more."""
        self.ended = self.input = None
        self.guest.port.send(port.GONE, self.number)
