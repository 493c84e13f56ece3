"""Sends reply parts through Slack's Web API, as mrkdwn.

Slack recognises no repetition, so every message carries its part's key where nobody sees it, and a part that was tried
before is looked for first. Where we may not look, or cannot look at all of it, RESEND_AMBIGUOUS decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from shared import log
from shared.errors import Ambiguous, Denied, Transient, Undeliverable
from shared.messages import Media, Part, Receipt, Source
from shared.multipart import Upload
from shared.pipeline import Pipeline
from shared.platforms.slack import FACTS, FILE_SCHEME, NAME, TIMESTAMP, SlackSettings
from shared.platforms.slack_api import SlackRefused, WebApi, open_web_api
from workers.delivery.missing import missing
from workers.delivery.slack_mrkdwn import escape, link, render
from workers.media.incoming import CannotFetch, FetchLimits, IncomingFile, answered
from workers.media.outgoing import Uploads

LOOKED_AT, PAGES = 200, 5  # messages in a page, and pages, among which an earlier attempt is looked for
_MARK = "keyturn_part"  # the kind of metadata that our messages carry
_NOT_EDITABLE = ("cant_update_message", "edit_window_closed")
_BAD_FORM = ("invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "invalid_arguments")


class SlackSender:
    """Sends as one app."""

    idempotency = FACTS.idempotency

    def __init__(self, api: WebApi, uploads: Uploads, *, resend_unseen: bool) -> None:
        self._api = api
        self._uploads = uploads
        self._resend_unseen = resend_unseen  # what was tried before, where we may not look for it

    async def send(self, part: Part) -> Receipt:
        if part.counted and (arrived := await self._arrived(part)) is not None:
            return arrived
        place = {"channel": part.to.chat} | ({"thread_ts": part.to.thread} if part.to.thread is not None else {})
        mark = {"metadata": {"event_type": _MARK, "event_payload": {"key": part.idempotency_key}}}
        text = part.text
        if part.media:
            match file := await self._uploads.of(part.media[0]):
                case Upload():
                    uploaded = Media(FILE_SCHEME + await self._api.upload(file), file.type, file.name)
                    return await self._send_file(uploaded, {**place, **mark})
                case None:
                    return await self._send_file(part.media[0], {**place, **mark})
                case line:
                    text = line
        quiet = {"unfurl_links": False, "unfurl_media": False}
        return await self._text("chat.postMessage", {**place, **quiet, **mark, **_blocks(part)}, text)

    @asynccontextmanager
    async def file(self, media: Media, source: Source, limits: FetchLimits) -> AsyncIterator[IncomingFile]:
        """By files.info, and from the address that it names. To those whose token is no good, Slack shows a page."""
        if not media.url.startswith(FILE_SCHEME):
            raise CannotFetch("it is no file of Slack's")
        try:
            about = await self._about(media.url.removeprefix(FILE_SCHEME))
        except SlackRefused:
            raise CannotFetch("Slack does not have it any more") from None
        address, size = about.get("url_private_download") or about.get("url_private"), about.get("size")
        if not isinstance(address, str):
            raise CannotFetch("Slack does not say where it is")
        limits.check(size if type(size) is int else None)
        async with answered(self._api.download(address, limits.seconds)) as file:
            kind = about.get("mimetype")
            if file.type == "text/html" and kind != "text/html":
                raise Denied("Slack shows a page instead of a file: the token lacks files:read")
            yield file

    async def edit(self, part: Part) -> Receipt:
        """Change a message. One that is gone is sent anew."""
        try:
            return await self._change(part)
        except Undeliverable as refusal:
            is_there = isinstance(refusal, SlackRefused) and refusal.error in _NOT_EDITABLE
            rest = missing(part) if is_there else part
            return await self.send(rest) if rest is not None else Receipt(part.edits or "")

    async def rewrite(self, part: Part) -> None:
        await self._change(part)

    async def _change(self, part: Part) -> Receipt:
        assert part.edits is not None
        channel, _, sent_as = part.edits.rpartition(":")
        message = {"channel": channel or part.to.chat, "ts": sent_as}
        try:
            blocks = _blocks(part) or {"blocks": []}  # buttons that were there go
            return await self._text("chat.update", {**message, **blocks}, part.text)
        except Ambiguous as error:
            raise Transient(str(error)) from None  # repeated, it changes nothing

    async def _text(self, method: str, place: dict[str, Any], text: str) -> Receipt:
        """Say it as mrkdwn, or as plain text where Slack does not take that."""
        try:
            return _receipt(await self._api.call(method, {**place, "text": render(text)}))
        except SlackRefused as refusal:
            if refusal.error not in _BAD_FORM:
                raise
        place = {name: field for name, field in place.items() if name != "blocks"}  # nothing depends on buttons
        return _receipt(await self._api.call(method, {**place, "text": escape(text), "mrkdwn": False}))

    async def _send_file(self, media: Media, place: dict[str, Any]) -> Receipt:
        """Files stay where they are. A picture is shown from there, if Slack can fetch it; others are links. Slack shows a
        file of its own where a message links to it."""
        label, address = media.name or "file", media.url
        if address.startswith(FILE_SCHEME):
            address = await self._permalink(address.removeprefix(FILE_SCHEME))
        if not address.startswith(("https://", "http://")):
            raise Undeliverable("a file that Slack cannot be pointed at")
        fields = {**place, "text": link(address, label)}
        if (media.type or "").startswith("image/") and address == media.url:
            picture = {"type": "image", "image_url": address, "alt_text": label}
            try:
                return _receipt(await self._api.call("chat.postMessage", {**fields, "blocks": [picture]}))
            except SlackRefused as refusal:
                if refusal.error not in _BAD_FORM:
                    raise
        return _receipt(await self._api.call("chat.postMessage", fields))

    async def _permalink(self, file: str) -> str:
        """Where people see a file that Slack keeps; empty where Slack does not say."""
        return str((await self._about(file)).get("permalink", ""))

    async def _about(self, file: str) -> dict[str, Any]:
        """What Slack says of a file."""
        found = (await self._api.ask("files.info", {"file": file})).get("file")
        return found if isinstance(found, dict) else {}

    async def _arrived(self, part: Part) -> Receipt | None:
        """The receipt of an earlier attempt that Slack took after all. None: send it."""
        fields: dict[str, str | int] = {"channel": part.to.chat, "limit": LOOKED_AT, "include_all_metadata": "true"}
        if part.answers is not None and TIMESTAMP.fullmatch(part.answers):
            fields["oldest"] = part.answers
        method = "conversations.history"
        if part.to.thread is not None:
            method, fields["ts"] = "conversations.replies", part.to.thread
        try:
            for _ in range(PAGES):
                page = await self._api.ask(method, fields)
                if (message := _ours(page, part)) is not None:
                    return Receipt(f"{part.to.chat}:{message['ts']}")
                if page.get("has_more") is not True:
                    return None
                if not (cursor := _next_page(page)):
                    break
                fields["cursor"] = cursor
            reason = "Slack did not show all that was said since"
        except (Denied, Undeliverable) as error:
            reason = f"we may not look: {error}"
        if not self._resend_unseen:
            raise Undeliverable(f"an earlier attempt may have arrived, and {reason}")
        log.get().warning("not looked for an earlier attempt", platform=NAME, reason=reason)
        return None


@asynccontextmanager
async def open_sender(pipe: Pipeline) -> AsyncIterator[SlackSender | None]:
    """The app's sender; None where Slack is off."""
    settings = pipe.settings.block(SlackSettings)
    if not settings.on:
        yield None
        return
    async with open_web_api(settings, pipe.settings.delivery_concurrency) as api:
        yield SlackSender(api, Uploads(pipe.blobs, FACTS), resend_unseen=pipe.settings.resend_ambiguous)


def _blocks(part: Part) -> dict[str, Any]:
    """A question with its buttons. Without any a text needs no blocks."""
    if not part.choices:
        return {}
    said = {"type": "section", "text": {"type": "mrkdwn", "text": render(part.text), "verbatim": True}}
    buttons = [
        {
            "type": "button",
            "action_id": f"choice_{n}",
            "text": {"type": "plain_text", "text": choice.label, "emoji": False},
            "value": choice.command,
        }
        for n, choice in enumerate(part.choices)
    ]
    return {"blocks": [said, {"type": "actions", "elements": buttons}]}


def _receipt(result: dict[str, Any]) -> Receipt:
    """Channel and time: a message to a person is known by the channel that Slack made of it."""
    channel, sent_as = result.get("channel"), result.get("ts")
    known = isinstance(channel, str) and isinstance(sent_as, str)
    return Receipt(f"{channel}:{sent_as}" if known else "")


def _ours(page: dict[str, Any], part: Part) -> dict[str, Any] | None:
    """The message of the page that is this part."""
    found = page.get("messages")
    return next((message for message in found if _is(message, part)), None) if isinstance(found, list) else None


def _next_page(page: dict[str, Any]) -> str:
    """Where the next page begins; empty where Slack does not say."""
    about = page.get("response_metadata")
    cursor = about.get("next_cursor") if isinstance(about, dict) else None
    return cursor if isinstance(cursor, str) else ""


def _is(message: Any, part: Part) -> bool:
    try:
        return bool(message["ts"]) and message["metadata"]["event_payload"]["key"] == part.idempotency_key
    except (KeyError, TypeError):
        return False
