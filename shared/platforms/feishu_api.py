"""Feishu's open platform: calls, and what its answers mean. Both halves use it: one asks who we are and where events come
from, the other sends. Every answer of Feishu's has a `code`, and 0 alone is a success, whatever the HTTP status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import orjson

from shared import log
from shared.errors import Ambiguous, BotRefused, Conflict, Denied, PipelineError, RateLimited, Transient, Undeliverable
from shared.http_client import HttpAnswer, HttpClient, HttpStream, open_http_client, retry_after
from shared.multipart import Multipart, Upload
from shared.platforms.feishu import FeishuSettings
from shared.platforms.feishu_token import FeishuTokens, Token, lasting
from shared.value import value
from shared.websocket import WebSocket

CALL_SECONDS = 15.0
LONGEST_WAIT = timedelta(days=1)
LONGEST_TOKEN_SECONDS = 24 * 3600
RESET = "x-ogw-ratelimit-reset"  # seconds until Feishu takes requests again
_JSON = {"content-type": "application/json; charset=utf-8"}
_CHAT_LIMITED = 230020
_LIMITED = frozenset({99991400, 99991402, _CHAT_LIMITED, 11232})
_TOKEN = frozenset({99991663, 99991664, 99991665, 99991666, 99991668})  # no good any more: another may be
_SCOPE = frozenset({99991672, 99991679, 99991680, 99991681})
_BEING_SENT = 230049  # the same uuid, a moment ago: nobody knows yet what becomes of it
_CLOSED = frozenset(
    {230002, 230013, 230045, 232009}
)  # not in the group; not open to this person; the group is dissolved
_BUSY_ENDPOINT = (1, 1000040343)
_TOO_MANY_CONNECTIONS = 1000040350


class FeishuRefused(Undeliverable):
    """Feishu says no, for good; `code` says why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"Feishu: {code} {text}".rstrip(), closes_chat=code in _CLOSED)
        self.code = code


@value
class FeishuMe:
    """The bot of our app."""

    open_id: str
    name: str


@value
class Endpoint:
    """Where a connection is opened, once: the address holds a ticket. `config` is how Feishu wants it to be held."""

    url: str
    config: Mapping[str, Any]


class OpenApi:
    """One app. Its secret and its tokens are in nothing that is logged, raised or printed."""

    def __init__(self, client: HttpClient, settings: FeishuSettings) -> None:
        assert settings.app_id is not None and settings.app_secret is not None
        self._client = client
        self._url = settings.api_url.rstrip("/")
        self._app_id, self._secret = settings.app_id, settings.app_secret
        self._tokens = FeishuTokens(self._fetch_token)

    async def call(
        self, method: str, path: str, fields: Mapping[str, Any] | None = None, *, seconds: float | None = None
    ) -> dict[str, Any]:
        """The answer of a method below /open-apis. Raises the five things that a caller can do about one that is none:

        RateLimited; Transient, or Ambiguous where it may have been carried out; BotRefused when Feishu refuses the app, Denied
        when the app lacks a scope; Refused and other Undeliverable. A token that is no good any more is renewed, and the call
        made again, once.
        """
        body = orjson.dumps(fields) if fields is not None else b""
        for is_last in (False, True):
            token = await self._tokens.current()
            headers = {**_JSON, "authorization": f"Bearer {token}"}
            answer = await self._client.request(method, f"{self._url}/open-apis{path}", body, headers, seconds=seconds)
            log.get().debug("asked", method=method, path=path.partition("?")[0], status=answer.status)
            found = _object(answer.body)
            if (code := _code(found)) == 0:
                return found
            if is_last or code not in _TOKEN:
                raise _error(answer, found)
            self._tokens.refused(token)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def download(self, path: str, seconds: float) -> AsyncIterator[HttpStream]:
        """A file below /open-apis, until the block ends. Raises as `call` does where Feishu gives none."""
        for is_last in (False, True):
            token = await self._tokens.current()
            headers = {"authorization": f"Bearer {token}"}
            async with self._client.get_stream(f"{self._url}/open-apis{path}", headers, seconds=seconds) as answer:
                if answer.status == 200:
                    yield answer
                    return
                refused = HttpAnswer(answer.status, answer.headers, await answer.body())
            found = _object(refused.body)
            if is_last or _code(found) not in _TOKEN:
                raise _error(refused, found)
            self._tokens.refused(token)

    async def upload(self, path: str, fields: Mapping[str, str], file_field: str, file: Upload) -> dict[str, Any]:
        """Give Feishu a file. Nobody sees it yet, so it may be repeated. Raises as `call` does, and never Ambiguous."""
        form = Multipart(fields, file_field, file)
        for is_last in (False, True):
            token = await self._tokens.current()
            headers = {"authorization": f"Bearer {token}", **form.headers}
            try:
                answer = await self._client.request("POST", f"{self._url}/open-apis{path}", form.chunks(), headers)
            except Ambiguous as error:
                raise Transient(str(error)) from None
            found = _object(answer.body)
            data, code = found.get("data"), _code(found)
            if code == 0 and isinstance(data, dict):
                return data
            if is_last or code not in _TOKEN:
                failed = _error(answer, found)
                raise Transient(str(failed)) if isinstance(failed, Ambiguous) else failed
            self._tokens.refused(token)
        raise AssertionError("unreachable")

    async def me(self, seconds: float = CALL_SECONDS) -> FeishuMe:
        """Who we are. Raises Denied where Feishu will not say, and Transient."""
        try:
            found = await self.call("GET", "/bot/v3/info", seconds=seconds)
        except Undeliverable as error:
            raise Denied(str(error)) from None
        data = found.get("data")
        bot = found.get("bot") or (data.get("bot") if isinstance(data, dict) else None)
        open_id, name = (bot.get("open_id"), bot.get("app_name")) if isinstance(bot, dict) else (None, None)
        if not isinstance(open_id, str) or not open_id:
            raise Transient("Feishu: bot/v3/info says something else")
        return FeishuMe(open_id, name if isinstance(name, str) and name else "bot")

    async def endpoint(self) -> Endpoint:
        """Where to connect for events. Raises Denied, Conflict where the app has all its connections, and Transient."""
        fields = {"AppID": self._app_id, "AppSecret": self._secret.get_secret_value()}
        found = await self._ask("/callback/ws/endpoint", fields)
        data, code = found.get("data"), _code(found)
        if code == _TOO_MANY_CONNECTIONS:
            raise Conflict("Feishu: this app has as many connections as it may have")
        if code in _BUSY_ENDPOINT:
            raise Transient(f"Feishu: {code}")
        if code != 0:
            raise Denied(f"Feishu refuses the app ({code})")
        url = data.get("URL") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(url, str) or not url.startswith(("wss://", "ws://")):
            raise Transient("Feishu: the endpoint says something else")
        config = data.get("ClientConfig")
        return Endpoint(url, config if isinstance(config, dict) else {})

    @asynccontextmanager
    async def socket(self, endpoint: Endpoint) -> AsyncIterator[WebSocket]:
        """A connection, until the block ends. Raises Denied, RateLimited and Transient."""
        async with self._client.websocket(endpoint.url, {}) as socket:
            yield socket

    async def _fetch_token(self) -> Token:
        fields = {"app_id": self._app_id, "app_secret": self._secret.get_secret_value()}
        found = await self._ask("/open-apis/auth/v3/tenant_access_token/internal", fields)
        if (code := _code(found)) != 0:
            raise BotRefused(f"Feishu refuses the app's id or secret ({code})")
        text, seconds = found.get("tenant_access_token"), found.get("expire")
        if not isinstance(text, str) or not text.isascii() or not text.isprintable() or not text:
            raise Transient("Feishu: a token that is none")
        if type(seconds) is not int or not 0 < seconds <= LONGEST_TOKEN_SECONDS:
            raise Transient("Feishu: a token that does not say how long it lasts")
        return lasting(text, seconds)

    async def _ask(self, path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """An answer with a code, to a question that may be asked again. Raises RateLimited, Transient and Denied."""
        try:
            answer = await self._client.post(self._url + path, orjson.dumps(fields), _JSON, seconds=CALL_SECONDS)
        except Ambiguous as error:
            raise Transient(str(error)) from None
        found = _object(answer.body)
        code = _code(found)
        if code is not None and code not in _LIMITED and answer.status < 500:
            return found
        failed = _error(answer, found)
        if isinstance(failed, Undeliverable):
            raise Denied(str(failed))
        raise Transient(str(failed)) if isinstance(failed, Ambiguous) else failed


@asynccontextmanager
async def open_api(settings: FeishuSettings, connections: int = 2) -> AsyncIterator[OpenApi]:
    async with open_http_client(connections=connections, seconds=settings.send_timeout_seconds) as client:
        yield OpenApi(client, settings)


def _error(answer: HttpAnswer, found: dict[str, Any]) -> PipelineError:
    """What an answer that is no success means. A code that is in no list is a refusal: Feishu took nothing."""
    status, code = answer.status, _code(found)
    if status == 429 or code in _LIMITED:
        wait = retry_after(answer.headers.get(RESET), answer.headers.get("retry-after"), longest=LONGEST_WAIT)
        return RateLimited(wait, whole_bot=code != _CHAT_LIMITED)
    if code in _TOKEN:
        return BotRefused(f"Feishu refuses the app ({code})")
    if code in _SCOPE:
        return Denied(f"Feishu refuses the app ({code})")
    if code == _BEING_SENT:
        return Ambiguous(f"Feishu: {code}")
    if status >= 500 or status == 408:
        return Transient(f"Feishu: HTTP {status}")
    if code is not None and status != 401:
        return FeishuRefused(code, str(found.get("msg", ""))[:200])
    if status == 200:
        return Ambiguous("an answer that is none of Feishu's")
    if status == 401:
        return BotRefused(f"Feishu: HTTP {status}")
    if status in (403, 404):
        return Denied(f"Feishu: HTTP {status}")
    return Undeliverable(f"HTTP {status}") if 400 <= status < 500 else Transient(f"HTTP {status}")


def _code(found: dict[str, Any]) -> int | None:
    code = found.get("code")
    return code if type(code) is int else None


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
