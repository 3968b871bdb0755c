# SPDX-License-Identifier: BSD-2-Clause
"""Doing what --script and control say."""
from . import script
from .say import Failure, detail, say


class Actions:
    """On the guests of a run."""

    def __init__(self, run, network):
        self.run = run
        self.network = network

    def obey(self, text):
        """One action from outside the script. Raises Failure when it makes no sense."""
        action = script.parse_action(text)
        if action is None:
            raise Failure("'%s' is no action (see --help)" % text.strip())
        script.check(action, self.run.options.guests, self.run.options.rails)
        self.perform(action)

    def perform(self, action):
        detail("%s%s" % (action.name, "" if action.guest is None else " %d" % action.guest))
        guests = [g for g in self.run.guests if action.guest in (None, g.number) and not g.killed]
        rails = [r for r in range(self.run.options.rails) if action.rail in (None, r)]
        for guest in guests:
            if action.name in ("kill", "pause", "resume"):
                getattr(self, "do_" + action.name)(guest)
                continue
            for rail in rails:
                getattr(self, "do_" + action.name)(guest, rail, action.words)

    def do_kill(self, guest):
        guest.killed = True
        guest.stop()

    def do_pause(self, guest):
        guest.paused = True
        guest.tell_monitor("stop")

    def do_resume(self, guest):
        guest.tell_monitor("cont")
        guest.paused = False

    def do_cut(self, guest, rail, _):
        guest.tell_monitor("set_link", name="nic%d" % rail, up=False)

    def do_silence(self, guest, rail, _):
        self.network.silence(guest.number, rail, True)

    def do_restore(self, guest, rail, _):
        self.network.silence(guest.number, rail, False)
        guest.tell_monitor("set_link", name="nic%d" % rail, up=True)

    def do_degrade(self, guest, rail, words):
        """The guest's own kernel does it. It is told to replace what --netem may have set."""
        if words == ["none"]:
            tail = ["netem"]  # which does nothing
        else:
            tail = ["netem"] + words

        def ended(_, code):
            if code:
                say("guest %d: tc does not take 'netem %s'" % (guest.number, " ".join(words)))

        line = ["tc", "qdisc", "replace", "dev", "eth%d" % rail, "root"] + tail
        self.run.run_inside(guest, line, ended)
