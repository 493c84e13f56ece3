"""Sends reply parts through signal-cli's daemon.

Signal recognises no repetition: a send whose answer is lost may have arrived, and RESEND_AMBIGUOUS decides what then. In a
group some members may not be reached; the part is sent if one was, because sending it again would reach the others twice.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from shared import log
from shared.address import Address
from shared.byte_budget import ByteBudget
from shared.errors import Ambiguous, Transient, Undeliverable
from shared.messages import Media, Part, Receipt, Source
from shared.multipart import Upload
from shared.pipeline import Pipeline
from shared.platforms.signal import FACTS, FILE_SCHEME, GROUP, NAME, SignalSettings
from shared.platforms.signal_api import Daemon, open_daemon, results_in
from workers.delivery.sender import no_matter
from workers.delivery.signal_styles import render
from workers.media.incoming import CannotFetch, FetchLimits, IncomingFile
from workers.media.outgoing import Uploads

TYPING_SECONDS = 1.5  # a hint is worth no longer wait
_PASSING = frozenset({"NETWORK_FAILURE", "INVALID_PRE_KEY_FAILURE"})
_UNREGISTERED = "UNREGISTERED_FAILURE"
_REASONS = {
    _UNREGISTERED: "not on Signal any more",
    "IDENTITY_FAILURE": "the person's identity key changed: trust it in signal-cli",
}


FILE_BYTES = 20_000_000  # that an answer of the daemon may hold
MEMORY_BYTES = 2 * FILE_BYTES  # of files in memory at once: the daemon takes and gives them whole


class SignalSender:
    """Sends through signal-cli's daemon. The receipt is the message's timestamp, by which it can be edited."""

    idempotency = FACTS.idempotency

    def __init__(self, daemon: Daemon, uploads: Uploads) -> None:
        self._daemon = daemon
        self._uploads = uploads
        self._in_memory = ByteBudget(MEMORY_BYTES)

    async def send(self, part: Part) -> Receipt:
        return await self._send(part, _answered(part))

    async def edit(self, part: Part) -> Receipt:
        """Change a message. One that cannot be changed any more is sent anew."""
        assert part.edits is not None
        if not part.edits.isdecimal():
            return await self.send(part)
        try:
            await self._send(part, {"editTimestamp": int(part.edits)})
        except Ambiguous as error:
            raise Transient(str(error)) from None  # repeated, it changes nothing
        except Undeliverable:
            return await self.send(part)
        return Receipt(part.edits)  # the first version's time stays the message's name

    async def typing(self, to: Address) -> None:
        """Show for some seconds that an answer is coming. Whatever goes wrong with that is no matter."""
        with no_matter():
            await self._daemon.call("sendTyping", _recipient(to.chat), seconds=TYPING_SECONDS)

    @asynccontextmanager
    async def file(self, media: Media, source: Source, limits: FetchLimits) -> AsyncIterator[IncomingFile]:
        """From the daemon, which has fetched it already and gives it whole."""
        if not media.url.startswith(FILE_SCHEME):
            raise CannotFetch("it is no file of Signal's")
        chat = source.chat
        where = {"groupId": chat.removeprefix(GROUP)} if chat.startswith(GROUP) else {"recipient": chat}
        fields = {"id": media.url.removeprefix(FILE_SCHEME), **where}
        async with self._in_memory.room(FILE_BYTES):
            try:
                found = await self._daemon.call("getAttachment", fields, seconds=limits.seconds)
                content = base64.b64decode(str(found.get("data", "")), validate=True)
            except (Undeliverable, ValueError):
                raise CannotFetch("signal-cli does not have it any more") from None
            yield IncomingFile(_once(content), len(content))

    async def _send(self, part: Part, more: dict[str, Any]) -> Receipt:
        if not part.media:
            return await self._post(part, {**_text(part.text), **more})
        match file := await self._uploads.of(part.media[0]):
            case Upload():
                async with self._in_memory.room(file.size):
                    return await self._post(part, {"message": "", "attachments": [await _data_uri(file)], **more})
            case str():
                return await self._post(part, {**_text(file), **more})
        return await self._post(part, {**_file(part.media[0]), **more})

    async def _post(self, part: Part, content: dict[str, Any]) -> Receipt:
        result = await self._daemon.call("send", {**_recipient(part.to.chat), **content}, waits=part.waits)
        self._check(results_in(result), part)
        sent_at = result.get("timestamp")
        if type(sent_at) is not int:
            raise Ambiguous("an answer that is none of signal-cli's")
        return Receipt(str(sent_at))

    def _check(self, results: list[dict[str, Any]], part: Part) -> None:
        """Raises what to do about a part that reached nobody."""
        failed = [result for result in results if result.get("type") != "SUCCESS"]
        if not failed:
            return
        if len(failed) < len(results):
            log.get().warning(
                "some members of a group were not reached",
                platform=NAME,
                part=part.idempotency_key,
                count=len(failed),
                reasons=sorted({str(result.get("type"))[:40] for result in failed}),
            )
            return
        kinds = {str(result.get("type")) for result in failed}
        if "RATE_LIMIT_FAILURE" in kinds:
            limited = next(result for result in failed if result.get("type") == "RATE_LIMIT_FAILURE")
            raise self._daemon.wait(limited, part.waits)
        if kinds & _PASSING:
            raise Transient(", ".join(sorted(kinds))[:200])
        what = "; ".join(_REASONS.get(kind, kind[:40]) for kind in sorted(kinds))[:200]
        raise Undeliverable(what, closes_chat=kinds == {_UNREGISTERED})


@asynccontextmanager
async def open_sender(pipe: Pipeline) -> AsyncIterator[SignalSender | None]:
    """The account's sender; None where Signal is off."""
    settings = pipe.settings.block(SignalSettings)
    if not settings.on:
        yield None
        return
    async with open_daemon(settings, pipe.settings.delivery_concurrency) as daemon:
        yield SignalSender(daemon, Uploads(pipe.blobs, FACTS))


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _data_uri(file: Upload) -> str:
    content = b"".join([chunk async for chunk in file.chunks()])
    return f"data:{file.type};filename={quote(file.name)};base64,{base64.b64encode(content).decode()}"


def _recipient(chat: str) -> dict[str, Any]:
    return {"groupId": chat.removeprefix(GROUP)} if chat.startswith(GROUP) else {"recipient": [chat]}


def _answered(part: Part) -> dict[str, Any]:
    """In a group, where others speak in between, the first part of an answer quotes what it answers."""
    if part.chat_type != "group" or part.part > 1 or part.answers is None:
        return {}
    sent_at, _, author = part.answers.partition(":")
    if not sent_at.isdecimal() or not author:
        return {}
    return {"quoteTimestamp": int(sent_at), "quoteAuthor": author, "quoteMessage": ""}


def _text(markdown: str) -> dict[str, Any]:
    assert FACTS.text_limit is not None
    rendered = render(markdown, FACTS.text_limit)
    return {"message": rendered.text, **({"textStyle": list(rendered.styles)} if rendered.styles else {})}


def _file(media: Media) -> dict[str, Any]:
    """The daemon takes bytes or a path of its own machine. A path is never passed on: an agent could send any file with it."""
    if media.url.startswith("data:"):
        return {"message": "", "attachments": [media.url]}
    return {"message": f"{media.name}: {media.url}" if media.name else media.url}
