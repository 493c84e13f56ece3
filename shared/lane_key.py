"""The keys of the three lanes. Each is a value; Redis, SQL and log lines hold its text.

| lane       | key         | text                           |
|------------|-------------|--------------------------------|
| turns      | SessionKey  | `agent:main:irc:dm:42`         |
| control    | ControlKey  | `control:agent:main:irc:dm:42` |
| deliveries | Destination | `to:irc:42`                    |

How a text begins says which it is, and only this module looks at that.
"""

from __future__ import annotations

import re
from functools import lru_cache

from shared.errors import Malformed
from shared.escape import bot_text, escape, parse_bot, unescape
from shared.session_key import SessionKey
from shared.value import value

TURNS, DELIVERIES, CONTROL = "turns", "deliveries", "control"
_CONTROL, _TO = "control:", "to:"
_OF_CONVERSATION = ("agent:", _CONTROL)
# A session key or a destination in the midst of other text; it may end with a sign that belongs to the text.
KEY_IN_TEXT = re.compile(r"\b(?:agent|to):[\w~@.+!,;%=:-]+", re.ASCII)


@value
class ControlKey:
    """Numbers a conversation's control messages apart from it, so that its own order stays what it is."""

    conversation: SessionKey

    def __str__(self) -> str:
        return f"{_CONTROL}{self.conversation}"


@value
class Destination:
    """The chat that replies leave for, in order."""

    platform: str
    account: str
    chat: str

    def __str__(self) -> str:
        return _destination_text(self.platform, self.account, self.chat)

    @classmethod
    def parse(cls, text: str) -> Destination:
        """The destination whose text this is; Malformed for anything that `str(destination)` could not have given."""
        head, *tail = text.split(":")
        if f"{head}:" != _TO or len(tail) != 2:
            raise Malformed("not a destination")
        destination = cls(*parse_bot(tail[0]), unescape(tail[1]))
        if not destination.platform or not destination.chat or str(destination) != text:
            raise Malformed("not a destination")
        return destination


@lru_cache(maxsize=4096)  # escaping takes 6 µs, and chats come again
def _destination_text(platform: str, account: str, chat: str) -> str:
    return f"{_TO}{bot_text(platform, account)}:{escape(chat)}"


LaneKey = SessionKey | ControlKey | Destination


def parse_key(text: str) -> LaneKey:
    """The key whose text this is; Malformed for anything else."""
    if text.startswith(_TO):
        return Destination.parse(text)
    if text.startswith(_CONTROL):
        return ControlKey(SessionKey.parse(text.removeprefix(_CONTROL)))
    return SessionKey.parse(text)


def lane_of(text: str) -> str:
    """The lane that a key belongs to, without reading the rest of its text."""
    return DELIVERIES if text.startswith(_TO) else CONTROL if text.startswith(_CONTROL) else TURNS


def platform_of(destination: str) -> str:
    """The platform that a destination's text names, without reading the rest of it."""
    return destination.removeprefix(_TO).partition(":")[0].partition("@")[0]


def conversation_of(text: str) -> str:
    """The text of a conversation's session key, from its own text or from that of its control key."""
    return text.removeprefix(_CONTROL)


def begins_as_conversation(text: str) -> bool:
    """Whether a text could be the beginning of a session key's text or of a control key's."""
    return text.startswith(_OF_CONVERSATION)
