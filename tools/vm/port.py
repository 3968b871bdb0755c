# SPDX-License-Identifier: BSD-2-Clause
"""Speaking with the agent in a guest: the frames of tools/vm/wire.h."""
import struct

START, INPUT, INPUT_END, SIGNAL, WINDOW, GONE, ASK = range(1, 8)
READY, OUTPUT, ERROR, TAKEN, ENDED, CONTROL, ANSWER = range(65, 72)
HEAD = struct.Struct("<IBBH")
INPUT_WINDOW = 64 << 10  # bytes of input that a program has not taken


class Port:
    """A socket to the agent. Sends without blocking: what does not fit waits."""

    def __init__(self, stream):
        stream.setblocking(False)
        self.stream = stream
        self.incoming = bytearray()
        self.outgoing = bytearray()

    def fileno(self):
        return self.stream.fileno()

    def send(self, kind, number, payload=b""):
        self.outgoing += HEAD.pack(len(payload), kind, 0, number) + payload
        self.flush()

    def flush(self):
        try:
            while self.outgoing:
                del self.outgoing[: self.stream.send(self.outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self.outgoing.clear()  # the guest is gone, which others notice

    def receive(self):
        """The frames (kind, number, payload) that are there, or None at the end."""
        try:
            data = self.stream.recv(1 << 18)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        self.incoming += data
        frames, at = [], 0
        while len(self.incoming) - at >= HEAD.size:
            length, kind, _, number = HEAD.unpack_from(self.incoming, at)
            if len(self.incoming) - at - HEAD.size < length:
                break
            at += HEAD.size + length
            frames.append((kind, number, bytes(self.incoming[at - length : at])))
        del self.incoming[:at]
        return frames


def order(words, environment, folder, window=None):
    """The payload of START. window: rows and columns of its terminal."""
    entries = ["%s=%s" % entry for entry in environment.items()]
    strings = [folder, str(len(words))] + words + entries
    text = b"".join(s.encode("utf-8", "surrogateescape") + b"\0" for s in strings)
    return struct.pack("<BHH", window is not None, *(window or (0, 0))) + text
