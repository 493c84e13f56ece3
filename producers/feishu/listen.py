"""Step 1 for Feishu by a long connection. Feishu wants each event acknowledged within three seconds, and nobody says for
how long it would bring it again: so an event is in the spool before it is acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from producers.feishu.buttons import PRESSED
from producers.feishu.events import Events, unreadable
from producers.feishu.frames import CONTROL, DATA, FeishuFrame, decode, encode
from producers.feishu.parts import Parts
from producers.heard import Event, parse_json
from producers.listening import Connection
from shared.background import end_tasks
from shared.errors import ConfigurationError, Malformed, RateLimited, Transient
from shared.pipeline import Pipeline
from shared.platforms.feishu import NAME, FeishuSettings
from shared.platforms.feishu_api import OpenApi, open_api
from shared.value import value
from shared.websocket import WebSocket

CONNECTIONS = 4
PONG_SECONDS = 30.0  # that Feishu may take to answer a ping
_TAKEN = orjson.dumps({"code": 200})


@asynccontextmanager
async def open_connections(pipe: Pipeline) -> AsyncIterator[Sequence[Connection]]:
    settings = pipe.settings.block(FeishuSettings)
    if not settings.on:
        raise ConfigurationError(f"listen {NAME}: it is off; set KEYTURN_FEISHU__APP_ID and KEYTURN_FEISHU__APP_SECRET")
    async with open_api(settings, CONNECTIONS) as api:
        yield (LongConnection(api, settings),)


@value
class ConnectionTimes:
    """How Feishu wants a connection to be held, in seconds. A pong may change it."""

    ping: float = 120.0
    reconnect: float | None = None  # between attempts to connect that fail; None: as Keyturn waits elsewhere
    jitter: float = 30.0  # before the first attempt after a connection was lost, at most

    def changed(self, config: Mapping[str, Any]) -> ConnectionTimes:
        """With what a configuration says, as far as that is sane."""
        names = {"ping": "PingInterval", "reconnect": "ReconnectInterval", "jitter": "ReconnectNonce"}
        said = {
            name: _seconds(config.get(theirs), least=0 if name == "jitter" else 1) for name, theirs in names.items()
        }
        return replace(self, **{name: seconds for name, seconds in said.items() if seconds is not None})


class LongConnection(Events, Connection):
    """One app's events."""

    spools = True

    def __init__(self, api: OpenApi, settings: FeishuSettings, *, pong_seconds: float = PONG_SECONDS) -> None:
        super().__init__(settings)
        self.credential = self._app_id
        self._api = api
        self._pong_seconds = pong_seconds
        self._limits = ConnectionTimes()
        self._reconfigured = asyncio.Event()
        self._socket: WebSocket | None = None
        self._parts = Parts()
        self._unconfirmed: list[FeishuFrame] = []

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        await self.introduce(self._api)
        was_connected, self._parts, self._unconfirmed = False, Parts(), []
        try:
            endpoint = await self._api.endpoint()
            self._configure(endpoint.config)
            async with self._api.socket(endpoint) as self._socket:
                was_connected = True
                pinging = asyncio.create_task(self._ping(self._socket, _service(endpoint.url)))
                try:
                    yield
                finally:
                    await end_tasks(pinging)
        except Transient as error:
            if isinstance(error, RateLimited) or self._limits.reconnect is None:
                raise
            wait = random.uniform(0, self._limits.jitter) if was_connected else self._limits.reconnect
            raise RateLimited(timedelta(seconds=wait)) from error
        finally:
            self._socket = None

    async def next(self) -> Sequence[Event]:
        """What the next frame brings; perhaps nothing."""
        assert self._socket is not None
        data = await self._socket.receive(self._limits.ping + self._pong_seconds)
        data = data.encode(errors="surrogatepass") if isinstance(data, str) else data
        try:
            frame = decode(data)
        except Malformed as error:
            return (unreadable(data, str(error)),)
        if frame.method == DATA and frame.header("type") != "event" and not _is_press(frame):  # nothing to keep
            await self._acknowledge(frame)
            return ()
        return self._heard(frame)

    async def prepare(self, events: Sequence[Event]) -> None:
        """Events of a process that ended may be settled by one that never leads, and so never connects."""
        await self.introduce(self._api)

    async def confirm(self, events: Sequence[Event]) -> None:
        """Acknowledge them. Where the connection is over, Feishu may bring them again, and they end as duplicates."""
        frames, self._unconfirmed = self._unconfirmed, []
        for frame in frames:
            await self._acknowledge(frame)

    def _heard(self, frame: FeishuFrame) -> Sequence[Event]:
        if frame.method == CONTROL:
            if frame.header("type") == "pong" and frame.payload:
                with suppress(Malformed):
                    self._configure(parse_json(frame.payload))
            return ()
        if frame.method != DATA:
            return ()
        try:
            payload = self._parts.whole(frame)
        except Malformed as error:
            self._unconfirmed.append(frame)
            return (unreadable(frame.payload or b"", str(error)),)
        if payload is None:
            return ()
        self._unconfirmed.append(frame)
        try:
            return (self.event(parse_json(payload)),)
        except Malformed as error:
            return (unreadable(payload, str(error)),)

    def _configure(self, config: Mapping[str, Any]) -> None:
        limits = self._limits.changed(config)
        if limits != self._limits:
            self._limits = limits
            self._reconfigured.set()

    async def _acknowledge(self, frame: FeishuFrame) -> None:
        if self._socket is not None:
            with suppress(Transient):
                await self._socket.send(encode(replace(frame, payload=_TAKEN)))

    async def _ping(self, socket: WebSocket, service: int) -> None:
        """Until the connection is over. Whoever reads it notices when no pong comes."""
        with suppress(Transient):
            while True:
                await socket.send(encode(FeishuFrame(service, CONTROL, ((b"type", b"ping"),))))
                self._reconfigured.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._limits.ping):
                        await self._reconfigured.wait()


def _is_press(frame: FeishuFrame) -> bool:
    """Whether a frame of another type than events brings a pressed button: nobody says that they never do."""
    try:
        header = parse_json(frame.payload or b"").get("header")
    except Malformed:
        return False
    return isinstance(header, dict) and header.get("event_type") == PRESSED


def _service(url: str) -> int:
    """The number of the service that a connection belongs to: pings name it."""
    found = parse_qs(urlsplit(url).query).get("service_id", ["0"])[0]
    return int(found) if found.isascii() and found.isdigit() and len(found) < 10 else 0


def _seconds(said: Any, *, least: float) -> float | None:
    return min(max(float(said), least), 600.0) if type(said) in (int, float) and said >= 0 else None
