# SPDX-License-Identifier: BSD-2-Clause
"""How `sparring-vm exec` and `sparring-vm control` reach the guests.

A call is a line of JSON, with the caller's standard streams for exec; so is the answer. The other
end is caller.py.
"""
import json
import os
import select
import socket
from functools import partial

from .say import Failure
from .sink import Sink


class Caller:
    """One connection."""

    def __init__(self, stream):
        self.stream = stream
        self.text = b""
        self.fds = []
        self.program = None
        self.sinks = ()
        self.answer = None

    def done(self):
        """The answer is there and all output is written."""
        return self.answer is not None and not any(sink.waiting for sink in self.sinks)


class Door:
    """The end in the sparring-vm that has the guests."""

    def __init__(self, run, folder):
        self.run = run
        self.path = os.path.join(folder, "door")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.callers = []

    def watched(self):
        """As of Run."""
        for caller in [caller for caller in self.callers if caller.done()]:
            self.reply(caller, caller.answer)
        yield self.listener.fileno(), select.POLLIN, self.accept
        for caller in self.callers:
            yield caller.stream.fileno(), select.POLLIN, partial(self.hear, caller)

    def accept(self, _):
        self.callers.append(Caller(self.listener.accept()[0]))

    def hear(self, caller, _):
        try:
            data, fds, _, _ = socket.recv_fds(caller.stream, 1 << 16, 3)
        except OSError:
            data, fds = b"", []
        caller.fds += fds
        caller.text += data
        if not data:
            self.leave(caller)
        elif caller.text.endswith(b"\n") and caller.program is None:
            try:
                self.obey(caller, json.loads(caller.text))
            except Failure as failure:
                self.reply(caller, {"error": str(failure)})

    def obey(self, caller, call):
        if call["do"] == "control":
            self.run.actions.obey(call["action"])
            self.reply(caller, {"code": 0})
            return
        guest = self.find(call["guest"])
        if guest.gone:
            raise Failure("guest %d is gone" % guest.number)
        caller.sinks = [Sink(fd) for fd in caller.fds[1:]]
        self.run.sinks += caller.sinks
        caller.program = self.run.start_program(
            guest,
            call["words"],
            (caller.fds[0], *caller.sinks),
            lambda _, code: self.ended(caller, code),
            call["folder"],
        )

    def find(self, name):
        for guest in self.run.guests:
            if name.split("@")[-1] in guest.names():
                return guest
        raise Failure("there is no guest %s" % name)

    def ended(self, caller, code):
        """Its output may still wait: the answer does, too."""
        caller.answer = {"code": code}
        if code is None:
            caller.answer = {"error": "guest %d is gone" % caller.program.guest.number}

    def reply(self, caller, answer):
        try:
            caller.stream.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            pass
        self.drop(caller)

    def leave(self, caller):
        if caller.program is not None:
            caller.program.leave()
        self.drop(caller)

    def drop(self, caller):
        self.callers.remove(caller)
        self.run.sinks = [sink for sink in self.run.sinks if sink not in caller.sinks]
        for fd in caller.fds:
            os.close(fd)
        caller.stream.close()

    def close(self):
        self.listener.close()
        for caller in list(self.callers):
            self.drop(caller)
