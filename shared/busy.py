"""Busy modes: what becomes of a message that comes while its key runs a turn. docs/guides/busy.md has the table.

A message acts on a running turn only if the same person said it in the same place: nobody's words run with another's rights.
"""

from __future__ import annotations

from enum import StrEnum

from shared.control import parse
from shared.messages import Inbound

BUSY_MODE = "busy_mode"  # a fact of a session: the mode that /queue set
STEER = "steer"  # the command whose words a running turn takes in every mode
NEW = "new"  # the command that ends a running turn in every mode
_NEW_NAMES = (NEW, "reset")


class BusyMode(StrEnum):
    """What a new message does to the running turn, and what becomes of the message."""

    QUEUE = "queue"  # nothing; it gets a turn of its own, in order
    COLLECT = "collect"  # nothing; all that waits of one sender is one turn
    STEER = "steer"  # the turn takes it in before its next tool or request
    INTERRUPT = "interrupt"  # the turn is stopped and what it did is kept; the message is next
    ROLLBACK = "rollback"  # the turn is stopped and what it did is dropped; the message is next
    REJECT = "reject"  # nothing; the message is refused

    @classmethod
    def named(cls, name: object) -> BusyMode | None:
        """The mode of that name; None where there is none."""
        return next((mode for mode in cls if mode.value == name), None)


def same_speaker(one: Inbound, other: Inbound) -> bool:
    """Whether the same person said both in the same chat and thread. People who cannot be told apart are not the same."""
    a, b = one.source, other.source
    person = a.user or a.user_alt or a.chat_type == "dm"
    return bool(person) and (a.address, a.scope, a.user, a.user_alt) == (b.address, b.scope, b.user, b.user_alt)


def steering_words(text: str) -> str | None:
    """The words of `/steer WORDS`. None: it is something else, or has none."""
    command = parse(text) if "/" in text[:1] or text[:1].isspace() else None
    return command[1] or None if command is not None and command[0] == STEER else None


def begins_anew(text: str) -> bool:
    """Whether this is `/new`: the conversation in which a turn runs is to end."""
    command = parse(text) if "/" in text[:1] or text[:1].isspace() else None
    return command is not None and command[0] in _NEW_NAMES and not command[1]


def is_for_running_turn(text: str) -> bool:
    """Whether a running turn must look for this message at once, whatever its mode."""
    return steering_words(text) is not None or begins_anew(text)
