"""Sends reply parts through Telegram's Bot API: as HTML, as plain text where Telegram does not take that.

Telegram recognises no repetition: a send whose answer is lost may have arrived, and RESEND_AMBIGUOUS decides what then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import httpx
import orjson

from shared import log
from shared.errors import Ambiguous, RateLimited, Transient, Undeliverable
from shared.messages import Media, Part, Receipt, Source
from shared.path_secret import PathSecret
from shared.settings import Telegram
from workers.delivery import Idempotency
from workers.delivery.markup import render
from workers.delivery.split import Limit, utf16_units

PLATFORM = "telegram"
LIMIT = Limit(4096, utf16_units)  # markup does not count, and only shortens
TYPING_SECONDS = 1.5  # a hint is worth no longer wait
DEFAULT_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(days=1)
DIRECT = "direct:"  # how normalise.py marks a topic of a channel's direct messages
TOKEN_WAIT = timedelta(minutes=1)
_FILES = {"image": "Photo", "video": "Video", "audio": "Audio"}


class TokenRefused(RateLimited):
    """Telegram does not know our token: replies wait until somebody has changed it."""


class Refusal(Exception):
    """A 400: something about this very request. A group that moved says where to."""

    def __init__(self, text: str, moved_to: str | None) -> None:
        super().__init__(text)
        self.text = text
        self.moved_to = moved_to


class TelegramSender:
    idempotency = Idempotency.NONE

    def __init__(self, client: httpx.AsyncClient, settings: Telegram) -> None:
        self._client = client
        self._url = settings.api_url.rstrip("/")
        self._seconds = settings.send_timeout_seconds
        self._moved: dict[str, str] = {}  # groups that became supergroups since we started

    async def send(self, part: Part) -> Receipt:
        try:
            return await self._send(part)
        except Refusal as refusal:
            if refusal.moved_to is None:
                raise Undeliverable(refusal.text) from None
            log.get().warning("a group moved to a new id", platform=PLATFORM, chat=part.source.chat)
            self._moved[part.source.chat] = refusal.moved_to
        try:
            return await self._send(part)
        except Refusal as refusal:
            raise Undeliverable(refusal.text) from None

    async def typing(self, source: Source) -> None:
        """Show for some seconds that an answer is coming. Whatever goes wrong with that is no matter."""
        with suppress(Refusal, Transient, Undeliverable):
            await self._call("sendChatAction", {**self._place(source), "action": "typing"}, TYPING_SECONDS)

    async def _send(self, part: Part) -> Receipt:
        place = {**self._place(part.source), **self._answered(part)}
        if part.media:
            return await self._call(*_file(part.media[0], place))
        fields = {**place, "text": part.text, "link_preview_options": {"is_disabled": True}}
        try:
            return await self._call("sendMessage", {**fields, "text": render(part.text), "parse_mode": "HTML"})
        except Refusal as refusal:
            if refusal.moved_to is not None:
                raise
            # Most likely the markup; the text of the refusal is not for deciding on. As it is, it goes or never will.
            return await self._call("sendMessage", fields)

    def _place(self, source: Source) -> dict[str, Any]:
        chat = self._moved.get(source.chat, source.chat)
        place: dict[str, Any] = {"chat_id": _number(chat)}
        if source.thread is not None:
            is_direct = source.thread.startswith(DIRECT)
            field = "direct_messages_topic_id" if is_direct else "message_thread_id"
            place[field] = _number(source.thread.removeprefix(DIRECT))
        return place

    def _answered(self, part: Part) -> dict[str, Any]:
        """In a group, where others speak in between, the first part of an answer points at what it answers."""
        source = part.source
        if source.chat_type == "dm" or part.part > 1 or part.answers is None or source.chat in self._moved:
            return {}  # in a group that moved, the number would be another message's
        return {"reply_parameters": {"message_id": _number(part.answers), "allow_sending_without_reply": True}}

    async def _call(self, method: str, fields: dict[str, Any], seconds: float | None = None) -> Receipt:
        headers = {"content-type": "application/json"}
        try:
            async with asyncio.timeout(seconds or self._seconds):
                response = await self._client.post(
                    f"{self._url}/bot/{method}", content=orjson.dumps(fields), headers=headers
                )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Transient(type(error).__name__) from None
        except (httpx.HTTPError, TimeoutError) as error:
            raise Ambiguous(type(error).__name__) from None
        return _receipt(response)


class TelegramSenders:
    """Every bot answers where it was spoken to."""

    idempotency = Idempotency.NONE

    def __init__(self, bots: Mapping[str, TelegramSender]) -> None:
        self._bots = bots

    async def send(self, part: Part) -> Receipt:
        bot = self._bots.get(part.source.account)
        if bot is None:
            raise Undeliverable(f"there is no bot {part.source.account or 'without a name'} any more")
        return await bot.send(part)

    async def typing(self, source: Source) -> None:
        if (bot := self._bots.get(source.account)) is not None:
            await bot.typing(source)


@asynccontextmanager
async def open_sender(settings: Telegram, connections: int) -> AsyncIterator[TelegramSenders]:
    """The senders of all bots, by account."""
    async with AsyncExitStack() as stack:
        bots = {
            name: await stack.enter_async_context(_bot(bot, connections)) for name, bot in settings.accounts.items()
        }
        yield TelegramSenders(bots)


@asynccontextmanager
async def _bot(settings: Telegram, connections: int) -> AsyncIterator[TelegramSender]:
    """A sender whose token is in nothing that can be logged."""
    assert settings.token is not None
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=100)
    transport = PathSecret(httpx.AsyncHTTPTransport(limits=limits, trust_env=False), "/bot", settings.token)
    timeout = httpx.Timeout(settings.send_timeout_seconds, connect=settings.send_timeout_seconds / 2)
    async with httpx.AsyncClient(
        transport=transport, timeout=timeout, follow_redirects=False, trust_env=False
    ) as client:
        yield TelegramSender(client, settings)


def _receipt(response: httpx.Response) -> Receipt:
    """The message id, or the error that says what to do."""
    status, answer = response.status_code, _object(response.content)
    if status == 200:
        if answer.get("ok") is not True:
            raise Ambiguous("an answer that is none of Telegram's")
        result = answer.get("result")
        return Receipt(str(result["message_id"]) if isinstance(result, dict) and "message_id" in result else "")
    parameters = answer.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    text = f"HTTP {status}: {str(answer.get('description', ''))[:200]}"
    if status == 429:
        raise RateLimited(_wait(parameters.get("retry_after"), response.headers.get("retry-after")))
    if status in (401, 404):
        log.get().error("Telegram refuses the token: replies wait", status=status)
        raise TokenRefused(TOKEN_WAIT)
    if status == 400:
        moved_to = parameters.get("migrate_to_chat_id")
        raise Refusal(text, str(moved_to) if moved_to is not None else None)
    if status >= 500 or status == 408:
        raise Transient(f"HTTP {status}")
    raise Undeliverable(text)  # blocked, kicked, deactivated


def _file(media: Media, place: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = _FILES.get((media.type or "").partition("/")[0], "Document")
    return f"send{kind}", {**place, kind.lower(): media.url.removeprefix("tg-file:")}


def _number(id: str) -> int | str:
    try:
        return int(id)
    except ValueError:
        return id  # @channelname


def _object(content: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _wait(*said: Any) -> timedelta:
    for seconds in said:
        with suppress(TypeError, ValueError, OverflowError):
            return min(max(timedelta(seconds=float(seconds)), timedelta(0)), LONGEST_WAIT)
    return DEFAULT_WAIT
