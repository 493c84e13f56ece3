"""A person as one platform knows them, and which owners, keys and rows are theirs."""

from __future__ import annotations

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

    def sent(self, payload: str) -> bool:
        """Whether a journaled message comes from this person."""
        try:
            fields = orjson.loads(payload)
            content: Any = next(value for name, value in fields.items() if name in ("inbound", "own", "asked"))
            source = content["source"]
            return bool(source["platform"] == self.platform and self.id in (source.get("user"), source.get("user_alt")))
        except (orjson.JSONDecodeError, StopIteration, KeyError, TypeError, AttributeError):
            return False

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


_WILD = str.maketrans({"!": "!!", "%": "!%", "_": "!_"})
