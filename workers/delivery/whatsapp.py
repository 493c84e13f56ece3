"""Sends reply parts through WhatsApp's Cloud API.

WhatsApp recognises no repetition: a send whose answer is lost may have arrived, and RESEND_AMBIGUOUS decides what then. A
receipt says that WhatsApp took the message. If it cannot bring it to its reader, it says so later, to the receiver.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from shared.address import Address
from shared.errors import Undeliverable
from shared.messages import Media, Part, Receipt, Source
from shared.multipart import Upload
from shared.pipeline import Pipeline
from shared.platforms.whatsapp import FACTS, FILE_SCHEME, GROUP, WhatsAppSettings, part_token
from shared.platforms.whatsapp_api import CloudApi, message_id_in, open_cloud_api
from workers.delivery.sender import no_matter
from workers.delivery.whatsapp_markup import render
from workers.media.incoming import CannotFetch, FetchLimits, IncomingFile, answered
from workers.media.outgoing import Uploads

READ_SECONDS = 1.5  # a hint is worth no longer wait
_NUMBER = re.compile(r"[0-9]{5,20}")
_KINDS = {
    "image/jpeg": "image",
    "image/png": "image",
    "video/mp4": "video",
    "video/3gpp": "video",
    "audio/aac": "audio",
    "audio/amr": "audio",
    "audio/mp4": "audio",
    "audio/mpeg": "audio",
    "audio/ogg": "audio",
    "image/webp": "sticker",
}  # WhatsApp takes no others as what they are; they go as documents
_LARGEST = {"image": 5_000_000, "video": 16_000_000, "audio": 16_000_000, "sticker": 100_000}


class WhatsAppSender:
    """Every number answers where it was spoken to."""

    idempotency = FACTS.idempotency

    def __init__(self, api: CloudApi, numbers: Mapping[str, str], uploads: Uploads) -> None:
        self._api = api
        self._numbers = numbers
        self._uploads = uploads

    async def send(self, part: Part) -> Receipt:
        number = self._numbers.get(part.to.account)
        if number is None:
            raise Undeliverable(f"there is no number {part.to.account or 'without a name'} any more")
        content = await self._content(part, number)
        if part.choices and part.chat_type != "group":
            with suppress(Undeliverable):  # nothing depends on buttons
                return await self._post(part, number, _question(part))
        return await self._post(part, number, content)

    async def _post(self, part: Part, number: str, content: dict[str, Any]) -> Receipt:
        token = {"biz_opaque_callback_data": part_token(part)}
        fields = {**_recipient(part.to.chat), **content, **_answered(part), **token}
        return Receipt(message_id_in(await self._api.post(number, fields, waits=part.waits)))

    @asynccontextmanager
    async def file(self, media: Media, source: Source, limits: FetchLimits) -> AsyncIterator[IncomingFile]:
        """By the file's id, and from the address that WhatsApp names for it."""
        if not media.url.startswith(FILE_SCHEME):
            raise CannotFetch("it is no file of WhatsApp's")
        try:
            about = await self._api.media(media.url.removeprefix(FILE_SCHEME))
        except Undeliverable:
            raise CannotFetch("WhatsApp does not have it any more") from None
        address, size = about.get("url"), about.get("file_size")
        if not isinstance(address, str):
            raise CannotFetch("WhatsApp does not say where it is")
        limits.check(size if type(size) is int else None)
        async with answered(self._api.download(address, limits.seconds)) as file:
            yield file

    async def _content(self, part: Part, number: str) -> dict[str, Any]:
        if not part.media:
            return _text(part.text)
        match file := await self._uploads.of(part.media[0]):
            case Upload():
                uploaded = Media(FILE_SCHEME + await self._api.upload(number, file), _taken_as(file), file.name)
                return _file(uploaded)
            case str():
                return _text(file)
        return _file(part.media[0])

    async def read(self, to: Address, message: str) -> None:
        """Show that the message was read and an answer is coming. Whatever goes wrong with that is no matter."""
        number = self._numbers.get(to.account)
        if number is not None:
            fields = {"status": "read", "message_id": message, "typing_indicator": {"type": "text"}}
            with no_matter():
                await self._api.post(number, fields, seconds=READ_SECONDS)


@asynccontextmanager
async def open_sender(pipe: Pipeline) -> AsyncIterator[WhatsAppSender | None]:
    """The sender for all our numbers; None where WhatsApp is off."""
    settings = pipe.settings.block(WhatsAppSettings)
    if not settings.on:
        yield None
        return
    async with open_cloud_api(settings, pipe.settings.delivery_concurrency) as api:
        yield WhatsAppSender(api, settings.numbers, Uploads(pipe.blobs, FACTS))


def _recipient(chat: str) -> dict[str, str]:
    """A group, a person by their number, or one who hides it."""
    if chat.startswith(GROUP):
        return {"recipient_type": "group", "to": chat.removeprefix(GROUP)}
    field = "to" if _NUMBER.fullmatch(chat) else "recipient"
    return {"recipient_type": "individual", field: chat}


def _answered(part: Part) -> dict[str, Any]:
    """In a group, where others speak in between, the first part of an answer points at what it answers."""
    if part.chat_type != "group" or part.part > 1 or part.answers is None:
        return {}
    return {"context": {"message_id": part.answers}}


def _text(markdown: str) -> dict[str, Any]:
    assert FACTS.text_limit is not None
    return {"type": "text", "text": {"body": render(markdown, FACTS.text_limit), "preview_url": False}}


def _question(part: Part) -> dict[str, Any]:
    """A text with buttons."""
    assert FACTS.buttons is not None and FACTS.buttons.text is not None
    buttons = [{"type": "reply", "reply": {"id": choice.command, "title": choice.label}} for choice in part.choices]
    body = {"text": render(part.text, FACTS.buttons.text)}
    return {"type": "interactive", "interactive": {"type": "button", "body": body, "action": {"buttons": buttons}}}


def _taken_as(file: Upload) -> str:
    """The type to send a file as. One that is too large for what it is goes as a document."""
    return file.type if file.size <= _LARGEST.get(_KINDS.get(file.type, ""), 0) else "application/octet-stream"


def _file(media: Media) -> dict[str, Any]:
    kind = _KINDS.get((media.type or "").partition(";")[0].strip().lower(), "document")
    is_kept = media.url.startswith(FILE_SCHEME)
    file = {"id": media.url.removeprefix(FILE_SCHEME)} if is_kept else {"link": media.url}
    if kind == "document" and media.name:
        file["filename"] = media.name
    return {"type": kind, kind: file}
