"""Ids of people and chats as keyed hashes, in prompts and in logs.

Only where nobody needs the id itself: Discord and Slack mention people by it, so there it stays. The hash is keyed, because
phone numbers are few enough to try them all. Routing, stores and deliveries always use the real ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from shared.errors import Malformed
from shared.session_key import SessionKey

PLATFORMS = frozenset({"telegram", "whatsapp", "signal"})
_PREFIX = re.compile(r"[a-z]{1,16}:")
_PHONE = re.compile(r"(?<![\w.+])\+\d{7,15}(?!\w)|(?<![\w.+])\d{7,20}@(?:s\.whatsapp\.net|c\.us|g\.us|lid)\b")
_DESTINATION = re.compile(r"to:([a-z0-9_~-]+)(@[^:]*)?:(.+)")
_KEYS, _DESTINATIONS = ("key", "session_key", "lane_key"), ("destination",)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Hides ids with a key that stays the same for a deployment, so that what is hidden can still be told apart."""

    key: bytes

    def __post_init__(self) -> None:
        if len(self.key) < 16:
            raise ValueError("a redaction key has at least 16 bytes")

    def user(self, platform: str, id: str) -> str:
        return f"user_{self._hash(id)}" if platform in PLATFORMS else id

    def chat(self, platform: str, id: str) -> str:
        """A chat id; a prefix such as `group:` says nothing about anybody and stays."""
        if platform not in PLATFORMS:
            return id
        prefix = _PREFIX.match(id)
        return f"{prefix[0] if prefix else ''}chat_{self._hash(id)}"

    def session_key(self, text: str) -> str:
        """A session key that can be logged. What is no session key is redacted as text."""
        try:
            key = SessionKey.parse(text)
        except Malformed:
            return self.text(text)
        if key.platform not in PLATFORMS:
            return text
        hidden = {name: self.user(key.platform, id) for name in ("user", "user_alt") if (id := getattr(key, name))}
        return str(replace(key, chat=self.chat(key.platform, key.chat), **hidden))

    def destination(self, text: str) -> str:
        """The name of a delivery lane, such as `to:signal:+49…`."""
        match = _DESTINATION.fullmatch(text)
        if match is None or match[1] not in PLATFORMS:
            return text if match else self.text(text)
        return f"to:{match[1]}{match[2] or ''}:{self.chat(match[1], match[3])}"

    def text(self, text: str) -> str:
        """Free text without phone numbers and WhatsApp addresses."""
        return _PHONE.sub(lambda found: f"user_{self._hash(found[0])}", text)

    def log_event(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a log line with no id in them."""
        return {name: self._field(name, value) if isinstance(value, str) else value for name, value in event.items()}

    def _field(self, name: str, value: str) -> str:
        if name in _KEYS and value.startswith("agent:"):
            return self.session_key(value)
        if name in (*_KEYS, *_DESTINATIONS) and value.startswith("to:"):
            return self.destination(value)
        return self.text(value)

    def _hash(self, id: str) -> str:
        return blake2b(id.encode(errors="surrogatepass"), digest_size=6, key=self.key[:64]).hexdigest()
