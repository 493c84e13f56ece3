"""Discord's HTTP API: calls, and what its answers mean. Both halves use it: one asks for channels, the other sends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson
from pydantic import SecretStr
from yarl import URL

from shared import log
from shared.errors import Ambiguous, BotRefused, PipelineError, RateLimited, Transient, Undeliverable
from shared.http_client import HttpAnswer, HttpClient, HttpStream, open_http_client, retry_after
from shared.multipart import Multipart, Upload
from shared.origin import require_own
from shared.platforms.discord import DiscordSettings
from shared.platforms.discord_limits import DiscordLimits, Route

LONGEST_WAIT = timedelta(days=1)
UNAUTHORISED = 40001
_FILE_DOMAINS = ("discordapp.com", "discordapp.net", "discord.com")
_CLOSED = frozenset(
    {10003, 10004, 10013, 50001, 50007}
)  # no such channel, guild or user; no access; a person who takes nothing
SLOW_MODE = 20016
OVERLOADED = 130000  # the API is overloaded for this resource


class DiscordRefused(Undeliverable):
    """Refused for good. `code` is Discord's own word for the reason, as listed in its documentation."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"HTTP {status}, code {code}: {message}", closes_chat=code in _CLOSED)
        self.code = code


class DiscordApi:
    """One bot. Its token, and the tokens of interactions, are in nothing that is logged, raised or printed."""

    def __init__(self, client: HttpClient, api_url: str, token: SecretStr, cdn_url: str | None = None) -> None:
        self._client = client
        self._url = api_url.rstrip("/")
        self._token = token
        self._cdn_url = cdn_url
        self._limits = DiscordLimits()

    async def call(
        self,
        route: Route,
        fields: Mapping[str, Any] | None = None,
        *,
        file: Upload | None = None,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """The object that Discord answers with; empty where it answers with nothing. Otherwise raises:

        RateLimited; Transient, or Ambiguous where it may have been carried out; BotRefused when the token is no good; Refused.
        A route that is known to be exhausted is not asked: RateLimited says for how long. `file` is attached to the message.
        """
        self._limits.check(route)
        headers = {"user-agent": _USER_AGENT}
        if fields is not None:
            headers["content-type"] = "application/json"
        if not route.is_interaction:
            headers["authorization"] = f"Bot {self._token.get_secret_value()}"
        body: bytes | AsyncIterator[bytes] = orjson.dumps(fields) if fields is not None else b""
        if file is not None:
            form = Multipart({"payload_json": orjson.dumps(fields).decode()}, "files[0]", file)
            headers, body = {**headers, **form.headers}, form.chunks()
        answer = await self._client.request(route.method, self._url + route.path, body, headers, seconds=seconds)
        log.get().debug("asked", route=route.name, status=answer.status)
        found = _object(answer.body)
        self._limits.note(route, answer.headers)
        if 200 <= answer.status < 300:
            if answer.status != 204 and found is None:
                raise Ambiguous("an answer that is none of Discord's")
            return found or {}
        error = _error(route, answer, found or {})
        if isinstance(error, RateLimited) and error.whole_bot:
            self._limits.refused_everywhere(error.retry_after)
        raise error

    def download(self, address: str, seconds: float) -> AbstractAsyncContextManager[HttpStream]:
        """An attachment, from Discord's own servers. It needs no token."""
        url = require_own(address, self._url, *_FILE_DOMAINS)
        if self._cdn_url is not None:
            url = URL(self._cdn_url).join(url.relative())
        return self._client.get_stream(url, {"user-agent": _USER_AGENT}, seconds=seconds)

    async def ask(self, path: str) -> dict[str, Any]:
        """The answer to a question, which may be repeated: never Ambiguous. Raises as `call` does."""
        try:
            return await self.call(Route("GET", path))
        except Ambiguous as error:
            raise Transient(str(error)) from None


@asynccontextmanager
async def open_discord_api(settings: DiscordSettings, connections: int = 2) -> AsyncIterator[DiscordApi]:
    assert settings.token is not None
    async with open_http_client(connections=connections, seconds=settings.send_timeout_seconds) as client:
        yield DiscordApi(client, settings.api_url, settings.token, settings.cdn_url)


def _version() -> str:
    try:
        return version("keyturn")
    except PackageNotFoundError:
        return "0"


_USER_AGENT = f"DiscordBot (keyturn, {_version()})"  # another form may be blocked


def _error(route: Route, answer: HttpAnswer, found: Mapping[str, Any]) -> PipelineError:
    """What an answer that is no success means. A 401 to an interaction is about its token, not about the bot's."""
    status, code = answer.status, found.get("code")
    if status == 429 or code == SLOW_MODE:
        wait = retry_after(found.get("retry_after"), answer.headers.get("retry-after"), longest=LONGEST_WAIT)
        return RateLimited(wait, whole_bot=_is_global(answer, found))
    if status >= 500 or status == 408 or code == OVERLOADED:
        return Transient(f"HTTP {status}")
    if (status == 401 or code == UNAUTHORISED) and not route.is_interaction:
        return BotRefused(f"Discord refuses the token ({status})")
    if type(code) is not int:
        return Transient(f"HTTP {status}, and no word of Discord's")  # a page of something between us
    return DiscordRefused(status, code, str(found.get("message", ""))[:200])


def _is_global(answer: HttpAnswer, found: Mapping[str, Any]) -> bool:
    """Whether all routes are meant. So it is where a 429 is not Discord's own word: what stands in front of it locks out addresses,
    and for longer if they go on."""
    if found.get("global") is True or answer.headers.get("x-ratelimit-scope") == "global":
        return True
    return answer.status == 429 and not found


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
