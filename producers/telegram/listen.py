"""Step 1 for Telegram by long polling. Telegram keeps an update until a later call confirms it, and none does before it is kept here.

A crash, or a journal that fails in the middle of a batch, brings the whole batch again; what was journaled ends as a
duplicate. Pending updates are never dropped: the first poll begins where the last confirmed one ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import redis

from producers.telegram.bot_api import BATCH, BotApi, Conflict, Unreadable, open_bot_api
from producers.telegram.normalise import PLATFORM, Bot, chat_of, normalise
from producers.telegram.update import set_aside, take_update
from shared import keys, log, metrics
from shared.background import end_tasks
from shared.clock import now_ms
from shared.errors import AlreadyDone, ConfigurationError, Denied, MailboxFull, RateLimited, Transient, Unavailable
from shared.failpoints import reach
from shared.leader import Leader
from shared.messages import Inbound
from shared.pipeline import Pipeline
from shared.store.dead import FULL

POLL_SECONDS = 50  # the server allows no more
EMPTY_PAUSE = 0.5  # between polls that brought nothing, where a server does not wait as asked
CONFLICT_PAUSE = 30.0
REFUSED_PAUSE = 60.0
FULL_NOTICE = (
    "Too many messages are waiting here. Some have been set aside for a person to look at; please wait a little."
)
_UPDATE_ID = re.compile(rb'"update_id"\s*:\s*([0-9]{1,18})')  # in a text, the quotation marks would be escaped


@asynccontextmanager
async def open_listener(pipe: Pipeline) -> AsyncIterator[Listeners]:
    """A listener for every bot without a webhook; where all have one, for all: a webhook may be taken away again."""
    settings = pipe.settings.telegram
    if not settings.on:
        raise ConfigurationError("listen telegram: set KEYTURN_TELEGRAM__TOKEN")
    bots = settings.accounts
    polled = [account for account, bot in bots.items() if not bot.webhook_secret] or list(bots)
    async with AsyncExitStack() as stack:
        apis = {account: await stack.enter_async_context(open_bot_api(bots[account])) for account in polled}
        yield Listeners([Listener(pipe, api, account=account) for account, api in apis.items()])


class Listeners:
    """One per bot, side by side."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners

    async def run(self, stopping: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            for listener in self._listeners:
                group.create_task(listener.run(stopping))


class Listener:
    def __init__(self, pipe: Pipeline, api: BotApi, *, poll_seconds: int = POLL_SECONDS, account: str = "") -> None:
        token = pipe.settings.telegram.accounts[account].token
        assert token is not None
        self._pipe = pipe
        self._api = api
        self._poll_seconds = poll_seconds
        self._account = account
        self._bot_id = token.get_secret_value().partition(":")[0]
        self._me: Bot | None = None
        self._offset: int | None = None
        self._settled: set[int] = set()  # of the batch that is being taken: nothing is recorded twice
        self._failures = 0
        self._limit = BATCH

    async def run(self, stopping: asyncio.Event) -> None:
        """Poll until `stopping` is set, while no other process does for the same bot."""
        settings, name = self._pipe.settings, keys.listener(PLATFORM, self._bot_id)
        server = self._pipe.servers.of_key(name)
        async with Leader(server, name, ttl=settings.lease, every=settings.heartbeat) as leader:
            while not stopping.is_set():
                await _first(leader.leads.wait(), stopping.wait())
                if not stopping.is_set():
                    pause = await self._poll(leader, stopping)
                    await _first(stopping.wait(), asyncio.sleep(pause))

    async def _poll(self, leader: Leader, stopping: asyncio.Event) -> float:
        """Fetch and take one batch; say how long to wait before the next. Only the fetching is ever cut short."""
        try:
            bot = self._me = self._me or replace(await self._api.me(), account=self._account)
            fetching = asyncio.ensure_future(self._api.updates(self._offset, self._poll_seconds, self._limit))
            await _first(fetching, leader.lost.wait(), stopping.wait())
            if fetching.cancelled():
                return 0
            try:
                batch = fetching.result()
            except Unreadable as error:
                return await self._narrow(error)
            await self._take(bot, batch)
        except Conflict as error:
            log.get().error("not polling", platform=PLATFORM, reason=str(error))
            return CONFLICT_PAUSE
        except Denied as error:
            log.get().error("not polling", platform=PLATFORM, reason=str(error))
            return REFUSED_PAUSE
        except RateLimited as error:
            return error.retry_after.total_seconds()
        except Exception as error:  # the batch stays with Telegram and comes again
            return self._failed(error)
        self._failures = 0
        self._settled.clear()
        self._limit = min(2 * self._limit, BATCH)
        # An empty answer confirmed all before it. Forgetting the offset then is safe, and needed: after a week of
        # silence ids start anywhere, perhaps below it.
        self._offset = batch[-1]["update_id"] + 1 if batch else None
        return 0 if batch else EMPTY_PAUSE

    async def _narrow(self, error: Unreadable) -> float:
        """Something in the batch cannot be parsed. Ask for one update at a time, and set that one aside when it comes."""
        if self._limit > 1:
            self._limit = 1
            log.get().warning("a batch cannot be parsed: updates are taken one by one", platform=PLATFORM)
            return 0
        found = _UPDATE_ID.search(error.text)
        if found is None:  # a proxy's page, perhaps
            return self._failed(error)
        await set_aside(self._pipe, found[1].decode(), error.text, str(error))
        self._offset = int(found[1]) + 1
        return 0

    async def _take(self, bot: Bot, batch: list[dict[str, Any]]) -> None:
        """Settle all of it or raise. Chats go side by side; within one, an update waits for those before it."""
        chats: dict[str, list[dict[str, Any]]] = {}
        for update in batch:
            chats.setdefault(chat_of(update), []).append(update)
        outcomes = await asyncio.gather(*(self._take_chat(bot, chats[chat]) for chat in chats), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _take_chat(self, bot: Bot, updates: list[dict[str, Any]]) -> None:
        for update in updates:
            if update["update_id"] in self._settled:
                continue
            try:
                await take_update(self._pipe, bot, update)
            except MailboxFull as error:
                await self._refuse(bot, update, str(error))
            self._settled.add(update["update_id"])

    async def _refuse(self, bot: Bot, update: dict[str, Any], key: str) -> None:
        """Too much waits in this chat. Leaving it with Telegram would hold back every other chat: it becomes a dead letter,
        whole, and the chat is told."""
        inbound = normalise(update, bot, now_ms())
        assert isinstance(inbound, Inbound)
        reach("accept.before_refusal")
        told = await self._pipe.store.dead.refuse(inbound, key, FULL_NOTICE)
        reach("accept.after_refusal")
        metrics.DEAD_LETTER.labels(FULL).inc()
        log.get().error("mailbox full: set aside", key=key)
        if told is not None:
            with contextlib.suppress(Unavailable):  # the housekeeper finds the part when Redis is back
                await self._pipe.deliveries.put(told.destination, told.part_id, str(told.part_id).encode())

    def _failed(self, error: Exception) -> float:
        expected = isinstance(error, Transient | AlreadyDone | Unreadable | redis.RedisError)
        log.get().warning(
            "batch not taken, it will come again",
            platform=PLATFORM,
            error=f"{type(error).__name__}: {error}" if expected else type(error).__name__,
            exc_info=None if expected else error,
        )
        settings = self._pipe.settings
        self._failures += 1
        doubled: float = settings.backoff_seconds * 2 ** min(self._failures - 1, 20)
        return min(doubled, settings.backoff_max_seconds)


async def _first(*waits: Coroutine[Any, Any, Any] | asyncio.Future[Any]) -> None:
    """Until one of them ends; the others are ended with it."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*tasks)
