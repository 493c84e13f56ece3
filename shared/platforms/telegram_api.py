"""Telegram's Bot API: calls, and what its answers mean. Both halves use it: one asks for updates, the other sends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import orjson
from yarl import URL

from shared import log
from shared.errors import Ambiguous, BotRefused, Conflict, Denied, PipelineError, RateLimited, Transient, Undeliverable
from shared.http_client import HttpAnswer, HttpClient, HttpStream, open_http_client, retry_after
from shared.multipart import Multipart, Upload
from shared.platforms.telegram import UPDATE_KINDS, TelegramSettings

BATCH = 100  # updates that one call brings at most: Telegram's own limit
CALL_SECONDS = 15.0
LONGEST_WAIT = timedelta(days=1)
_NO_CHAT = "chat not found"  # nothing else in the answer says so
_HEADERS = {"content-type": "application/json"}


class Unreadable(PipelineError):
    """A successful answer of getUpdates that is no list of updates; `text` is what came."""

    def __init__(self, text: bytes) -> None:
        super().__init__("the answer is no list of updates")
        self.text = text


class NothingThere(BotRefused):
    """A 404: Telegram knows no such token. A Bot API server of one's own says it of a method that is newer than itself, too."""


class BadRequest(Undeliverable):
    """A 400: something about this very request. A group that moved says where to."""

    def __init__(self, description: str, moved_to: str | None) -> None:
        super().__init__(f"HTTP 400: {description}", closes_chat=_NO_CHAT in description)
        self.description = description
        self.moved_to = moved_to


class BotApi:
    """One bot. Its token is in nothing that is logged, raised or printed."""

    def __init__(self, client: HttpClient, api_url: str) -> None:
        self._client = client
        self._url = api_url.rstrip("/")

    async def call(self, method: str, fields: dict[str, Any], seconds: float | None = None) -> Any:
        """The result of a method. Raises the five things that a caller can do about an answer that is none:

        RateLimited; Transient, or Ambiguous where it may have been carried out; BotRefused when the token is no good;
        BadRequest or another Undeliverable; and Conflict when updates go elsewhere.
        """
        return _result(await self._post(method, fields, seconds))

    async def upload(self, method: str, fields: dict[str, Any], file_field: str, file: Upload) -> Any:
        """`call` with a file. Raises as `call` does."""
        plain = {name: text if isinstance(text, str) else orjson.dumps(text).decode() for name, text in fields.items()}
        form = Multipart(plain, file_field, file)
        answer = await self._client.request("POST", f"{self._url}/bot/{method}", form.chunks(), form.headers)
        log.get().debug("uploaded", method=method, status=answer.status, bytes=file.size)
        return _result(answer)

    async def me(self) -> tuple[str, str]:
        """The id and the username of the bot that the token belongs to. Raises as `updates` does."""
        found = _object((await self._ask("getMe", {}, CALL_SECONDS)).body).get("result")
        try:
            return str(int(found["id"])), str(found["username"])  # type: ignore[index]
        except (KeyError, TypeError, ValueError):
            raise Transient("Telegram: getMe says something else") from None

    async def file_path(self, file_id: str) -> tuple[str, int | None]:
        """Where Telegram has a file for the next hour, and its size where Telegram says it. Raises as `call` does."""
        found = await self.call("getFile", {"file_id": file_id}, CALL_SECONDS)
        path, size = (found.get("file_path"), found.get("file_size")) if isinstance(found, dict) else (None, None)
        if not isinstance(path, str) or not path:
            raise Transient("Telegram: getFile says something else")
        return path, size if type(size) is int else None

    def download(self, path: str, seconds: float) -> AbstractAsyncContextManager[HttpStream]:
        """The file at a path that `file_path` gave."""
        quoted = quote(path.lstrip("/"), safe="/").replace("/bot", "/%62ot")  # the token is put behind the last "/bot"
        if quoted.startswith("bot"):
            quoted = f"%62{quoted[1:]}"
        url = URL(f"{self._url}/file/bot/{quoted}", encoded=True)
        return self._client.get_stream(url, {}, seconds=seconds)

    async def updates(self, offset: int | None, wait_seconds: int, limit: int = BATCH) -> list[dict[str, Any]]:
        """What is new, after waiting for it. Confirms everything below `offset`: Telegram forgets it.

        Raises RateLimited, Conflict, Transient, Denied when the token is no good, and Unreadable for an answer that cannot
        be parsed: then all updates but one may be in order.
        """
        fields: dict[str, Any] = {"timeout": wait_seconds, "allowed_updates": UPDATE_KINDS, "limit": limit}
        if offset is not None:
            fields["offset"] = offset
        answer = await self._ask("getUpdates", fields, wait_seconds + CALL_SECONDS)
        found = _object(answer.body).get("result")
        if not isinstance(found, list) or not all(_is_update(update) for update in found):
            raise Unreadable(answer.body)
        return found

    async def _ask(self, method: str, fields: dict[str, Any], seconds: float) -> HttpAnswer:
        """A successful answer to a question. Nothing about a question can be refused for good but the token."""
        answer = await self._post(method, fields, seconds)
        if answer.status == 200:
            return answer
        error = _error(answer, _object(answer.body))
        if isinstance(error, Undeliverable):
            error = Denied("Telegram refuses the token (403)") if answer.status == 403 else Transient(str(error))
        raise error

    async def _post(self, method: str, fields: dict[str, Any], seconds: float | None) -> HttpAnswer:
        url = f"{self._url}/bot/{method}"  # the token follows "/bot" below this
        answer = await self._client.post(url, orjson.dumps(fields), _HEADERS, seconds=seconds)
        log.get().debug("asked", url=url, status=answer.status)
        return answer


@asynccontextmanager
async def open_bot_api(settings: TelegramSettings, connections: int = 2) -> AsyncIterator[BotApi]:
    assert settings.token is not None
    seconds = settings.send_timeout_seconds
    async with open_http_client(connections=connections, seconds=seconds, secret=("/bot", settings.token)) as client:
        yield BotApi(client, settings.api_url)


def _result(answer: HttpAnswer) -> Any:
    found = _object(answer.body)
    if answer.status == 200:
        if found.get("ok") is not True:
            raise Ambiguous("an answer that is none of Telegram's")
        return found.get("result")
    raise _error(answer, found)


def _error(answer: HttpAnswer, found: dict[str, Any]) -> PipelineError:
    """What an answer that is no success means."""
    status, description = answer.status, str(found.get("description", ""))[:200]
    parameters = found.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    if status == 429:
        said = (parameters.get("retry_after"), answer.headers.get("retry-after"))
        return RateLimited(retry_after(*said, longest=LONGEST_WAIT))
    if status in (401, 404):
        return (NothingThere if status == 404 else BotRefused)(f"Telegram refuses the token ({status})")
    if status == 409:
        return Conflict("another process polls with this token, or a webhook is set")
    if status == 400:
        moved_to = parameters.get("migrate_to_chat_id")
        return BadRequest(description, str(moved_to) if moved_to is not None else None)
    if status >= 500 or status == 408:
        return Transient(f"HTTP {status}")
    return Undeliverable(f"HTTP {status}: {description}", closes_chat=status == 403)  # blocked, kicked, deactivated


def _is_update(update: Any) -> bool:
    return isinstance(update, dict) and type(update.get("update_id")) is int


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
