"""Slack's Web API: calls, and what its answers mean. Both halves use it: one asks who we are and what happens, the other
sends. Slack answers 200 to nearly everything; `ok` and `error` in the body say how it went."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import orjson
from pydantic import SecretStr

from shared import log
from shared.errors import Ambiguous, BotRefused, Denied, PipelineError, RateLimited, Transient, Undeliverable
from shared.http_client import HttpAnswer, HttpClient, HttpStream, open_http_client, retry_after
from shared.multipart import Multipart, Upload
from shared.origin import require_own
from shared.platforms.slack import SlackSettings
from shared.value import value
from shared.websocket import WebSocket

CALL_SECONDS = 15.0
LONGEST_WAIT = timedelta(days=1)
_JSON, _FORM = "application/json; charset=utf-8", "application/x-www-form-urlencoded"
_LIMITED = frozenset({"ratelimited", "rate_limited"})
_TOKEN = frozenset(
    {
        "invalid_auth",
        "not_authed",
        "token_revoked",
        "token_expired",
        "account_inactive",
        "not_allowed_token_type",
    }
)
_SCOPE = "missing_scope"
_CLOSED = frozenset({"channel_not_found", "not_in_channel", "is_archived", "user_not_found", "messages_tab_disabled"})
_TRANSIENT = frozenset({"internal_error", "service_unavailable", "request_timeout", "team_added_to_org"})
_FILE_DOMAINS = ("slack.com", "slack-files.com", "slack-gov.com")  # the last is GovSlack's
_HALF_DONE = "fatal_error"  # some of it may have been carried out


class SlackRefused(Undeliverable):
    """Slack says no, for good; `error` is its word for it, such as `channel_not_found`."""

    def __init__(self, error: str) -> None:
        super().__init__(f"Slack: {error}", closes_chat=error in _CLOSED)
        self.error = error


@value
class SlackMe:
    """The bot that a token belongs to."""

    user: str
    bot: str
    team: str
    name: str


class WebApi:
    """One app. Its tokens are in nothing that is logged, raised or printed."""

    def __init__(self, client: HttpClient, api_url: str, token: SecretStr) -> None:
        self._client = client
        self._url = api_url.rstrip("/")
        self._token = token

    async def call(self, method: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a method that changes something. Raises the five things that a caller can do about a failure:

        RateLimited; Transient, or Ambiguous where it may have been carried out; BotRefused when the token is no good; Denied when it lacks a scope;
        Refused.
        """
        return await self._post(method, orjson.dumps(fields), _JSON)

    async def ask(
        self,
        method: str,
        fields: Mapping[str, str | int],
        seconds: float = CALL_SECONDS,
        token: SecretStr | None = None,
    ) -> dict[str, Any]:
        """Ask something; most questions are not taken as JSON. Raises as `call` does."""
        return await self._post(method, urlencode(fields).encode(), _FORM, seconds, token)

    async def me(self) -> SlackMe:
        """Who we are. Raises Denied where Slack will not say, and Transient."""
        try:
            found = await self.ask("auth.test", {})
        except Undeliverable as error:
            raise Denied(str(error)) from None
        about = [found.get(field) for field in ("user_id", "bot_id", "team_id", "user")]
        user, bot, team, name = (word if isinstance(word, str) else "" for word in about)
        if not user or not team:
            raise Transient("Slack: auth.test says something else")
        return SlackMe(user, bot, team, name or "bot")

    def download(self, address: str, seconds: float) -> AbstractAsyncContextManager[HttpStream]:
        """The file at an address that Slack gave. Undeliverable for one that is none of Slack's: it gets no token."""
        url = require_own(address, self._url, *_FILE_DOMAINS)
        headers = {"authorization": f"Bearer {self._token.get_secret_value()}"}
        return self._client.get_stream(url, headers, seconds=seconds)

    async def upload(self, file: Upload) -> str:
        """Give Slack a file, and return its id. It is in no channel yet. May be repeated: then Slack has it twice."""
        begun = await self.ask("files.getUploadURLExternal", {"filename": file.name, "length": file.size})
        address, id = begun.get("upload_url"), begun.get("file_id")
        if not isinstance(address, str) or not isinstance(id, str):
            raise Transient("Slack: files.getUploadURLExternal says something else")
        url, form = require_own(address, self._url, *_FILE_DOMAINS), Multipart({}, "file", file)
        try:
            answer = await self._client.request("POST", url, form.chunks(), form.headers)
            if answer.status != 200:
                raise Transient(f"Slack: HTTP {answer.status} to an upload")
            await self.call("files.completeUploadExternal", {"files": [{"id": id, "title": file.name}]})
        except Ambiguous as error:
            raise Transient(str(error)) from None  # nobody has seen it
        return id

    @asynccontextmanager
    async def socket(self, app_token: SecretStr, silence_seconds: float) -> AsyncIterator[WebSocket]:
        """A new Socket Mode connection, until the block ends. Raises Denied, RateLimited and Transient.

        We ping when nothing comes for half of `silence_seconds`. One that does not even answer that is over.
        """
        url = await self.socket_url(app_token)
        async with self._client.websocket(url, {}, ping_seconds=silence_seconds / 2) as socket:
            yield socket

    async def socket_url(self, app_token: SecretStr) -> str:
        """The address of one connection, with a ticket in it that is good for once. Raises as `socket` does."""
        try:
            found = (await self.ask("apps.connections.open", {}, token=app_token)).get("url")
        except Undeliverable as error:
            raise Denied(str(error)) from None
        if not isinstance(found, str) or not found.startswith(("wss://", "ws://")):
            raise Transient("Slack: apps.connections.open says something else")
        return found

    async def _post(
        self, method: str, body: bytes, kind: str, seconds: float | None = None, token: SecretStr | None = None
    ) -> dict[str, Any]:
        secret = (token or self._token).get_secret_value()
        headers = {"content-type": kind, "authorization": f"Bearer {secret}"}
        answer = await self._client.post(f"{self._url}/{method}", body, headers, seconds=seconds)
        log.get().debug("asked", method=method, status=answer.status)
        found = _object(answer.body)
        if answer.status == 200 and found.get("ok") is True:
            return found
        raise _error(answer, found)


@asynccontextmanager
async def open_web_api(settings: SlackSettings, connections: int = 2) -> AsyncIterator[WebApi]:
    assert settings.bot_token is not None
    async with open_http_client(connections=connections, seconds=settings.send_timeout_seconds) as client:
        yield WebApi(client, settings.api_url, settings.bot_token)


def _error(answer: HttpAnswer, found: dict[str, Any]) -> PipelineError:
    """What an answer that is no success means. A word that is in no list is a refusal: Slack took nothing."""
    status, error = answer.status, str(found.get("error", ""))[:100]
    if status == 429 or error in _LIMITED:
        return RateLimited(retry_after(answer.headers.get("retry-after"), longest=LONGEST_WAIT))
    if error in _TOKEN or status == 401:
        return BotRefused(f"Slack refuses the token ({error or status})")
    if error == _SCOPE or status in (403, 404):
        needed = f", needed: {str(found['needed'])[:100]}" if "needed" in found else ""
        return Denied(f"Slack refuses the token ({error or status}{needed})")
    if error == _HALF_DONE:
        return Ambiguous(f"Slack: {error}")
    if error in _TRANSIENT or status != 200:
        return Transient(f"Slack: {error or f'HTTP {status}'}")
    return SlackRefused(error) if error else Ambiguous("an answer that is none of Slack's")


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
