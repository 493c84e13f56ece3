"""Sends reply parts through Telegram's Bot API: as HTML, as plain text where Telegram does not take that.

Telegram recognises no repetition: a send whose answer is lost may have arrived, and RESEND_AMBIGUOUS decides what then.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from shared import log
from shared.address import Address
from shared.errors import Ambiguous, Transient, Undeliverable
from shared.messages import Inbound, Media, Part, Receipt, Source
from shared.multipart import Upload
from shared.pipeline import Pipeline
from shared.platforms.telegram import DIRECT_TOPIC, FACTS, FILE_SCHEME, NAME, TelegramSettings
from shared.platforms.telegram_api import BadRequest, BotApi, NothingThere, open_bot_api
from workers.delivery.missing import missing
from workers.delivery.sender import no_matter
from workers.delivery.telegram_html import render
from workers.media.incoming import CannotFetch, FetchLimits, IncomingFile, answered
from workers.media.outgoing import Uploads

DRAFT_SECONDS = 1.0  # between changes of what is being written
TYPING_SECONDS = 1.5  # a hint is worth no longer wait
_NOT_MODIFIED = "message is not modified"  # nothing else in the answer says that an edit had been made before
_NOT_EDITABLE = "message can't be edited"  # nor that it is still there
_FILES = {"image": "Photo", "video": "Video", "audio": "Audio"}
_UPLOADS = {
    "image/jpeg": "Photo",
    "image/png": "Photo",
    "image/webp": "Photo",
    "image/gif": "Animation",
    "video/mp4": "Video",
    "audio/mpeg": "Audio",
    "audio/mp4": "Audio",
}  # what Telegram plays or shows; others go as documents
_BUTTONS = "reply_markup"
PHOTO_BYTES = 10_000_000


class TelegramSender:
    """Sends as one bot."""

    idempotency = FACTS.idempotency
    draft_seconds = DRAFT_SECONDS

    def __init__(self, api: BotApi, uploads: Uploads) -> None:
        self._api = api
        self._uploads = uploads
        self._moved: dict[str, str] = {}  # groups that became supergroups since we started

    async def send(self, part: Part) -> Receipt:
        try:
            return await self._send(part)
        except BadRequest as refusal:
            if refusal.moved_to is None:
                raise
            log.get().warning("a group moved to a new id", platform=NAME, chat=part.to.chat)
            self._moved[part.to.chat] = refusal.moved_to
        return await self._send(part)

    async def edit(self, part: Part) -> Receipt:
        """Change a message. One that is gone, or of a group that moved, is sent anew."""
        try:
            return await self._change(part)
        except BadRequest as refusal:
            rest = missing(part) if _NOT_EDITABLE in refusal.description else part
            return await self.send(rest) if rest is not None else Receipt(part.edits or "")

    async def rewrite(self, part: Part) -> None:
        await self._change(part)

    async def draft(self, said: Inbound, text: str) -> None:
        """Show what is being written. Telegram shows it for 30 seconds, and changes it while its id stays the same."""
        fields = {**self._place(said.source.address), "draft_id": _draft_number(said.id)}
        html = {**fields, "text": render(text), "parse_mode": "HTML"}
        try:
            await self._api.call("sendMessageDraft", html)
        except BadRequest:
            await self._api.call("sendMessageDraft", {**fields, "text": text})
        except NothingThere:  # of a token that is no good, the answer itself will tell
            raise Undeliverable("this Bot API server shows no drafts") from None

    async def _change(self, part: Part) -> Receipt:
        assert part.edits is not None
        message = {"chat_id": _number(part.to.chat), "message_id": _number(part.edits)}
        try:
            return await self._text("editMessageText", {**message, **_buttons(part)}, part.text)
        except Ambiguous as error:
            raise Transient(str(error)) from None  # repeated, it changes nothing
        except BadRequest as refusal:
            if _NOT_MODIFIED in refusal.description:
                return Receipt(part.edits)
            raise

    async def typing(self, to: Address) -> None:
        """Show for some seconds that an answer is coming. Whatever goes wrong with that is no matter."""
        with no_matter():
            await self._api.call("sendChatAction", {**self._place(to), "action": "typing"}, TYPING_SECONDS)

    @asynccontextmanager
    async def file(self, media: Media, source: Source, limits: FetchLimits) -> AsyncIterator[IncomingFile]:
        """By getFile, and from the path that it names."""
        if not media.url.startswith(FILE_SCHEME):
            raise CannotFetch("it is no file of Telegram's")
        try:
            path, size = await self._api.file_path(media.url.removeprefix(FILE_SCHEME))
        except BadRequest:
            raise CannotFetch("Telegram does not hand it out; it gives bots files of up to 20 MB") from None
        limits.check(size)
        async with answered(self._api.download(path, limits.seconds)) as file:
            yield file

    async def _send(self, part: Part) -> Receipt:
        place = {**self._place(part.to), **self._answered(part)}
        if not part.media:
            return await self._text("sendMessage", {**place, **_buttons(part)}, part.text)
        match file := await self._uploads.of(part.media[0]):
            case Upload():
                return await self._upload(file, place)
            case str():
                return await self._text("sendMessage", place, file)
        return _receipt(await self._api.call(*_file(part.media[0], place)))

    async def _upload(self, file: Upload, place: dict[str, Any]) -> Receipt:
        """As what it is, or as a document where Telegram does not take it so, such as a picture that is too wide."""
        kind = _kind(file)
        if kind != "Document":
            try:
                return _receipt(await self._api.upload(f"send{kind}", place, kind.lower(), file))
            except BadRequest as refused:
                if refused.moved_to is not None:
                    raise
        return _receipt(await self._api.upload("sendDocument", place, "document", file))

    async def _text(self, method: str, place: dict[str, Any], text: str) -> Receipt:
        """Say it as HTML, or as plain text where Telegram does not take that."""
        fields = {**place, "text": text, "link_preview_options": {"is_disabled": True}}
        try:
            html = {**fields, "text": render(text), "parse_mode": "HTML"}
            return _receipt(await self._api.call(method, html))
        except BadRequest as refusal:
            if refusal.moved_to is not None or _NOT_MODIFIED in refusal.description:
                raise
            # Most likely the markup; the text of the refusal is not for deciding on. As it is, it goes or never will.
            fields.pop(_BUTTONS, None)  # nothing depends on them
            return _receipt(await self._api.call(method, fields))

    def _place(self, to: Address) -> dict[str, Any]:
        place: dict[str, Any] = {"chat_id": _number(self._moved.get(to.chat, to.chat))}
        if to.thread is not None:
            is_direct = to.thread.startswith(DIRECT_TOPIC)
            field = "direct_messages_topic_id" if is_direct else "message_thread_id"
            place[field] = _number(to.thread.removeprefix(DIRECT_TOPIC))
        return place

    def _answered(self, part: Part) -> dict[str, Any]:
        """In a group, where others speak in between, the first part of an answer points at what it answers."""
        if part.chat_type == "dm" or part.part > 1 or part.answers is None or part.to.chat in self._moved:
            return {}  # in a group that moved, the number would be another message's
        return {"reply_parameters": {"message_id": _number(part.answers), "allow_sending_without_reply": True}}


class TelegramSenders:
    """Every bot answers where it was spoken to."""

    idempotency = FACTS.idempotency
    draft_seconds = DRAFT_SECONDS

    def __init__(self, bots: Mapping[str, TelegramSender]) -> None:
        self._bots = bots

    async def send(self, part: Part) -> Receipt:
        return await self._bot(part).send(part)

    async def edit(self, part: Part) -> Receipt:
        return await self._bot(part).edit(part)

    async def rewrite(self, part: Part) -> None:
        await self._bot(part).rewrite(part)

    async def draft(self, said: Inbound, text: str) -> None:
        if (bot := self._bots.get(said.source.account)) is not None:
            await bot.draft(said, text)

    async def typing(self, to: Address) -> None:
        if (bot := self._bots.get(to.account)) is not None:
            await bot.typing(to)

    def file(self, media: Media, source: Source, limits: FetchLimits) -> AbstractAsyncContextManager[IncomingFile]:
        return self._named(source.account).file(media, source, limits)

    def _bot(self, part: Part) -> TelegramSender:
        return self._named(part.to.account)

    def _named(self, account: str) -> TelegramSender:
        bot = self._bots.get(account)
        if bot is None:
            raise Undeliverable(f"there is no bot {account or 'without a name'} any more")
        return bot


@asynccontextmanager
async def open_sender(pipe: Pipeline) -> AsyncIterator[TelegramSenders | None]:
    """The senders of all bots, by account; None where Telegram is off."""
    settings, connections = pipe.settings.block(TelegramSettings), pipe.settings.delivery_concurrency
    if not settings.on:
        yield None
        return
    async with AsyncExitStack() as stack:
        uploads = Uploads(pipe.blobs, FACTS)
        yield TelegramSenders(
            {
                account: TelegramSender(await stack.enter_async_context(open_bot_api(bot, connections)), uploads)
                for account, bot in settings.accounts.items()
            }
        )


def _buttons(part: Part) -> dict[str, Any]:
    """One below the other: of several in a row, phones show only the beginnings. A change without any takes them away."""
    rows = [[{"text": choice.label, "callback_data": choice.command}] for choice in part.choices]
    return {_BUTTONS: {"inline_keyboard": rows}} if rows else {}


def _receipt(result: Any) -> Receipt:
    return Receipt(str(result["message_id"]) if isinstance(result, dict) and "message_id" in result else "")


def _file(media: Media, place: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """By its id or its web address. A Bot API server of one's own also takes `file:///…`: an agent could send any file of it."""
    if not media.url.startswith((FILE_SCHEME, "https://", "http://")):
        raise Undeliverable("a file that Telegram cannot be pointed at")
    kind = _FILES.get((media.type or "").partition("/")[0], "Document")
    return f"send{kind}", {**place, kind.lower(): media.url.removeprefix(FILE_SCHEME)}


def _kind(file: Upload) -> str:
    kind = _UPLOADS.get(file.type, "Document")
    return "Document" if kind == "Photo" and file.size > PHOTO_BYTES else kind


def _draft_number(inbound_id: str) -> int:
    """The same for every attempt at a message, and never 0, which Telegram refuses."""
    return zlib.crc32(inbound_id.encode()) or 1


def _number(id: str) -> int | str:
    try:
        return int(id)
    except ValueError:
        return id  # @channelname
