"""Discord's gateway, version 10: one session, held through as many connections as it takes.

A session that is resumed brings what was missed. So a connection ends with a code that keeps the session, and a new session
begins only where Discord says that the old one is gone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
from yarl import URL

from producers.discord.frames import DiscordFrame, Dispatch, Op, read_frame
from producers.discord.position import Position
from shared import log
from shared.background import end_tasks
from shared.errors import Denied, RateLimited, Transient
from shared.http_client import HttpClient
from shared.platforms.discord import NAME, DiscordSettings
from shared.platforms.discord_api import DiscordApi
from shared.websocket import Closed, WebSocket

HELLO_SECONDS = 20.0
IDENTIFY_EVERY = 5.0  # seconds: Discord allows no more often
RESUME_TRIES = 5
INVALID_PAUSE = (1.0, 5.0)  # seconds, before a session is begun in place of one that is gone
STEADY_SECONDS = 60.0  # a connection that was held so long is replaced at once
SHORT_PAUSE = 1.0  # seconds after a connection that was not; it doubles while they follow one another
LONGEST_PAUSE = 60.0
LONGEST_WAIT = timedelta(days=1)
KEEPS_SESSION = 4000  # 1000 and 1001 would end it
INTENTS = 1 + 512 + 4096  # guilds, messages there, direct messages
MESSAGE_CONTENT = 32768
_SESSION_GONE = (4003, 4007, 4009)
_FATAL = {
    4004: "Discord refuses DISCORD__TOKEN: make a new one in the developer portal",
    4010: "Discord refuses the shard: Keyturn connects without shards",
    4011: "the bot is in too many guilds for one connection, and Keyturn connects without shards",
    4012: "Discord no longer speaks version 10 of its gateway",
    4013: "Discord does not know the intents that Keyturn asks for",
    4014: "the Message Content intent is off: allow it in the developer portal, or set DISCORD__MESSAGE_CONTENT=false",
}
Heard = Callable[[Dispatch], Awaitable[None]]


class Gateway:
    """Brings dispatches to `heard`, one after another. One counts as received when `heard` has returned."""

    def __init__(self, client: HttpClient, api: DiscordApi, settings: DiscordSettings, heard: Heard) -> None:
        self._client = client
        self._api = api
        self._settings = settings
        self._heard = heard
        self._identified_at = -IDENTIFY_EVERY
        self._connected_to = ""
        self._short = 0  # connections, one after another, that ended soon
        self._tries = 0  # connections since the last one that became ready
        self._is_acknowledged = self._is_ready = self._is_handing_over = False
        self.intents = INTENTS + (MESSAGE_CONTENT if settings.message_content else 0)
        self.position: Position | None = None  # the session, and what was received of it
        self.gone = ""  # the last session that was given up

    async def run(self) -> None:
        """Hold the session until cancelled. Raises Denied with what an operator has to do, RateLimited when no session may
        begin yet, and Transient when a connection does not come about; then it may be run again."""
        while True:
            self._is_ready, began_at = False, time.monotonic()
            await self._hold()
            if not self._is_ready:
                raise Transient("the gateway ends connections before they are ready")
            await self._pause(held=time.monotonic() - began_at)

    async def _pause(self, held: float) -> None:
        """Wait after a connection that ended soon: a gateway that ends each at once is not asked for many in a second."""
        if held >= STEADY_SECONDS:
            self._short = 0
            return
        seconds = min(SHORT_PAUSE * 2 ** min(self._short, 16), LONGEST_PAUSE)
        self._short += 1
        log.get().info("the gateway's connection ended soon", platform=NAME, next_in_seconds=seconds)
        await asyncio.sleep(seconds)

    async def _hold(self) -> None:
        """One connection from its beginning to its end, for whatever reason it ends."""
        self._connected_to = self.position.url if self.position is not None else await self._address()
        url = str(URL(self._connected_to).with_query(v="10", encoding="json"))
        self._note_try()
        async with self._client.websocket(url, {}) as socket:
            try:
                await self._serve(socket)
            except Closed as closed:
                self._note_end(closed.code)
            finally:
                await socket.close(KEEPS_SESSION)

    def _note_try(self) -> None:
        """A session whose address does not answer is given up after some tries: Discord may have closed that address."""
        self._tries += 1
        if self.position is not None and self._tries > RESUME_TRIES:
            self._give_up("its address does not answer")
            raise Transient("the session's address does not answer")

    async def _serve(self, socket: WebSocket) -> None:
        every = await self._greeted(socket)
        await self._begin(socket)
        self._is_acknowledged, self._is_handing_over = True, False
        reading, beating = asyncio.create_task(self._read(socket)), asyncio.create_task(self._beat(socket, every))
        try:
            await asyncio.wait((reading, beating), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(reading, beating)
        for task in (reading, beating):
            if not task.cancelled():
                task.result()

    async def _greeted(self, socket: WebSocket) -> float:
        """How often Discord wants a heartbeat, in seconds."""
        frame = read_frame(await socket.receive(HELLO_SECONDS))
        interval = frame.data.get("heartbeat_interval") if isinstance(frame.data, dict) else None
        if frame.op is not Op.HELLO or not isinstance(interval, int | float) or interval <= 0:
            raise Transient("the gateway does not greet")
        return float(interval) / 1000

    async def _begin(self, socket: WebSocket) -> None:
        assert self._settings.token is not None
        token, resumed = self._settings.token.get_secret_value(), self.position
        if resumed is not None:
            await _say(socket, Op.RESUME, {"token": token, "session_id": resumed.session, "seq": resumed.seq})
            return
        await asyncio.sleep(self._identified_at + IDENTIFY_EVERY - time.monotonic())
        self._identified_at = time.monotonic()
        properties = {"os": "linux", "browser": "keyturn", "device": "keyturn"}
        await _say(socket, Op.IDENTIFY, {"token": token, "intents": self.intents, "properties": properties})

    async def _read(self, socket: WebSocket) -> None:
        """Take what comes, until Discord wants another connection."""
        while True:
            frame = read_frame(await socket.receive())
            match frame.op:
                case Op.DISPATCH:
                    await self._dispatch(frame)
                case Op.HEARTBEAT:
                    await self._heartbeat(socket)
                case Op.HEARTBEAT_ACK:
                    self._is_acknowledged = True
                case Op.RECONNECT:
                    return
                case Op.INVALID_SESSION:
                    await self._lose(keeps=frame.data is True)
                    return

    async def _dispatch(self, frame: DiscordFrame) -> None:
        known = self.position
        seq = frame.seq if frame.seq is not None else known.seq if known is not None else 0
        if frame.kind in ("READY", "RESUMED"):
            self._is_ready, self._tries = True, 0
            session = "a new one" if frame.kind == "READY" else "resumed"
            log.get().info("listening", platform=NAME, session=session)
        if frame.kind == "READY" and isinstance(frame.data, dict):
            url = _address_or(self._connected_to, frame.data.get("resume_gateway_url"))
            session = str(frame.data.get("session_id"))
            self.position = known = Position(session, url, self.intents, seq)
        self._is_handing_over = True  # while this waits for room, acknowledgements are not read
        await self._heard(Dispatch(seq, frame.kind, frame.data, frame.broken))
        self._is_handing_over = False
        if known is not None:
            self.position = replace(known, seq=seq)

    async def _beat(self, socket: WebSocket, every: float) -> None:
        """Send heartbeats, the first after a random part of the interval. Ends when one was not acknowledged."""
        await asyncio.sleep(every * random.random())
        while self._is_acknowledged or self._is_handing_over:
            self._is_acknowledged = False
            await self._heartbeat(socket)
            await asyncio.sleep(every)
        log.get().warning("the gateway does not answer: a new connection is made", platform=NAME)

    async def _heartbeat(self, socket: WebSocket) -> None:
        await _say(socket, Op.HEARTBEAT, self.position.seq if self.position is not None else None)

    async def _lose(self, *, keeps: bool) -> None:
        """Discord says that the session is not valid; perhaps it can be resumed all the same. Where we had none, the new
        one was refused: trying again at once would use up the sessions of a day."""
        self._is_ready = self.position is not None
        if not keeps:
            self._give_up("Discord says that it is not valid")
        await asyncio.sleep(random.uniform(*INVALID_PAUSE))

    def _note_end(self, code: int | None) -> None:
        """Denied for codes that no new connection helps against. After the others the session is resumed, if it is there."""
        if code in _FATAL:
            self._give_up(f"closed with {code}")
            raise Denied(_FATAL[code])
        if code in _SESSION_GONE:
            self._give_up(f"closed with {code}")

    def _give_up(self, reason: str) -> None:
        if self.position is not None:
            log.get().warning("the gateway session is gone: a new one begins", platform=NAME, reason=reason)
            self.gone, self.position = self.position.session, None

    async def _address(self) -> str:
        """Where a new session begins. RateLimited when Discord allows none today: one more would cost the token."""
        if self._settings.gateway_url is not None:
            return self._settings.gateway_url
        found = await self._api.ask("/gateway/bot")
        limit = found.get("session_start_limit")
        if isinstance(limit, dict) and limit.get("remaining") == 0:
            wait = limit.get("reset_after")
            seconds = wait / 1000 if isinstance(wait, int | float) else LONGEST_WAIT.total_seconds()
            log.get().error("no gateway session may begin: Discord's daily limit is reached", platform=NAME)
            raise RateLimited(min(timedelta(seconds=max(seconds, 1.0)), LONGEST_WAIT))
        if not (url := _address_or("", found.get("url"))):
            raise Transient("Discord does not say where its gateway is")
        return url


def _address_or(other: str, given: Any) -> str:
    """The address that Discord gave, or the other one where it gave none that can be connected to."""
    try:
        url = URL(given)
    except (ValueError, TypeError):
        return other
    return str(given) if url.scheme in ("ws", "wss") and url.host else other


async def _say(socket: WebSocket, op: Op, data: Any) -> None:
    await socket.send(orjson.dumps({"op": op.value, "d": data}).decode())
