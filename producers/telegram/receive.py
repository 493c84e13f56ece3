"""Step 1 for Telegram by webhook: the secret header, then the update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.heard import Event, parse_json
from producers.introduction import Introduction
from producers.receiving import Receiver, Reception, only_header, require_equal
from producers.server.answer import WholeAnswer
from producers.server.route import PlatformRoute
from producers.settling import Settled
from producers.telegram.normalise import query_of
from producers.telegram.updates import HEARD, Updates
from shared.pipeline import Pipeline
from shared.platforms.telegram import NAME, TelegramSettings
from shared.platforms.telegram_api import open_bot_api
from shared.store.journal import Journal

HEADER = "x-telegram-bot-api-secret-token"
_TAKEN = WholeAnswer()  # the same for every request


def routes(pipe: Pipeline) -> Iterator[PlatformRoute]:
    """One for each bot that has a webhook secret. Telegram describes them, not we."""
    settings = pipe.settings.block(TelegramSettings)
    for account, bot in settings.accounts.items() if settings.on else ():
        if bot.webhook_secret:
            path = f"/webhooks/{NAME}/{account}" if account else f"/webhooks/{NAME}"
            yield PlatformRoute(path, Reception(pipe, TelegramReceiver(bot, account, pipe.store.journal)).receive)


class TelegramReceiver(Updates, Receiver[None]):
    """One bot's receiver. The secret comes with the head, and the body is not signed."""

    body_is_signed = False

    def __init__(self, settings: TelegramSettings, account: str, journal: Journal) -> None:
        super().__init__(account, journal)
        self._settings = settings
        self._introduction = Introduction(self._ask)
        self._secrets = [secret.get_secret_value().encode() for secret in settings.webhook_secret]

    def check_head(self, request: Request) -> None:
        require_equal("secret token", only_header(request, HEADER), self._secrets)

    async def parse(self, head: None, body: bytes) -> Sequence[Event]:
        update = parse_json(body)
        await self._introduction.require()
        return (self.event(update),)

    def answer(self, settled: Sequence[Settled]) -> Response:
        """200 with nothing in it: a body would be taken for a method call whose outcome nobody hears of."""
        return _TAKEN

    def answer_to(self, events: Sequence[Event], settled: Sequence[Settled]) -> Response:
        """A pressed button is told that it was heard, by such a call: it shows that it waits until then, and no longer."""
        query = query_of(events[0].fields)
        return _TAKEN if query is None else JSONResponse({"method": HEARD, "callback_query_id": query})

    async def _ask(self) -> None:
        async with open_bot_api(self._settings) as api:
            await self.introduce(api)
