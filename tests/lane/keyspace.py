"""RQ's part of a Redis, told by role: ids, names and times are replaced, so that two runs can be compared word by word."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TOLERANCE_SECONDS = 300  # the TTLs of these tests lie further apart than any machine is slow
_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_TEXT_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_NUMBER_TIME = re.compile(r"\d{10}(\.\d+)?")


@dataclass(frozen=True)
class About:
    """Some seconds from the moment of looking; equal to any other number near it."""

    seconds: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, About) and abs(self.seconds - other.seconds) < TOLERANCE_SECONDS

    def __hash__(self) -> int:
        return 0


@dataclass(frozen=True)
class Held:
    """What a name holds: its type, its content, and for how long (None: for ever)."""

    type: str
    content: Any
    lives: About | None


Keyspace = Mapping[str, Held]


def look(client: Any, words: Mapping[str, str]) -> Keyspace:
    """All of `rq:*`. `words` gives ids that have a role of their own; every other id is `<id>`."""
    found: dict[str, Held] = {}
    for raw in client.scan_iter("rq:*", count=1000):
        name = raw.decode()
        kind = client.type(raw).decode()
        ttl = client.ttl(raw)
        found[_said(name, words)] = Held(kind, _content(client, name, kind, words), About(ttl) if ttl >= 0 else None)
    return found


def _content(client: Any, name: str, kind: str, words: Mapping[str, str]) -> Any:
    if kind == "hash":
        return {k.decode(): _value(v, words) for k, v in client.hgetall(name).items()}
    if kind == "list":
        return [_value(v, words) for v in client.lrange(name, 0, -1)]
    if kind == "set":
        return {_value(v, words) for v in client.smembers(name)}
    if kind == "zset":
        now = time.time()
        return {_value(v, words): About(score - now) for v, score in client.zrange(name, 0, -1, withscores=True)}
    assert kind == "stream", kind
    return [{k.decode(): _value(v, words) for k, v in entry.items()} for _, entry in client.xrange(name)]


def _value(raw: bytes, words: Mapping[str, str]) -> str | bytes:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw
    return "<time>" if _TEXT_TIME.fullmatch(text) or _NUMBER_TIME.fullmatch(text) else _said(text, words)


def _said(text: str, words: Mapping[str, str]) -> str:
    for word, role in words.items():
        text = text.replace(word, role)
    return _ID.sub("<id>", text)
