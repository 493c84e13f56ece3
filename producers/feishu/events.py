"""What one app is told, however it comes: by webhook or by a connection."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

import orjson

from producers.feishu.normalise import FeishuBot, chat_of, normalise
from producers.heard import Event, Heard
from producers.settling import Understanding
from shared.errors import Transient
from shared.platforms.feishu import NAME, FeishuSettings
from shared.platforms.feishu_api import CALL_SECONDS, OpenApi

_REF = re.compile(r"[!-~]{1,200}")


class Events(Understanding):
    """The events of one app. Nothing is understood before we know who we are: nobody could say who is addressed."""

    name = NAME

    def __init__(self, settings: FeishuSettings) -> None:
        assert settings.app_id is not None
        self._app_id = settings.app_id
        self._me: FeishuBot | None = None

    async def introduce(self, api: OpenApi, seconds: float = CALL_SECONDS) -> None:
        """Ask Feishu who we are. The answer stays the same, so one asks once."""
        if self._me is None:
            me = await api.me(seconds)
            self._me = FeishuBot(self._app_id, me.open_id, me.name)

    def event(self, payload: dict[str, Any]) -> Event:
        """The event in a payload. The token that proves it is taken out: it is kept nowhere."""
        fields = _without_token(payload)
        if isinstance(header := fields.get("header"), dict):
            fields["header"] = _without_token(header)
        if isinstance(event := fields.get("event"), dict):  # a pressed button has one that changes its card
            fields["event"] = _without_token(event)
        return Event(_ref(fields), fields, chat_of(fields))

    def normalise(self, event: Event, received_at: int) -> Heard:
        if self._me is None:  # of an earlier connection, from the spool: it waits until Feishu says who we are
            raise Transient("Feishu has not said yet who we are")
        return normalise(event.fields, self._me, received_at)


def unreadable(raw: bytes, reason: str) -> Event:
    return Event(_digest(raw), {}, raw=raw, broken=reason)


def _without_token(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "token"}


def _ref(payload: dict[str, Any]) -> str:
    """The same when Feishu brings an event again, and never that of another one."""
    header = payload.get("header")
    for found in (header.get("event_id") if isinstance(header, dict) else None, payload.get("uuid")):
        if isinstance(found, str) and _REF.fullmatch(found):
            return found
    return _digest(orjson.dumps(payload))


def _digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=16).hexdigest()
