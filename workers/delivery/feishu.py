"""Sends reply parts through Feishu's open platform: as rich text, as plain text where Feishu does not take that.

Feishu recognises a repetition by its `uuid`, for an hour. Later, RESEND_AMBIGUOUS decides about a send whose end nobody saw.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

from shared import log
from shared.errors import Ambiguous, Denied, Transient, Undeliverable
from shared.messages import Media, Part, Receipt, Source
from shared.multipart import Upload
from shared.pipeline import Pipeline
from shared.platforms.feishu import FACTS, FILE_SCHEME, NAME, FeishuSettings
from shared.platforms.feishu_api import FeishuRefused, OpenApi, open_api
from workers.delivery.feishu_content import CARD, card, link, plain, rich, uploaded
from workers.delivery.missing import missing
from workers.media.incoming import CannotFetch, FetchLimits, IncomingFile, answered
from workers.media.outgoing import Uploads

UUID_LENGTH = 50
RECOGNISED_FOR = timedelta(minutes=55)  # Feishu says an hour
THREADS_KEPT = 1000
PICTURE_BYTES = 10_000_000
_PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp", "image/bmp", "image/tiff")
_CARD = "card:"  # begins the receipt of a card, which is changed in another way than other messages
LOOKED_AT = 5  # messages of a thread: the first may be gone
_NOT_EDITABLE = frozenset({230072, 230075})  # changed too often; too long ago
_BAD_FORM = frozenset({230001, 230099})
_WHEREVER = frozenset(  # refused for good, however the chat is spoken to
    {230002, 230006, 230013, 230017, 230018, 230019, 230022, 230025, 230027, 230045, 230050, 232009}
)
_ID_TYPES = {"oc_": "chat_id", "ou_": "open_id", "on_": "union_id"}


class FeishuSender:
    """Sends as one app."""

    idempotency = FACTS.idempotency

    def __init__(self, api: OpenApi, uploads: Uploads, *, resend_unrecognised: bool) -> None:
        self._api = api
        self._uploads = uploads
        self._resend_unrecognised = resend_unrecognised
        self._in_thread: dict[str, str] = {}  # thread -> a message in it

    async def send(self, part: Part) -> Receipt:
        if part.sending and part.sending_for > RECOGNISED_FOR and not self._resend_unrecognised:
            raise Undeliverable("an earlier attempt may have arrived, and Feishu would not recognise this one")
        forms, uuid = await self._forms(part), {"uuid": _uuid(part.idempotency_key)}
        gone: str | None = None
        while (answered := await self._answered(part, gone)) is not None:
            in_thread = {"reply_in_thread": part.to.thread is not None}
            try:
                return await self._say("POST", f"{_path(answered)}/reply", {**in_thread, **uuid}, forms)
            except FeishuRefused as refusal:
                if refusal.code in _WHEREVER:
                    raise
                log.get().warning("a message cannot be replied to", platform=NAME, code=refusal.code)
            if part.to.thread is None or gone is not None:
                break
            gone = answered
        path = f"/im/v1/messages?receive_id_type={_kind_of(part.to.chat)}"
        return await self._say("POST", path, {"receive_id": part.to.chat, **uuid}, forms)

    async def edit(self, part: Part) -> Receipt:
        """Change a message. One that is gone is sent anew."""
        try:
            return await self._change(part)
        except Undeliverable as refusal:
            is_there = isinstance(refusal, FeishuRefused) and refusal.code in _NOT_EDITABLE
            rest = missing(part) if is_there else part
            return await self.send(rest) if rest is not None else Receipt(part.edits or "")

    async def rewrite(self, part: Part) -> None:
        await self._change(part)

    async def _change(self, part: Part) -> Receipt:
        """A card stays one, and any other message becomes none: Feishu keeps the kind of a message."""
        assert part.edits is not None
        try:
            if part.edits.startswith(_CARD):
                content = {"content": card(part)["content"]}
                await self._api.call("PATCH", _path(part.edits.removeprefix(_CARD)), content)
            else:
                await self._say("PUT", _path(part.edits), {}, await self._forms(replace(part, choices=())))
        except Ambiguous as error:
            raise Transient(str(error)) from None  # repeated, it changes nothing
        return Receipt(part.edits)

    @asynccontextmanager
    async def file(self, media: Media, source: Source, limits: FetchLimits) -> AsyncIterator[IncomingFile]:
        """As a resource of its message."""
        message, kind, key = (*media.url.removeprefix(FILE_SCHEME).split("/"), "", "")[:3]
        if not media.url.startswith(FILE_SCHEME) or not key:
            raise CannotFetch("it is no file of Feishu's")
        path = f"{_path(message)}/resources/{quote(key, safe='')}?type={quote(kind, safe='')}"
        try:
            async with answered(self._api.download(path, limits.seconds)) as file:
                yield file
        except FeishuRefused:
            raise CannotFetch("Feishu does not give it out") from None

    async def _forms(self, part: Part) -> list[dict[str, str]]:
        """What to try, the best first."""
        if not part.media:
            texts = [rich(part.text), plain(part.text)]
            return [card(part), *texts] if part.choices else texts
        match file := await self._uploads.of(part.media[0]):
            case Upload():
                return [await self._uploaded(file)]
            case str():
                return [plain(file)]
        return [_linked(part.media[0])]

    async def _uploaded(self, file: Upload) -> dict[str, str]:
        """A picture as one, anything else as a file."""
        if file.type in _PICTURES and file.size <= PICTURE_BYTES:
            data = await self._api.upload("/im/v1/images", {"image_type": "message"}, "image", file)
            return uploaded("image", "image_key", data)
        fields = {"file_type": "stream", "file_name": file.name}
        return uploaded("file", "file_key", await self._api.upload("/im/v1/files", fields, "file", file))

    async def _say(self, method: str, path: str, place: dict[str, Any], forms: list[dict[str, str]]) -> Receipt:
        """In the first form that Feishu takes."""
        *first, last = forms
        for form in first:
            try:
                receipt = _receipt(await self._api.call(method, path, {**place, **form}))
                return Receipt(_CARD + receipt.message_id) if form["msg_type"] == CARD else receipt
            except FeishuRefused as refusal:
                if refusal.code not in _BAD_FORM:
                    raise
        return _receipt(await self._api.call(method, path, {**place, **last}))

    async def _answered(self, part: Part, gone: str | None) -> str | None:
        """The message that a part replies to: in a thread one of its messages, because a thread has no address of its own.
        Not the one that is `gone`."""
        if part.to.thread is not None:
            is_there = part.answers is not None and part.answers != gone
            return part.answers if is_there else await self._message_in(part.to.thread, gone)
        return part.answers if part.chat_type != "dm" and part.part == 1 else None

    async def _message_in(self, thread: str, gone: str | None) -> str | None:
        """Some message of a thread; None where Feishu does not say."""
        known = self._in_thread.get(thread)
        if known is not None and known != gone:
            return known
        query = f"container_id_type=thread&container_id={quote(thread, safe='')}&page_size={LOOKED_AT}"
        try:
            found = _data(await self._api.call("GET", f"/im/v1/messages?{query}")).get("items")
        except Ambiguous as error:
            raise Transient(str(error)) from None
        except (Denied, Undeliverable) as error:
            log.get().warning("a thread cannot be read: sent to its chat", platform=NAME, reason=str(error))
            return None
        messages = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
        ids = [item.get("message_id") for item in messages if item.get("deleted") is not True]
        id = next((id for id in ids if isinstance(id, str) and id != gone), None)
        if len(self._in_thread) >= THREADS_KEPT:
            self._in_thread.clear()
        if id is not None:
            self._in_thread[thread] = id
        return id


@asynccontextmanager
async def open_sender(pipe: Pipeline) -> AsyncIterator[FeishuSender | None]:
    """The app's sender; None where Feishu is off."""
    settings = pipe.settings.block(FeishuSettings)
    if not settings.on:
        yield None
        return
    async with open_api(settings, pipe.settings.delivery_concurrency) as api:
        yield FeishuSender(api, Uploads(pipe.blobs, FACTS), resend_unrecognised=pipe.settings.resend_ambiguous)


def _linked(media: Media) -> dict[str, str]:
    """Files stay where they are, and the chat gets a link."""
    if not media.url.startswith(("https://", "http://")):
        raise Undeliverable("a file that Feishu cannot be pointed at")
    return link(media.url, media.name or "file")


def _path(message: str) -> str:
    return f"/im/v1/messages/{quote(message, safe='')}"


def _kind_of(id: str) -> str:
    return "email" if "@" in id else _ID_TYPES.get(id[:3], "user_id")


def _uuid(key: str) -> str:
    return key if len(key) <= UUID_LENGTH else blake2b(key.encode(), digest_size=16).hexdigest()


def _receipt(answer: dict[str, Any]) -> Receipt:
    id = _data(answer).get("message_id")
    return Receipt(id if isinstance(id, str) else "")


def _data(answer: dict[str, Any]) -> dict[str, Any]:
    data = answer.get("data")
    return data if isinstance(data, dict) else {}
