# SPDX-License-Identifier: BSD-2-Clause
"""The Ethernet switch between guests: a process of its own (tools/vm/switch.c)."""
import os
import socket

from .guest import end_process, spawn


class Network:
    """One socket for each device of each guest; none when a guest is alone."""

    def __init__(self, guests, rails, helper, folder):
        self.guests = guests
        self.process = self.log = None
        self.sockets = [[None] * rails for _ in range(guests)]
        if guests == 1:
            return
        theirs = []
        for rail in range(rails):
            for guest in range(guests):
                mine, their = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
                for end in (mine, their):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                self.sockets[guest][rail] = mine
                theirs.append(their)
        fds = [their.fileno() for their in theirs]
        self.log = os.path.join(folder, "switch")
        with open(self.log, "wb") as log:
            self.process = spawn([helper, str(guests)] + [str(fd) for fd in fds], fds, log)
        for their in theirs:
            their.close()

    def hand_over(self, guest):
        """The guest's QEMU has its sockets now."""
        for stream in self.sockets[guest]:
            if stream is not None:
                stream.close()

    def ended(self):
        return self.process is not None and self.process.poll() is not None

    def evidence(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read().strip() or "exit code %d" % self.process.returncode

    def silence(self, guest, rail, silent):
        if self.process is not None:
            line = "%d %d\n" % (rail * self.guests + guest, not silent)
            os.write(self.process.stdin.fileno(), line.encode())

    def stop(self):
        if self.process is not None:
            end_process(self.process)
