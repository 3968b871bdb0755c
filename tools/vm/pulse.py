# SPDX-License-Identifier: BSD-2-Clause
"""Whether a guest still answers. One that hangs would be waited for without end."""
import os

from . import port
from .say import Failure

VARIABLE = "SPARRING_VM_PATIENCE"
PATIENCE_SECONDS = 120  # an overloaded guest answers within a few
ASK_SECONDS = 5


def patience():
    """Seconds that a guest may take for its answer."""
    text = os.environ.get(VARIABLE) or str(PATIENCE_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 1 <= seconds < 1e9:
        raise Failure("%s wants seconds, at least 1, not '%s'" % (VARIABLE, text), 2)
    return seconds


class Pulse:
    """Of one guest: it is asked when nothing has come from it for a while."""

    def __init__(self, guest):
        self.guest = guest
        self.seconds = patience()
        self.heard = None  # when it said something last; None: it is not up yet
        self.asked = None  # when, or None

    def beat(self, now):
        """It has said something, or cannot be blamed for its silence."""
        self.heard = now
        self.asked = None

    def stopped(self, now):
        """Looked at every ASK_SECONDS or sooner."""
        if self.asked is None and now >= self.heard + ASK_SECONDS:
            self.asked = now
            self.guest.port.send(port.ASK, 0)
        return self.asked is not None and now >= self.asked + self.seconds

    def text(self):
        return "guest %d hangs, it has not answered for %g s: %s" % (
            self.guest.number,
            self.seconds,
            self.guest.evidence(),
        )
