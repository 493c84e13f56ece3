"""Step 1 for Slack by Socket Mode. Slack brings an envelope again only three times within six minutes: so each is in the spool
before it is acknowledged. Slack closes its connections every few hours and says so before: the next one is opened first, so
nothing waits."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import blake2b
from typing import Any

import orjson

from producers.heard import Event, parse_json
from producers.listening import Connection
from producers.slack.hearing import Hearing, unreadable
from shared import log
from shared.background import end_tasks
from shared.errors import ConfigurationError, Malformed, Transient
from shared.pipeline import Pipeline
from shared.platforms.slack import NAME, SlackSettings
from shared.platforms.slack_api import WebApi, open_web_api
from shared.value import value
from shared.websocket import WebSocket

BATCH = 100
CONNECTIONS = 8  # two websockets may be open at once, and names are asked for beside them
HELLO_SECONDS = 20.0
SILENCE_SECONDS = 20.0  # after which a connection is over: Slack pings more often, and answers our pings
WAITING_LIMIT = 2000  # envelopes that are not in the spool yet; Slack keeps what comes after
LINGER_SECONDS = 10.0  # that a connection which Slack will close is still read, after the next one is open
SHORTEST_SECONDS = 1.0  # of a connection: Slack may close each one at once
_APP_ID = re.compile(r"xapp-[0-9]+-([A-Z0-9]+)-")


@asynccontextmanager
async def open_connections(pipe: Pipeline) -> AsyncIterator[Sequence[Connection]]:
    """One, where there is an app token."""
    settings = pipe.settings.block(SlackSettings)
    if settings.app_token is None:
        raise ConfigurationError(
            "listen slack: it needs KEYTURN_SLACK__APP_TOKEN; with a signing secret Slack posts to us"
        )
    async with open_web_api(settings, CONNECTIONS) as api:
        yield (SocketMode(api, settings),)


@value
class Envelope:
    """An event, and the connection on which it is acknowledged. Without an id there is nothing to acknowledge."""

    event: Event
    id: str
    socket: WebSocket


class SocketMode(Hearing, Connection):
    """One app's events. What is not acknowledged, Slack brings again, for a few minutes."""

    spools = True

    def __init__(self, api: WebApi, settings: SlackSettings, *, silence_seconds: float = SILENCE_SECONDS) -> None:
        super().__init__(settings)
        assert settings.app_token is not None
        self.credential = _app_id(settings.app_token.get_secret_value())
        self._api = api
        self._app_token = settings.app_token
        self._silence_seconds = silence_seconds
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[Envelope] = deque()
        self._unconfirmed: list[Envelope] = []
        self._news = asyncio.Event()
        self._failure: Exception | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        await self.introduce(self._api)
        self._waiting.clear()  # it comes again
        self._failure = None
        try:
            await self._connect()
            yield
        finally:
            await end_tasks(*self._tasks)

    async def next(self) -> Sequence[Event]:
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        self._unconfirmed = batch
        return [envelope.event for envelope in batch]

    async def prepare(self, events: Sequence[Event]) -> None:
        await self.introduce(self._api)
        await self.learn_names(self._api, events)

    async def confirm(self, events: Sequence[Event]) -> None:
        """Acknowledge them. Where the connection is over, Slack brings them again, and they end as duplicates."""
        for envelope in self._unconfirmed:
            if envelope.id:
                with suppress(Transient):
                    await envelope.socket.send(orjson.dumps({"envelope_id": envelope.id}).decode())
        self._unconfirmed = []

    async def _connect(self) -> None:
        """Open a connection and read it from now on. Raises what stands in the way."""
        greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start(self._read(greeted))
        await greeted

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, greeted: asyncio.Future[None]) -> None:
        """Read a connection to its end. `greeted` is over when Slack says hello, or when it cannot."""
        is_leaving = False
        try:
            async with self._api.socket(self._app_token, self._silence_seconds) as socket:
                opened = time.monotonic()
                while True:
                    frame = await socket.receive(None if greeted.done() else HELLO_SECONDS)
                    kind = self._hear(frame, socket)
                    if kind == "hello" and not greeted.done():
                        greeted.set_result(None)
                    elif kind == "disconnect" and not is_leaving:
                        is_leaving = True
                        self._start(self._replace(asyncio.current_task(), opened))
        except Exception as error:
            if not greeted.done():
                greeted.set_exception(error)
            elif not is_leaving:
                self._fail(error)

    async def _replace(self, old: asyncio.Task[Any] | None, opened: float) -> None:
        """Open the next connection while the old one is read; then give the old one a little time to end by itself."""
        log.get().info("Slack will close the connection: opening the next one", platform=NAME)
        assert old is not None
        try:
            await asyncio.sleep(max(0.0, opened + SHORTEST_SECONDS - time.monotonic()))
            await self._connect()
        except Exception as error:
            self._fail(error)
            return
        await asyncio.wait([old], timeout=LINGER_SECONDS)
        await end_tasks(old)

    def _hear(self, frame: str | bytes, socket: WebSocket) -> str:
        """Keep what a frame brings; says what kind of frame it is."""
        frame = frame.encode(errors="surrogatepass") if isinstance(frame, str) else frame
        try:
            fields = parse_json(frame)
        except Malformed as error:
            self._keep(Envelope(unreadable(frame, str(error)), "", socket))
            return ""
        envelope_id = fields.get("envelope_id")
        if isinstance(envelope_id, str):
            self._keep(Envelope(self._event_in(fields.get("payload"), frame), envelope_id, socket))
        return str(fields.get("type"))

    def _event_in(self, payload: Any, frame: bytes) -> Event:
        if not isinstance(payload, dict):
            return unreadable(frame, "payload is not an object")
        try:
            return self.event(payload, orjson.dumps(payload))
        except TypeError:  # orjson reads JSON that is deeper than what it writes
            return unreadable(frame, "payload is nested too deeply")

    def _keep(self, envelope: Envelope) -> None:
        if len(self._waiting) >= WAITING_LIMIT:
            raise Transient("more comes than can be settled")
        self._waiting.append(envelope)
        self._news.set()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._news.set()


def _app_id(token: str) -> str:
    """The app's id, which its token holds and which is no secret; else something that follows from the token."""
    found = _APP_ID.match(token)
    return found[1] if found is not None else blake2b(token.encode(), digest_size=8).hexdigest()
