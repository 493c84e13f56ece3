"""Sends reply parts through Discord's HTTP API, as the Markdown that they are.

For some minutes Discord recognises a repeated send by its nonce and answers with the message that it made before. The first
part of an answer to an interaction takes the place of "thinking…"; that may be repeated too. The other parts, and answers
that come after Discord forgot the interaction, are ordinary messages in its channel.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qs, urlsplit

from shared.address import Address
from shared.errors import Ambiguous, Transient, Undeliverable
from shared.messages import Media, Part, Receipt, Source
from shared.multipart import Upload
from shared.pipeline import Pipeline
from shared.platforms.discord import FACTS, DiscordSettings, InteractionAnswer
from shared.platforms.discord_api import DiscordApi, DiscordRefused, open_discord_api
from shared.platforms.discord_limits import Route
from workers.delivery.missing import missing
from workers.delivery.sender import no_matter
from workers.media.incoming import FetchLimits, IncomingFile, answered
from workers.media.outgoing import Uploads

SOON_SECONDS = 60  # before it expires, an attachment's address is asked for again
_PLACE = re.compile(r"[0-9]{1,20}/[0-9]{1,20}")  # a channel and a message
_TIME = re.compile(r"[0-9a-f]{1,12}")
TYPING_SECONDS = 1.5  # a hint is worth no longer wait
IN_A_ROW = 5  # buttons
_ROW, _BUTTON, _PLAIN_STYLE = 1, 2, 2  # types of components, and a style of buttons
NO_LINK_PREVIEW = 4  # a message flag
_MENTIONS_NOBODY = {"parse": [], "replied_user": False}
_NOT_EDITABLE = 30046  # changed too often
_ARCHIVED = 50083
_BAD_FORM = 50035
_CANNOT_POINT = (_BAD_FORM, 160002)  # something in the form; no permission to read what a reply points at
_NOT_THERE = (10003, 50001, 50013)  # the bot is not in the channel, or may not write there


class DiscordSender:
    """Sends as one bot."""

    idempotency = FACTS.idempotency

    def __init__(self, api: DiscordApi, uploads: Uploads) -> None:
        self._api = api
        self._uploads = uploads

    async def send(self, part: Part) -> Receipt:
        if part.media:
            match file := await self._uploads.of(part.media[0]):
                case Upload():
                    return await self._send(part, file)
                case str():
                    part = replace(part, text=file, media=())
        try:
            return await self._send(part, None)
        except DiscordRefused as refusal:
            if not part.choices or refusal.code != _BAD_FORM:
                raise
        return await self._send(replace(part, choices=()), None)  # nothing depends on buttons

    @asynccontextmanager
    async def file(self, media: Media, source: Source, limits: FetchLimits) -> AsyncIterator[IncomingFile]:
        """From the address that came with the message. It is good for a day or so; then the message knows a fresh one."""
        address, _, place = media.url.partition("#")
        if _PLACE.fullmatch(place) and _is_over(address):
            address = await self._fresh(address, *place.split("/"))
        async with answered(self._api.download(address, limits.seconds)) as file:
            yield file

    async def _fresh(self, address: str, channel: str, message: str) -> str:
        """The file's address as its message has it now; the old one where the message is gone, or has the file no more."""
        try:
            found = await self._api.ask(f"/channels/{channel}/messages/{message}")
        except DiscordRefused:
            return address
        files = found.get("attachments")
        for file in files if isinstance(files, list) else ():
            url = file.get("url") if isinstance(file, dict) else None
            if isinstance(url, str) and urlsplit(url).path == urlsplit(address).path:
                return url
        return address

    async def _send(self, part: Part, file: Upload | None) -> Receipt:
        interaction = InteractionAnswer.parse(part.answers)
        if interaction is None:
            return await self._say(part, _pointing(part), file)
        return await self._answer(part, interaction, file)

    async def edit(self, part: Part) -> Receipt:
        """Change a message. One that is gone is sent anew."""
        try:
            return await self._change(part)
        except DiscordRefused as refusal:
            rest = missing(part) if refusal.code == _NOT_EDITABLE else part
            return await self.send(rest) if rest is not None else Receipt(part.edits or "")

    async def rewrite(self, part: Part) -> None:
        await self._change(part)

    async def _change(self, part: Part) -> Receipt:
        assert part.edits is not None
        route = Route("PATCH", f"/channels/{_channel(part.to)}/messages/{_id(part.edits)}")
        try:
            fields = {**_content(part), "components": _buttons(part)}  # none: those that were there go
            return _receipt(await self._api.call(route, fields))
        except Ambiguous as error:
            raise Transient(str(error)) from None  # repeated, it changes nothing

    async def typing(self, to: Address) -> None:
        """Show for some seconds that an answer is coming. Whatever goes wrong with that is no matter."""
        with no_matter():
            await self._api.call(Route("POST", f"/channels/{_channel(to)}/typing"), {}, seconds=TYPING_SECONDS)

    async def _say(self, part: Part, pointing: dict[str, Any], file: Upload | None) -> Receipt:
        """A message in the channel. Where it cannot point at what it answers, it is said without."""
        try:
            return await self._create(part, pointing, file)
        except DiscordRefused as refusal:
            if not pointing or refusal.code not in _CANNOT_POINT:
                raise
        return await self._create(part, {}, file)

    async def _create(self, part: Part, pointing: dict[str, Any], file: Upload | None) -> Receipt:
        """A message, once: the nonce is the part's. A thread that went to sleep is woken first."""
        channel = _channel(part.to)
        route = Route("POST", f"/channels/{channel}/messages")
        fields = {**_content(part, file), **pointing, "nonce": _nonce(part), "enforce_nonce": True}
        try:
            return _receipt(await self._api.call(route, fields, file=file))
        except DiscordRefused as refusal:
            if refusal.code != _ARCHIVED:
                raise
        await self._api.call(Route("PATCH", f"/channels/{channel}"), {"archived": False})
        return _receipt(await self._api.call(route, fields, file=file))

    async def _answer(self, part: Part, interaction: InteractionAnswer, file: Upload | None) -> Receipt:
        hook = f"/webhooks/{_id(interaction.application)}/{interaction.token}"
        if part.part == 1:
            with suppress(DiscordRefused):  # over after 15 minutes, or never acknowledged
                original = Route("PATCH", f"{hook}/messages/@original")
                return _receipt(await self._api.call(original, _content(part, file), file=file))
        try:
            return await self._say(part, {}, file)
        except DiscordRefused as refusal:
            if refusal.code not in _NOT_THERE:
                raise
        return _receipt(await self._api.call(Route("POST", f"{hook}?wait=true"), _content(part, file), file=file))


@asynccontextmanager
async def open_sender(pipe: Pipeline) -> AsyncIterator[DiscordSender | None]:
    """The bot's sender; None where Discord is off."""
    settings = pipe.settings.block(DiscordSettings)
    if not settings.on:
        yield None
        return
    async with open_discord_api(settings, pipe.settings.delivery_concurrency) as api:
        yield DiscordSender(api, Uploads(pipe.blobs, FACTS))


def _is_over(address: str) -> bool:
    """Whether an address has expired, by the time that it says."""
    [until] = parse_qs(urlsplit(address).query).get("ex", [""])[:1]
    return _TIME.fullmatch(until) is not None and int(until, 16) < time.time() + SOON_SECONDS


def _content(part: Part, file: Upload | None = None) -> dict[str, Any]:
    """What a part says. It calls nobody, whatever it names. A file elsewhere is sent as its address, which Discord shows."""
    if file is not None:
        return {"allowed_mentions": _MENTIONS_NOBODY, "attachments": [{"id": 0, "filename": file.name}]}
    if part.media:
        url = part.media[0].url
        if not url.startswith(("https://", "http://")):
            raise Undeliverable("a file without a web address cannot be shown")
        return {"content": url, "allowed_mentions": _MENTIONS_NOBODY}
    fields = {"content": part.text, "allowed_mentions": _MENTIONS_NOBODY, "flags": NO_LINK_PREVIEW}
    return {**fields, "components": _buttons(part)} if part.choices else fields


def _buttons(part: Part) -> list[dict[str, Any]]:
    """The rows of a message's buttons."""
    buttons = [
        {"type": _BUTTON, "style": _PLAIN_STYLE, "label": choice.label, "custom_id": choice.command}
        for choice in part.choices
    ]
    return [{"type": _ROW, "components": buttons[n : n + IN_A_ROW]} for n in range(0, len(buttons), IN_A_ROW)]


def _pointing(part: Part) -> dict[str, Any]:
    """Where others speak in between, the first part of an answer points at what it answers."""
    if part.chat_type == "dm" or part.part > 1 or part.answers is None:
        return {}
    return {"message_reference": {"message_id": _id(part.answers), "fail_if_not_exists": False}}


def _nonce(part: Part) -> str:
    """The same on every try; Discord takes 25 characters."""
    return blake2b(part.idempotency_key.encode(), digest_size=12).hexdigest()


def _receipt(message: dict[str, Any]) -> Receipt:
    if not isinstance(id := message.get("id"), str):
        raise Ambiguous("an answer that is none of Discord's")
    return Receipt(id)


def _channel(to: Address) -> str:
    """A thread is a channel."""
    return _id(to.thread or to.chat)


def _id(id: str) -> str:
    """An id as part of a path: digits only, because an agent may have made it up."""
    if not (id.isascii() and id.isdigit()):
        raise Undeliverable("a Discord id is a number")
    return id
