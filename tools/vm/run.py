# SPDX-License-Identifier: BSD-2-Clause
"""Guests from their start to their end: one loop that waits for all that can happen."""
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from functools import partial

from . import port
from .actions import Actions
from .door import Door
from .guest import addresses, adopt_orphans, children
from .program import Program
from .pulse import ASK_SECONDS, Pulse
from .say import Failure, detail, say
from .signals import ENDING
from .sink import Sink, Tagged
from .terminal import Terminal, may_read

BOOT_SECONDS = 300  # for the start of all guests
END_SECONDS = 2  # from SIGTERM to SIGKILL
GRACE_SECONDS = 10  # after a signal, until the guests are stopped
WAITING_MOST = 1 << 20  # bytes of output that nobody takes; then programs have to wait


class Run:
    """The guests of one call, which were started. loop() gives the exit code."""

    def __init__(self, options, guests, network, folder, time_factor, end):
        self.options = options
        self.guests = guests
        self.folder = folder
        self.time_factor = time_factor
        self.end = end  # of --timeout, or None
        self.programs = {}  # by guest and number
        self.sinks = []
        self.codes = {}  # of the command, by guest, in the order in which they came
        self.result = None  # the exit code, once it is known
        self.outside = None  # the process of --outside
        self.door = None
        self.terminal = None
        self.last_number = 0
        self.network = network
        self.actions = Actions(self, network)
        self.pulses = {guest.number: Pulse(guest) for guest in guests}
        self.events = sorted(options.script, key=lambda event: event.time)
        self.begun = self.looked = time.monotonic()
        self.started = None  # when the command was
        self.stop_at = None  # after a signal
        self.stop_code = None

    # ---- Programs ----

    def environment(self, guest=None):
        """Of programs in a guest, or outside."""
        environment = dict(os.environ)
        environment.setdefault("SPARRING_TIME_FACTOR", self.time_factor)
        environment["SPARRING_VM_GUESTS"] = str(len(self.guests))
        environment["SPARRING_VM_ADDRESSES"] = " ".join(
            addresses(one.number, 0)[0] for one in self.guests
        )
        environment.pop("SPARRING_VM_SOCKET", None)
        if guest is None:
            environment["SPARRING_VM_SOCKET"] = self.door.path
            environment.setdefault("SPARRING_RSH", os.path.abspath(sys.argv[0]) + " exec")
        else:
            environment["SPARRING_VM_GUEST"] = str(guest.number)
            environment["PATH"] = "/run/sparring-vm/bin:" + environment.get("PATH", os.defpath)
        return environment

    def sink(self, fd):
        for sink in self.sinks:
            if sink.fd == fd:
                return sink
        self.sinks.append(Sink(fd))
        return self.sinks[-1]

    def start_program(self, guest, words, streams, ended, folder=None, window=None):
        """Its standard input is a descriptor or None, the others are sinks."""
        while (guest.number, self.last_number) in self.programs or self.last_number == 0:
            self.last_number = (self.last_number + 1) % (1 << 16)
        program = Program(guest, self.last_number, streams, ended)
        self.programs[guest.number, self.last_number] = program
        folder = folder or os.getcwd()
        program.start(port.order(words, self.environment(guest), folder, window))
        return program

    def run_inside(self, guest, words, ended):
        """A program without input that says what it has to say on our standard error."""
        self.start_program(guest, words, (None, self.sink(2), self.sink(2)), ended)

    def start_command(self):
        """When all guests are up."""
        self.started = time.monotonic()
        detail("the guests are up after %.1f s" % (self.started - self.begun))
        words = self.options.command
        if self.options.outside:
            self.door = Door(self, self.folder)
            adopt_orphans()
            try:
                self.outside = subprocess.Popen(words, env=self.environment())
            except OSError as error:
                raise Failure("cannot run %s: %s" % (words[0], error.strerror), 127) from error
            return
        self.terminal = Terminal() if self.options.tty else None
        window = self.terminal.window() if self.terminal else None
        for guest in self.guests:
            outputs = [self.sink(1), self.sink(2)]
            if self.options.tag:
                outputs = [Tagged(sink, b"[%d] " % guest.number) for sink in outputs]
            streams = (0 if guest.number == 0 else None, *outputs)
            self.start_program(guest, words, streams, self.command_ended, window=window)

    def command_ended(self, program, code):
        """In one guest; code None: the guest was killed."""
        detail(
            "guest %d: %s"
            % (program.guest.number, "gone" if code is None else "exit code %d" % code)
        )
        self.codes[program.guest.number] = code
        if len(self.codes) == len(self.guests):
            codes = [one for one in self.codes.values() if one is not None]
            self.result = next((one for one in codes if one), 0 if codes else 128 + signal.SIGKILL)

    # ---- What can happen ----

    def hear(self, guest, what):
        if guest.gone:
            return
        guest.port.flush()
        frames = guest.port.receive() if what & ~select.POLLOUT else ()
        if frames is None:
            self.lose(guest)
            return
        for kind, number, payload in frames:
            program = self.programs.get((guest.number, number))
            if kind == port.READY:
                guest.ready = True
                if all(one.ready for one in self.guests):
                    self.start_command()
            elif kind == port.CONTROL:
                try:
                    self.actions.obey(payload.decode(errors="replace"))
                except Failure as failure:
                    say("guest %d: %s" % (guest.number, failure))
            elif program is not None:
                program.hear(kind, payload)
                if kind == port.ENDED:
                    self.programs.pop((guest.number, number), None)
        if frames:
            self.pulses[guest.number].beat(time.monotonic())

    def lose(self, guest):
        """Its QEMU is gone."""
        when = "while it started" if self.started is None else "before it was done"
        self.bury(guest, "guest %d ended %s: %s" % (guest.number, when, guest.evidence()))

    def bury(self, guest, text):
        """text: why it is gone, which ends all, unless the command is outside."""
        guest.gone = True
        if not guest.killed:
            if self.outside is None:
                raise Failure(text)
            say(text)
        for key in [key for key in self.programs if key[0] == guest.number]:
            self.programs.pop(key).end(None)

    def write(self, sink, _):
        sink.write()
        if sink.broken and sink.fd in (1, 2):
            self.result = 128 + signal.SIGPIPE

    def look_outside(self):
        code = self.outside.poll() if self.outside else None
        self.reap_orphans()
        if code is not None:
            self.result = code if code >= 0 else 128 - code

    def ours(self):
        """Process ids of what is no part of the command."""
        processes = [part.process for part in self.guests + [self.network]]
        return {process.pid for process in processes if process is not None}

    def reap_orphans(self):
        """Of the command outside."""
        with contextlib.suppress(ChildProcessError):
            while self.outside is not None:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if child is None or child.si_pid in self.ours() | {self.outside.pid}:
                    break
                os.waitpid(child.si_pid, 0)

    def take_signals(self, signals, _):
        for number in signals.read():
            if number == signal.SIGCHLD:
                self.look_outside()
            elif number == signal.SIGWINCH:
                self.change_windows()
            else:
                self.end_by(number)

    def change_windows(self):
        if self.terminal is not None:
            for program in self.programs.values():
                program.change_window(self.terminal.window())

    def end_by(self, number):
        """A signal: the first one is handed on, the second one ends all."""
        if self.started is None or self.stop_at is not None:
            self.result = 128 + number
            self.stop_at = time.monotonic()
            return
        self.stop_at = time.monotonic() + GRACE_SECONDS
        self.stop_code = 128 + number
        for program in self.programs.values():
            program.signal(number)
        if self.outside is not None and not (number == signal.SIGINT and os.isatty(0)):
            self.outside.send_signal(number)  # else the terminal has sent it to both

    def look_at_clock(self):
        """Does what is due. Returns seconds until the next thing is."""
        now = time.monotonic()
        due = []
        if self.started is None:
            due.append(self.begun + BOOT_SECONDS)
            if now >= due[0]:
                late = next(guest for guest in self.guests if not guest.ready)
                raise Failure("guest %d does not start: %s" % (late.number, late.evidence()))
        if self.stop_at is not None:
            due.append(self.stop_at)
            if now >= self.stop_at:
                self.result = self.stop_code
        if self.end is not None:
            due.append(self.end)
            if now >= due[-1]:
                self.time_is_over()
                self.stop_at = self.stop_at or now + GRACE_SECONDS
        while self.started and self.events:
            due.append(self.started + self.events[0].time)
            if now < due[-1]:
                break
            self.actions.perform(self.events.pop(0).action)
        due.append(self.take_pulses(now))
        return max(0.0, min(due) - now)

    def time_is_over(self):
        say("the time is over (--timeout %g)" % self.options.timeout)
        self.result = 124

    def take_pulses(self, now):
        """Whether one hangs. Returns when to look again."""
        excused = self.crowded() or now - self.looked > 3 * ASK_SECONDS  # we did not listen
        self.looked = now
        for guest in self.guests:
            pulse = self.pulses[guest.number]
            if excused or guest.paused:
                pulse.beat(now)
            elif guest.ready and not guest.gone and pulse.stopped(now):
                guest.stop()
                self.bury(guest, pulse.text())
        return now + ASK_SECONDS

    def look_at_children(self):
        """They end with a signal that someone may have blocked or lost."""
        self.look_outside()
        if self.network.ended():
            raise Failure("the switch between the guests ended: " + self.network.evidence())

    # ---- The loop ----

    def crowded(self):
        """Nobody takes the output: guests are not listened to."""
        return sum(len(sink.waiting) for sink in self.sinks) > WAITING_MOST

    def watched(self, signals):
        """(descriptor, what poll looks for, function that takes what it found) of everything."""
        yield signals.fileno(), select.POLLIN, partial(self.take_signals, signals)
        crowded = self.crowded()
        for guest in self.guests:
            if not guest.gone:
                events = 0 if crowded else select.POLLIN
                events |= select.POLLOUT if guest.port.outgoing else 0
                yield guest.port.fileno(), events, partial(self.hear, guest)
        for program in self.programs.values():
            if program.wants_input() and may_read(program.input):
                yield program.input, select.POLLIN, program.read_input
        for sink in self.sinks:
            if sink.waiting:
                yield sink.fd, select.POLLOUT, partial(self.write, sink)
        if self.door is not None:
            yield from self.door.watched()

    def turn(self, signals):
        poll, calls = select.poll(), {}
        for fd, events, call in self.watched(signals):
            poll.register(fd, events)
            calls[fd] = call
        seconds = self.look_at_clock()
        self.look_at_children()
        if self.result is None:
            for fd, what in poll.poll(seconds * 1000 + 1):
                calls[fd](what)

    def loop(self, signals):
        while self.result is None:
            self.turn(signals)
        self.write_rest(signals)
        return self.result

    def write_rest(self, signals):
        """A reader may take its time, but not more than there is, nor what a signal leaves it."""
        limit = self.end if self.stop_at is None else self.stop_at
        while any(sink.waiting for sink in self.sinks):
            poll = select.poll()
            poll.register(signals.fileno(), select.POLLIN)
            for sink in self.sinks:
                if sink.waiting:
                    poll.register(sink.fd, select.POLLOUT)
            seconds = None if limit is None else max(0.0, limit - time.monotonic())
            ready = dict(poll.poll(seconds and seconds * 1000 + 1))
            for sink in self.sinks:
                if sink.fd in ready:
                    sink.write()
            ending = [number for number in signals.read() if number in ENDING]
            if ending:
                self.result = 128 + ending[0]
                return
            if not ready:
                if self.stop_at is None:
                    self.time_is_over()
                return

    def end_outside(self):
        """The command outside, and what it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            told, end = self.ours(), time.monotonic() + END_SECONDS
            while set(children()) - self.ours() and time.monotonic() < end:
                for pid in set(children()) - told:
                    told.add(pid)
                    with contextlib.suppress(OSError):
                        os.kill(pid, number)
                time.sleep(0.02)

    def stop(self):
        """Nothing is left behind."""
        if self.terminal is not None:
            self.terminal.restore()
        if self.outside is not None and (self.stop_at is not None or self.outside.poll() is None):
            self.end_outside()
        if self.door is not None:
            self.door.close()
