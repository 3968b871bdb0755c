# SPDX-License-Identifier: BSD-2-Clause
"""What --script and control say: actions on guests and their cables."""
import re
from collections import namedtuple

from .say import Failure

WANTED = "'t=SECONDS ACTION; ...' with the actions of --help"
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]*)?|\.[0-9]+")
PLACE = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,3}))?")

# name: needs a guest, can name a rail, has a specification
ACTIONS = {
    "cut": (False, True, False),
    "silence": (False, True, False),
    "restore": (False, True, False),
    "degrade": (False, True, True),
    "kill": (True, False, False),
    "pause": (True, False, False),
    "resume": (True, False, False),
}

# guest and rail are None for all of them; words are the specification of degrade.
Action = namedtuple("Action", "name guest rail words")
Event = namedtuple("Event", "time action")


def parse_action(text):
    """An Action, or None."""
    words = text.split()
    if not words or words[0] not in ACTIONS:
        return None
    name = words.pop(0)
    needs_guest, has_rail, has_words = ACTIONS[name]
    guest = rail = None
    place = PLACE.fullmatch(words[0]) if words else None
    if place and (has_rail or place.group(2) is None):
        guest = int(place.group(1))
        rail = None if place.group(2) is None else int(place.group(2))
        words.pop(0)
    if (needs_guest and guest is None) or has_words != bool(words):
        return None
    return Action(name, guest, rail, words)


def parse(text):
    """Events, or None."""
    events = []
    for part in re.split(r"[;\n]", text):
        if not part.strip():
            continue
        when, _, what = part.strip().partition(" ")
        action = parse_action(what)
        if not when.startswith("t=") or not SECONDS.fullmatch(when[2:]) or action is None:
            return None
        events.append(Event(float(when[2:]), action))
    return events or None


def check(action, guests, rails):
    """Raises Failure when there is no such place."""
    if action.guest is not None and action.guest >= guests:
        raise Failure("%s %d: the guests are 0 to %d" % (action.name, action.guest, guests - 1), 2)
    if action.rail is not None and action.rail >= rails:
        raise Failure(
            "%s %d.%d: the rails are 0 to %d" % (action.name, action.guest, action.rail, rails - 1),
            2,
        )
