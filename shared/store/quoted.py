"""Which quotes in messages of others are a person's words, and those messages without them.

A quote says by whom it is. Older ones do not: there it is the person's where it begins with a name of theirs or, if it names nobody,
has words of theirs, in a chat in which they spoke.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import orjson

from shared.codec import encode_text
from shared.context.marks import EARLIER, EARLIER_BY
from shared.context.shared_thread import NOBODY
from shared.errors import Malformed
from shared.lane_key import conversation_of
from shared.person import Person
from shared.session_key import SessionKey

_Chat = tuple[str, str]  # a bot and a chat of the person's platform
_QUOTE = (EARLIER, EARLIER_BY)  # fields of an inbound, and marks of its row


class Quoted:
    """What a person said and was called, by chat. Then it tells what others quoted of them."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self._names = defaultdict[_Chat, set[str]](set)
        self._words = defaultdict[_Chat, set[str]](set)

    def add(self, session_key: str, text: object, name: object) -> None:
        """Something that they said in a conversation, and the name that they had."""
        if (chat := self._chat(session_key)) is None:
            return
        if isinstance(text, str) and (words := _plain(text)):
            self._words[chat].add(words)
        if isinstance(name, str) and (called := _plain(name)):
            self._names[chat].add(called)

    def out_of_row(self, session_key: str, data: str) -> str | None:
        """The marks of a row of a transcript without a quote of theirs; None: it has none."""
        marks = read_object(data)
        return encode_text(_without(marks, *_QUOTE)) if self._is_theirs(session_key, marks) else None

    def out_of_message(self, session_key: str, payload: str) -> str | None:
        """The record of a message without a quote of theirs, and without a pointer to a message of theirs that names them; None: it
        has neither."""
        record, changed = read_object(payload), False
        for kind, content in record.items():
            if not isinstance(content, dict):
                continue
            if self._is_theirs(session_key, content):
                content, changed = _without(content, *_QUOTE), True
            if str(content.get("reply_to")).endswith(f":{self._person.id}") and self._chat(session_key) is not None:
                content, changed = _without(content, "reply_to"), True
            record[kind] = content
        return encode_text(record) if changed else None

    def _is_theirs(self, session_key: str, said: dict[str, Any]) -> bool:
        quote, by, chat = said.get(EARLIER), said.get(EARLIER_BY), self._chat(session_key)
        if chat is None or not isinstance(quote, str):
            return False
        if by is not None:
            return bool(by == self._person.id)
        quoted = _plain(quote)
        if any(quoted.startswith(f"{name}: ") for name in self._names[chat]):
            return True
        label, _, words = quoted.partition(": ")
        theirs = self._words[chat]
        if label != NOBODY or not words:
            return words in theirs
        # Platforms let people quote a part, and the address of the bot before a text is not kept with it.
        return any(words in text or words.endswith(text) for text in theirs)

    def _chat(self, session_key: str) -> _Chat | None:
        try:
            key = SessionKey.parse(conversation_of(session_key))
        except Malformed:
            return None
        return (key.account, key.chat) if key.platform == self._person.platform else None


def read_object(text: str) -> dict[str, Any]:
    """A JSON object; empty for what is none."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
