"""Step 1 for Telegram by long polling. Telegram keeps an update until a later call confirms it, and none does before it is
settled here. Pending updates are never dropped: the first poll begins where the last confirmed one ended."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from producers.heard import Event
from producers.listening import Connection
from producers.telegram.normalise import query_of
from producers.telegram.updates import HEARD, Updates
from shared import log
from shared.errors import PipelineError
from shared.pipeline import Pipeline
from shared.platforms.telegram import NAME, TelegramSettings
from shared.platforms.telegram_api import BATCH, BotApi, Unreadable, open_bot_api
from shared.store.journal import Journal

POLL_SECONDS = 50  # the server allows no more
HEARD_SECONDS = 1.5  # a button that waits is worth no longer one
EMPTY_PAUSE = 0.5  # between polls that brought nothing, where a server does not wait as asked
_UPDATE_ID = re.compile(rb'"update_id"\s*:\s*([0-9]{1,18})')  # in a text, the quotation marks would be escaped


@asynccontextmanager
async def open_connections(pipe: Pipeline) -> AsyncIterator[Sequence[Connection]]:
    """One for every bot without a webhook; where all have one, for all: a webhook may be taken away again."""
    bots = pipe.settings.block(TelegramSettings).accounts
    polled = {account: bot for account, bot in bots.items() if not bot.webhook_secret} or bots
    async with AsyncExitStack() as stack:
        yield [
            Polling(await stack.enter_async_context(open_bot_api(bot)), bot, account, pipe.store.journal)
            for account, bot in polled.items()
        ]


class Polling(Updates, Connection):
    """One bot's updates. What a call brought stays with Telegram until the call after it."""

    def __init__(
        self,
        api: BotApi,
        settings: TelegramSettings,
        account: str,
        journal: Journal,
        *,
        poll_seconds: int = POLL_SECONDS,
    ) -> None:
        super().__init__(account, journal)
        assert settings.token is not None
        self.credential = settings.token.get_secret_value().partition(":")[0]  # the bot's id, which is no secret
        self._api = api
        self._poll_seconds = poll_seconds
        self._offset: int | None = None
        self._limit = BATCH
        self._was_empty = False

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        if self.is_introduced:
            await self._api.me()  # so that nobody believes in a connection to a Telegram that is still away
        await self.introduce(self._api)
        yield

    async def next(self) -> Sequence[Event]:
        if self._was_empty:
            await asyncio.sleep(EMPTY_PAUSE)
        while True:
            try:
                found = await self._api.updates(self._offset, self._poll_seconds, self._limit)
                self._was_empty = not found
                return [self.event(update) for update in found]
            except Unreadable as error:
                if self._limit == 1:
                    return [_broken(error)]
                self._limit = 1
                log.get().warning("a batch cannot be parsed: updates are taken one by one", platform=NAME)

    async def confirm(self, events: Sequence[Event]) -> None:
        """The next call confirms these. An empty answer confirmed all before it: forgetting the offset then is safe, and
        needed, because after a week of silence ids start anywhere, perhaps below it."""
        self._offset = int(events[-1].ref) + 1 if events else None
        if not any(event.broken for event in events):
            self._limit = min(2 * self._limit, BATCH)
        await asyncio.gather(*(self._heard(query) for event in events if (query := query_of(event.fields))))

    async def _heard(self, query: str) -> None:
        """End a pressed button's waiting. Whatever goes wrong with that is no matter: it ends by itself."""
        with suppress(PipelineError):
            await self._api.call(HEARD, {"callback_query_id": query}, HEARD_SECONDS)


def _broken(error: Unreadable) -> Event:
    """The one update in an answer that cannot be parsed. Raises the error again where it is none: a proxy's page, perhaps."""
    found = _UPDATE_ID.search(error.text)
    if found is None:
        raise error
    return Event(found[1].decode(), {}, raw=error.text, broken=str(error))
