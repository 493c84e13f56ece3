"""Names of people and channels, and the kinds of channels: events carry only ids. Asked of Slack once an hour at most.

A name that is not known in time is no reason to keep a message waiting: it goes without. Where the kind of its channel decides
which conversation it belongs to, it waits until Slack answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from producers.fields import flag, name, object_
from producers.slack.known import SlackKnown, SlackPlace
from shared import log
from shared.errors import Malformed, PipelineError, Transient
from shared.platforms.slack import NAME
from shared.platforms.slack_api import WebApi

KEEP_SECONDS, KEEP_UNKNOWN_SECONDS = 3600.0, 60.0
ASK_AGAIN_SECONDS = 1.0  # after Slack did not answer
ASK_SECONDS = 1.0  # Slack wants its answer within three
LIMIT = 10_000  # entries; the oldest go first
Entry = TypeVar("Entry")


class SlackDirectory:
    """What Slack said of its ids."""

    def __init__(self) -> None:
        self._places = _Kept[SlackPlace]()
        self._people = _Kept[str]()

    def lacks(self, channels: Iterable[str], users: Iterable[str]) -> bool:
        now = time.monotonic()
        return any(self._places.lacks(channel, now) for channel in channels) or any(
            self._people.lacks(user, now) for user in users
        )

    async def learn(self, api: WebApi, channels: Iterable[str], users: Iterable[str]) -> None:
        """Ask for those that are not known. Never fails."""
        places = (self._learn_place(api, channel) for channel in self._places.lacking(channels))
        people = (self._learn_person(api, user) for user in self._people.lacking(users))
        await asyncio.gather(*places, *people)

    def known(self, channel: str, user: str) -> SlackKnown:
        place, person = self._places.get(channel), self._people.get(user)
        return SlackKnown({channel: place} if place is not None else {}, {user: person} if person is not None else {})

    async def _learn_place(self, api: WebApi, channel: str) -> None:
        """A channel that Slack does not show to us counts as one, until it does: a message must not wait for ever."""
        try:
            place = _place(await _asked(api, "conversations.info", "channel", channel))
        except Transient:
            self._places.keep(channel, ASK_AGAIN_SECONDS)
        except PipelineError:
            self._places.put(channel, self._places.get(channel) or SlackPlace("channel"), KEEP_UNKNOWN_SECONDS)
        else:
            self._places.put(channel, place, KEEP_SECONDS)

    async def _learn_person(self, api: WebApi, user: str) -> None:
        try:
            person = _person(await _asked(api, "users.info", "user", user))
        except PipelineError:
            person = None
        if person is None:
            self._people.keep(user, KEEP_UNKNOWN_SECONDS)
        else:
            self._people.put(user, person, KEEP_SECONDS)


class _Kept(Generic[Entry]):
    """Entries by id, each for a while; None is one that Slack has never told."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[float, Entry | None]] = {}

    def lacking(self, ids: Iterable[str]) -> list[str]:
        now = time.monotonic()
        return [id for id in dict.fromkeys(ids) if self.lacks(id, now)]

    def lacks(self, id: str, now: float) -> bool:
        entry = self._entries.get(id)
        return bool(id) and (entry is None or entry[0] < now)

    def get(self, id: str) -> Entry | None:
        return self._entries.get(id, (0.0, None))[1]

    def keep(self, id: str, seconds: float) -> None:
        """Do not ask again for so long; what was known stays."""
        self.put(id, self.get(id), seconds)

    def put(self, id: str, entry: Entry | None, seconds: float) -> None:
        self._entries.pop(id, None)
        self._entries[id] = (time.monotonic() + seconds, entry)
        if len(self._entries) > LIMIT:
            del self._entries[next(iter(self._entries))]


async def _asked(api: WebApi, method: str, field: str, id: str) -> dict[str, Any]:
    try:
        return object_(await api.ask(method, {field: id}, ASK_SECONDS), field)
    except PipelineError as error:
        log.get().debug("a name is not known", platform=NAME, method=method, error=str(error))
        raise


def _place(channel: dict[str, Any]) -> SlackPlace:
    kind = "dm" if flag(channel, "is_im") else "group" if flag(channel, "is_mpim") else "channel"
    try:
        topic = name(object_(channel, "topic"), "value") if channel.get("topic") is not None else None
        return SlackPlace(kind, name(channel, "name"), topic)
    except Malformed:
        return SlackPlace(kind)


def _person(user: dict[str, Any]) -> str | None:
    try:
        profile = object_(user, "profile") if user.get("profile") is not None else {}
        return (
            name(profile, "display_name") or name(profile, "real_name") or name(user, "real_name") or name(user, "name")
        )
    except Malformed:
        return None
