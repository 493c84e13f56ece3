"""A person as one platform knows them, and which owners, keys and rows are theirs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from shared.errors import Malformed
from shared.escape import escape, parse_bot
from shared.lane_key import conversation_of
from shared.session_key import SessionKey
from shared.value import value


@value
class Person:
    """Somebody with an id on a platform; `id` may be either of the two ids that some platforms give."""

    platform: str
    id: str

    @classmethod
    def parse(cls, text: str) -> Person:
        """`PLATFORM:ID`; Malformed for anything else."""
        platform, _, id = text.partition(":")
        if not platform or not id:
            raise Malformed("a person is written as PLATFORM:ID")
        return cls(platform, id)

    def owns(self, owner: str) -> bool:
        """Whether the owner of a session (shared/owner.py) is this person, through whichever bot or workspace."""
        bot, *rest = owner.split(":")
        return parse_bot(bot)[0] == self.platform and bool(rest) and rest[-1] in self._tags

    def has_key(self, text: str) -> bool:
        """Whether a session key, a control key or the owner of notes names this person as the one who talks there."""
        try:
            key = SessionKey.parse(conversation_of(text))
        except Malformed:
            return False
        return key.platform == self.platform and self.id in (key.user, key.user_alt)

    def has_private_chat(self, text: str) -> bool:
        """Whether a session key is that of a private chat with this person's id, as several platforms name those."""
        try:
            key = SessionKey.parse(conversation_of(text))
        except Malformed:
            return False
        return (key.platform, key.chat_type, key.chat) == (self.platform, "dm", self.id)

    def sent(self, payload: str) -> bool:
        """Whether a journaled message comes from this person, or is a task that they asked for."""
        return any(self._is(source) for source in _sources(payload))

    def said_in(self, payload: str) -> list[tuple[Any, Any]]:
        """What a journaled message of theirs says, and their name there."""
        said = [content for content in _contents(payload) if self._is(content.get("source"))]
        return [(content.get("text"), content["source"].get("user_name")) for content in said]

    def is_answered(self, payload: str) -> bool:
        """Whether a part of a reply answers this person."""
        try:
            fields = orjson.loads(payload)
        except orjson.JSONDecodeError:
            return False
        return isinstance(fields, dict) and self._is(fields.get("source"))

    def is_source(self, text: str) -> bool:
        """Whether a source, as a column of JSON has it, is this person."""
        try:
            return self._is(orjson.loads(text))
        except orjson.JSONDecodeError:
            return False

    def is_asker(self, asked_by: Any) -> bool:
        """Whether a row of a transcript (shared/context/marks.py) says that this person asked for it."""
        return self._is(asked_by)

    def other_ids(self, payload: str) -> set[str]:
        """The other id of this person that a journaled message of theirs names beside the one that we know."""
        found = {source.get(name) for source in _sources(payload) if self._is(source) for name in _IDS}
        return {id for id in found if isinstance(id, str) and id and id != self.id}

    def _is(self, source: Any) -> bool:
        if not isinstance(source, dict) or source.get("platform") != self.platform:
            return False
        return self.id in [source.get(name) for name in _IDS]

    @property
    def pattern(self) -> str:
        """An SQL pattern that matches every text with the id in it, also where JSON or a key escapes it; `!` escapes."""
        plain = orjson.dumps(self.id).decode()[1:-1]
        return f"%{plain.translate(_WILD)}%"

    @property
    def key_pattern(self) -> str:
        """The same for the text of keys and owners."""
        return f"%{escape(self.id).translate(_WILD)}%"

    @property
    def _tags(self) -> tuple[str, str]:
        return f"u={escape(self.id)}", f"a={escape(self.id)}"


_IDS = ("user", "user_alt")


def _sources(payload: str) -> list[Any]:
    """Who sent a journaled message, and who asked for it; nothing for what is no message."""
    found = [content.get(name) for content in _contents(payload) for name in ("source", "asked_by")]
    return [source for source in found if isinstance(source, dict)]


def _contents(payload: str) -> list[dict[str, Any]]:
    """What the record of a message holds, whatever its kind; nothing for what is no message."""
    try:
        fields = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return []
    contents: Iterable[Any] = fields.values() if isinstance(fields, dict) else ()
    return [content for content in contents if isinstance(content, dict)]


_WILD = str.maketrans({"!": "!!", "%": "!%", "_": "!_"})
