"""Ids of people and chats as keyed hashes, in prompts and in logs.

Only where nobody needs the id itself: where people are mentioned by it, it stays. The hash is keyed, because phone numbers are few enough to try them all. Routing, stores and deliveries always use the real ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from shared.errors import Malformed
from shared.lane_key import DELIVERIES, KEY_IN_TEXT, Destination, lane_of
from shared.platforms import HIDE_IDS
from shared.session_key import SessionKey
from shared.value import value

_PREFIX = re.compile(r"[a-z]{1,16}:")
_PHONE = re.compile(r"(?<![\w.+])\+\d{7,15}(?!\w)|(?<![\w.+])\d{7,20}@(?:s\.[a-z]{1,20}\.net|c\.us|g\.us|lid)\b")
_PLATFORM = re.compile(r":([a-z0-9_~-]+)")
_USERS, _CHATS = ("user", "user_alt"), ("chat", "to")  # fields of log lines that hold a bare id


@value
class Redaction:
    """Hides ids with a key that stays the same for a deployment, so that what is hidden can still be told apart."""

    key: bytes

    def __post_init__(self) -> None:
        if len(self.key) < 16:
            raise ValueError("a redaction key has at least 16 bytes")

    def user(self, platform: str, id: str) -> str:
        return f"user_{self._hash(id)}" if platform in HIDE_IDS else id

    def chat(self, platform: str, id: str) -> str:
        """A chat id; a prefix such as `group:` says nothing about anybody and stays."""
        if platform not in HIDE_IDS:
            return id
        prefix = _PREFIX.match(id)
        return f"{prefix[0] if prefix else ''}chat_{self._hash(id)}"

    def session_key(self, text: str) -> str:
        """A session key that can be logged. What is no session key is redacted as text."""
        return self._key(text) or self.text(text)

    def _key(self, text: str) -> str | None:
        try:
            key = SessionKey.parse(text)
        except Malformed:
            return None
        if key.platform not in HIDE_IDS:
            return text
        hidden = {name: self.user(key.platform, id) for name in ("user", "user_alt") if (id := getattr(key, name))}
        return str(replace(key, chat=self.chat(key.platform, key.chat), **hidden))

    def _destination(self, text: str) -> str | None:
        try:
            found = Destination.parse(text)
        except Malformed:
            return None
        return str(replace(found, chat=self.chat(found.platform, found.chat)))

    def text(self, text: str) -> str:
        """Free text without phone numbers, addresses made of them and the ids in session keys and destinations."""
        if ":" in text:
            text = KEY_IN_TEXT.sub(lambda found: self._named(found[0]), text)
        return _PHONE.sub(lambda found: f"user_{self._hash(found[0])}", text)

    def _named(self, text: str) -> str:
        """A key in the midst of a text. One that cannot be read and names a platform whose ids are hidden is hidden whole."""
        bare = text.rstrip(".,;:!")
        hidden = self._destination(bare) if lane_of(bare) == DELIVERIES else self._key(bare)
        if hidden is not None:
            return hidden + text[len(bare) :]
        kind = text.partition(":")[0]
        return f"{kind}:hidden_{self._hash(text)}" if HIDE_IDS.intersection(_PLATFORM.findall(text)) else text

    def log_event(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a log line with no id in them. A bare id is one of a platform that hides them, unless it says so."""
        keeps_ids = "platform" in event and event["platform"] not in HIDE_IDS
        return {name: self._field(name, value, keeps_ids) for name, value in event.items()}

    def _field(self, name: str, value: Any, keeps_ids: bool) -> Any:
        if name in (*_USERS, *_CHATS) and value is not None and not keeps_ids:
            return f"{'user' if name in _USERS else 'chat'}_{self._hash(str(value))}"
        return self.text(value) if isinstance(value, str) else value

    def _hash(self, id: str) -> str:
        return blake2b(id.encode(errors="surrogatepass"), digest_size=6, key=self.key[:64]).hexdigest()
