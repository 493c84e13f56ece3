"""What one app is told, however it comes: by the Events API or by Socket Mode."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from producers.heard import Event, Heard
from producers.settling import Understanding
from producers.slack.directory import SlackDirectory
from producers.slack.known import SlackBot
from producers.slack.normalise import channel_of, normalise, person_of
from shared.errors import Unavailable
from shared.platforms.slack import NAME, SlackSettings
from shared.platforms.slack_api import WebApi

_REF = re.compile(r"[!-~]{1,200}")


class Hearing(Understanding):
    """The payloads of one app. Nothing is understood before we know who we are: nobody could say who is addressed."""

    name = NAME

    def __init__(self, settings: SlackSettings) -> None:
        self._opens_threads, self._asks = settings.reply_in_thread, settings.ask_commands
        self._me: SlackBot | None = None
        self._directory = SlackDirectory()

    async def introduce(self, api: WebApi) -> None:
        """Ask Slack who we are. The answer stays the same, so one asks once."""
        if self._me is None:
            me = await api.me()
            self._me = SlackBot(me.user, me.bot, me.team, me.name, self._opens_threads, self._asks)

    def lacks_names(self, events: Sequence[Event]) -> bool:
        return self._directory.lacks(*_ids(events))

    async def learn_names(self, api: WebApi, events: Sequence[Event]) -> None:
        """Ask Slack for the names in these events. Takes a second at most, and never fails."""
        await self._directory.learn(api, *_ids(events))

    def event(self, payload: dict[str, Any], raw: bytes) -> Event:
        return Event(_ref(payload, raw), payload, channel_of(payload), raw)

    def normalise(self, event: Event, received_at: int) -> Heard:
        if self._me is None:
            raise Unavailable("Slack has not said yet who we are")
        known = self._directory.known(event.chat, person_of(event.fields))
        return normalise(event.fields, self._me, known, received_at)


def unreadable(raw: bytes, reason: str) -> Event:
    return Event(_digest(raw), {}, raw=raw, broken=reason)


def _ids(events: Sequence[Event]) -> tuple[list[str], list[str]]:
    """The channels and people whose names are worth asking for: a direct chat has none, and people no more than one."""
    users = [person_of(event.fields) for event in events]
    return [event.chat for event in events if not event.chat.startswith("D")], users


def _ref(payload: dict[str, Any], raw: bytes) -> str:
    """The same when Slack brings a payload again, and never that of another one."""
    for field in ("event_id", "trigger_id"):
        if isinstance(found := payload.get(field), str) and _REF.fullmatch(found):
            return found
    return _digest(raw)


def _digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=16).hexdigest()
