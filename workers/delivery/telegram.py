"""Sends reply parts through Telegram's Bot API: as HTML, as plain text where Telegram does not take that.

Telegram recognises no repetition: a send whose answer is lost may have arrived, and RESEND_AMBIGUOUS decides what then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from shared import log
from shared.errors import PipelineError, Undeliverable
from shared.messages import Media, Part, Receipt, Source
from shared.pipeline import Pipeline
from shared.platforms.telegram import DIRECT_TOPIC, FACTS, FILE_SCHEME, NAME, TelegramSettings
from shared.platforms.telegram_api import BadRequest, BotApi, open_bot_api
from workers.delivery.telegram_html import render

TYPING_SECONDS = 1.5  # a hint is worth no longer wait
_FILES = {"image": "Photo", "video": "Video", "audio": "Audio"}


class TelegramSender:
    """Sends as one bot."""

    idempotency = FACTS.idempotency

    def __init__(self, api: BotApi) -> None:
        self._api = api
        self._moved: dict[str, str] = {}  # groups that became supergroups since we started

    async def send(self, part: Part) -> Receipt:
        try:
            return await self._send(part)
        except BadRequest as refusal:
            if refusal.moved_to is None:
                raise
            log.get().warning("a group moved to a new id", platform=NAME, chat=part.source.chat)
            self._moved[part.source.chat] = refusal.moved_to
        return await self._send(part)

    async def typing(self, source: Source) -> None:
        """Show for some seconds that an answer is coming. Whatever goes wrong with that is no matter."""
        with suppress(PipelineError):
            await self._api.call("sendChatAction", {**self._place(source), "action": "typing"}, TYPING_SECONDS)

    async def _send(self, part: Part) -> Receipt:
        place = {**self._place(part.source), **self._answered(part)}
        if part.media:
            return _receipt(await self._api.call(*_file(part.media[0], place)))
        fields = {**place, "text": part.text, "link_preview_options": {"is_disabled": True}}
        try:
            html = {**fields, "text": render(part.text), "parse_mode": "HTML"}
            return _receipt(await self._api.call("sendMessage", html))
        except BadRequest as refusal:
            if refusal.moved_to is not None:
                raise
            # Most likely the markup; the text of the refusal is not for deciding on. As it is, it goes or never will.
            return _receipt(await self._api.call("sendMessage", fields))

    def _place(self, source: Source) -> dict[str, Any]:
        chat = self._moved.get(source.chat, source.chat)
        place: dict[str, Any] = {"chat_id": _number(chat)}
        if source.thread is not None:
            is_direct = source.thread.startswith(DIRECT_TOPIC)
            field = "direct_messages_topic_id" if is_direct else "message_thread_id"
            place[field] = _number(source.thread.removeprefix(DIRECT_TOPIC))
        return place

    def _answered(self, part: Part) -> dict[str, Any]:
        """In a group, where others speak in between, the first part of an answer points at what it answers."""
        source = part.source
        if source.chat_type == "dm" or part.part > 1 or part.answers is None or source.chat in self._moved:
            return {}  # in a group that moved, the number would be another message's
        return {"reply_parameters": {"message_id": _number(part.answers), "allow_sending_without_reply": True}}


class TelegramSenders:
    """Every bot answers where it was spoken to."""

    idempotency = FACTS.idempotency

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
async def open_sender(pipe: Pipeline) -> AsyncIterator[TelegramSenders | None]:
    """The senders of all bots, by account; None where Telegram is off."""
    settings, connections = pipe.settings.block(TelegramSettings), pipe.settings.delivery_concurrency
    if not settings.on:
        yield None
        return
    async with AsyncExitStack() as stack:
        yield TelegramSenders(
            {
                account: TelegramSender(await stack.enter_async_context(open_bot_api(bot, connections)))
                for account, bot in settings.accounts.items()
            }
        )


def _receipt(result: Any) -> Receipt:
    return Receipt(str(result["message_id"]) if isinstance(result, dict) and "message_id" in result else "")


def _file(media: Media, place: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = _FILES.get((media.type or "").partition("/")[0], "Document")
    return f"send{kind}", {**place, kind.lower(): media.url.removeprefix(FILE_SCHEME)}


def _number(id: str) -> int | str:
    try:
        return int(id)
    except ValueError:
        return id  # @channelname
