"""A search for conversations as people write it: `platform:api state:delayed age>30s attempts>1 user:42 key:dm`."""

from __future__ import annotations

import re
from datetime import timedelta

from shared.errors import CannotDo
from shared.lane_key import begins_as_conversation
from shared.reading.keys import KeyPhase
from shared.value import value

QUALIFIERS = "platform: state: age> attempts> user: key:"
TEXT_LIMIT = 500
_AGE = re.compile(r"(\d{1,6})(s|m|h|d)?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TERM = re.compile(r"(platform|state|user|key):(.+)|(age|attempts)>(.+)")


@value
class ConversationQuery:
    """What a conversation must be like to be found. None: it does not matter. `words` are parts of its key."""

    platform: str | None = None
    state: KeyPhase | None = None
    older_than: timedelta | None = None
    more_attempts_than: int | None = None
    user: str | None = None
    words: tuple[str, ...] = ()

    @property
    def asks_for_work(self) -> bool:
        """Whether only conversations with something to do can match."""
        waiting = self.state is not None and self.state is not KeyPhase.IDLE
        return waiting or self.older_than is not None or self.more_attempts_than is not None


def parse_query(text: str) -> ConversationQuery:
    """The query that a text stands for; CannotDo says what is wrong with it."""
    said: dict[str, str] = {}
    words: list[str] = []
    for term in text[:TEXT_LIMIT].split():
        found = _TERM.fullmatch(term)
        if found is None and (":" not in term or begins_as_conversation(term)) and ">" not in term:
            words.append(term)
        elif found is None:
            raise CannotDo(f"{term} is not understood: write {QUALIFIERS} or a part of the key")
        elif found[1] == "key":
            words.append(found[2])
        else:
            said[found[1] or found[3]] = found[2] or found[4]
    return ConversationQuery(
        said.get("platform"),
        _state(said.get("state")),
        _age(said.get("age")),
        _count(said.get("attempts")),
        said.get("user"),
        tuple(words),
    )


def _state(text: str | None) -> KeyPhase | None:
    try:
        return KeyPhase(text) if text is not None else None
    except ValueError:
        raise CannotDo(f"state:{text}: choose from {', '.join(KeyPhase)}") from None


def _age(text: str | None) -> timedelta | None:
    if text is None:
        return None
    found = _AGE.fullmatch(text)
    if found is None:
        raise CannotDo(f"age>{text}: write a number with s, m, h or d, such as age>30s")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2] or "s"])


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise CannotDo(f"attempts>{text}: write a number, such as attempts>1")
    return int(text)
