"""Step 1 for Telegram by webhook: the secret header, then the update. A 2xx means settled; anything else brings it again."""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from producers.server import http
from producers.telegram.bot_api import Conflict, open_bot_api
from producers.telegram.normalise import Bot
from producers.telegram.update import set_aside, take_update
from producers.webhook.normalise import parse
from shared.errors import Denied, Malformed, Transient, Unavailable
from shared.pipeline import Pipeline

HEADER = "x-telegram-bot-api-secret-token"


class TelegramReceiver:
    """One bot's receiver."""

    def __init__(self, pipe: Pipeline, account: str = "") -> None:
        self._pipe = pipe
        self._account = account
        self._settings = pipe.settings.telegram.accounts[account]
        self._me: Bot | None = None
        self._asking = asyncio.Lock()
        self._secrets = [secret.get_secret_value().encode() for secret in self._settings.webhook_secret]

    async def receive(self, request: Request) -> Response:
        """200 with nothing in it: a body would be taken for a method call whose outcome nobody hears of."""
        self._check(request)
        body = await http.read_body(request, self._pipe.settings)
        try:
            update = parse(body)
        except Malformed as error:
            await set_aside(self._pipe, "", body, str(error))
            return Response()
        await take_update(self._pipe, await self._bot(), update)
        return Response()

    def _check(self, request: Request) -> None:
        given = request.headers.getlist(HEADER)
        token = given[0].encode("latin-1") if len(given) == 1 else b""
        matches = [hmac.compare_digest(token, secret) for secret in self._secrets]
        if not any(matches):
            raise Denied("secret token")

    async def _bot(self) -> Bot:
        """Without our own name nobody could say who is addressed: until we know it, Telegram keeps the update."""
        try:
            async with self._asking:
                if self._me is None:
                    async with open_bot_api(self._settings) as api:
                        self._me = replace(await api.me(), account=self._account)
                return self._me
        except (Transient, Denied, Conflict) as error:
            raise Unavailable(str(error)) from None
