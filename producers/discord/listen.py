"""Step 1 for Discord by the gateway. An event counts as seen when it is in the spool, and is there until it is settled. A
process that takes over resumes the session after the last one that was seen, and Discord brings the others again.

A session that Discord has given up brings nothing again: what was said while nobody was connected is then lost.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from typing import Any

import orjson

from producers.access import Verdict, judge
from producers.discord.directory import DiscordDirectory
from producers.discord.frames import Dispatch
from producers.discord.gateway import Gateway
from producers.discord.interactions import callback_path, first_response
from producers.discord.lookup import Lookups
from producers.discord.normalise import INTERACTION, MESSAGE, normalise
from producers.discord.position import Position, Positions
from producers.heard import Event, Heard
from producers.listening import Connection
from producers.pairing import Pairing
from shared import log
from shared.background import end_tasks
from shared.errors import Denied, PipelineError, RateLimited
from shared.http_client import HttpClient, open_http_client
from shared.messages import Inbound
from shared.permission import AllowList
from shared.pipeline import Pipeline
from shared.platforms.discord import NAME, DiscordSettings
from shared.platforms.discord_api import DiscordApi, open_discord_api
from shared.platforms.discord_limits import Route

BATCH = 100  # events that are settled together
HELD = 5000  # events that wait here: beyond them nothing more is read, and Discord keeps it for the session
REFUSED_PAUSE = timedelta(
    minutes=10
)  # after a refusal that somebody has to act on: every try costs one of a day's 1000
RESPONSE_SECONDS = 3.0  # Discord's limit for the first response to an interaction


@asynccontextmanager
async def open_connections(pipe: Pipeline) -> AsyncIterator[Sequence[Connection]]:
    settings = pipe.settings.block(DiscordSettings)
    seconds = settings.send_timeout_seconds
    async with open_discord_api(settings) as api, open_http_client(connections=2, seconds=seconds) as client:
        yield [GatewayConnection(pipe, client, api)]


class GatewayConnection(Connection):
    """One bot's gateway."""

    name = NAME
    spools = True  # a session that is gone brings nothing again
    is_late = True  # the gateway connects, and connects again, while events are taken

    def __init__(self, pipe: Pipeline, client: HttpClient, api: DiscordApi) -> None:
        self._settings = pipe.settings.block(DiscordSettings)
        self.credential = self._settings.credential
        self._pipe = pipe
        self._pairing = Pairing(pipe, self._settings)
        self._listed = AllowList(pipe.settings, self._settings, NAME)
        self._api = api
        self._directory = DiscordDirectory(Lookups(api), self.credential)
        self._positions = Positions(pipe, self._settings)
        self._gateway = Gateway(client, api, self._settings, self._hear)
        self._held: deque[Dispatch] = deque()  # not confirmed yet
        self._changed = asyncio.Condition()
        self._responding: set[asyncio.Task[None]] = set()
        self._running: asyncio.Task[None] | None = None
        self._refused_until, self._refusal = 0.0, Denied("")

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """The session goes on where it was settled last, by whomever. Refusals come out of `next`."""
        if (wait := self._refused_until - time.monotonic()) > 0:
            raise RateLimited(timedelta(seconds=wait)) from self._refusal
        self._take_over(await self._positions.load())
        self._running = asyncio.create_task(self._gateway.run())
        try:
            yield
        finally:
            await end_tasks(self._running, *self._responding)

    async def next(self) -> Sequence[Event]:
        while not self._held:
            await self._until_changed()
        await self._directory.introduce()
        return [await self._event(dispatch) for dispatch in list(self._held)[:BATCH]]

    async def confirm(self, events: Sequence[Event]) -> None:
        """A resumed session need not bring these again, whoever resumes it."""
        settled = {event.ref for event in events}
        async with self._changed:
            self._held = deque(dispatch for dispatch in self._held if _ref(dispatch) not in settled)
            self._changed.notify_all()
        await self._keep_position()

    def normalise(self, event: Event, received_at: int) -> Heard:
        return normalise(event.fields, received_at)

    async def _hear(self, dispatch: Dispatch) -> None:
        """Hold what people said; note what else there is to know. Waits while too much is held."""
        self._directory.learn(dispatch.kind, dispatch.data)
        if dispatch.kind == INTERACTION and isinstance(dispatch.data, dict):
            self._respond(dispatch.data)
        if dispatch.kind in (MESSAGE, INTERACTION) or dispatch.broken is not None:
            async with self._changed:
                await self._changed.wait_for(lambda: len(self._held) < HELD)
                self._held.append(dispatch)
                self._changed.notify_all()
        elif dispatch.kind == "READY":
            await self._keep_position()

    async def _until_changed(self) -> None:
        """Until something is held. Raises what ended the gateway, if that comes first."""
        assert self._running is not None
        changed = asyncio.create_task(self._something_held())
        try:
            await asyncio.wait((changed, self._running), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(changed)
        if self._running.done() and not self._held:
            try:
                self._running.result()
            except Denied as refusal:
                self._refused_until = time.monotonic() + REFUSED_PAUSE.total_seconds()
                self._refusal = refusal
                raise

    async def _something_held(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: bool(self._held))

    async def _event(self, dispatch: Dispatch) -> Event:
        if dispatch.broken is not None:
            return Event(_ref(dispatch), {}, raw=dispatch.broken, broken="the frame is not a JSON object")
        fields: dict[str, Any] = {"t": dispatch.kind, "d": dispatch.data}
        if not isinstance(dispatch.data, dict):
            return Event(_ref(dispatch), fields)
        if dispatch.kind == MESSAGE:
            fields["known"] = (await self._directory.about(dispatch.data)).write()
        return Event(_ref(dispatch), fields, str(dispatch.data.get("channel_id")))

    def _take_over(self, kept: Position | None) -> None:
        """Go on with the session that was seen last, if it brings what we want. Another process may have held it."""
        gateway = self._gateway
        if kept is None or kept.session == gateway.gone or kept.intents != gateway.intents:
            return
        ours = gateway.position
        if ours is None or kept.session != ours.session or kept.seq > ours.seq:
            gateway.position = kept

    async def _keep_position(self) -> None:
        received = self._gateway.position
        if received is None:
            return
        seq = min((dispatch.seq - 1 for dispatch in self._held), default=received.seq)
        await self._positions.save(replace(received, seq=min(seq, received.seq)))

    def _respond(self, interaction: dict[str, Any]) -> None:
        task = asyncio.create_task(self._first_response(interaction))
        self._responding.add(task)
        task.add_done_callback(self._responding.discard)

    async def _first_response(self, interaction: dict[str, Any]) -> None:
        """Without it the caller sees a failure; the answer comes all the same, as a message in the channel."""
        try:
            response = await first_response(interaction, self._admits)
            await self._api.call(Route("POST", callback_path(interaction)), response, seconds=RESPONSE_SECONDS)
        except PipelineError as error:
            log.get().warning("an interaction was not acknowledged", platform=NAME, error=str(error))

    async def _admits(self, said: Inbound) -> bool:
        """As whoever settles it will decide: by the lists, or because somebody approved the sender."""
        verdict = judge(said, self._settings, self._listed)
        return verdict is Verdict.ADMITTED or (verdict is Verdict.STRANGER and await self._pairing.admits(said))


def _ref(dispatch: Dispatch) -> str:
    """The id of a message or an interaction. What has none is known by what it says: it is recorded once, if it is brought
    again."""
    id = dispatch.data.get("id") if isinstance(dispatch.data, dict) else None
    if isinstance(id, str):
        return id
    said = dispatch.broken if dispatch.broken is not None else orjson.dumps([dispatch.kind, dispatch.data])
    return f"dispatch {blake2b(said, digest_size=8).hexdigest()}"
