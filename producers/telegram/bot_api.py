"""The two methods of the Bot API that receiving needs: who are we, and what is new."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import orjson

from producers.telegram.normalise import Bot
from shared.errors import Denied, PipelineError, RateLimited, Unavailable
from shared.path_secret import PathSecret
from shared.settings import Telegram

KINDS = ("message", "channel_post")  # edits, reactions and the rest would only be ignored
BATCH = 100  # updates that one call brings at most: Telegram's own limit
CALL_SECONDS = 15.0
CONNECT_SECONDS = 10.0
DEFAULT_WAIT = timedelta(seconds=5)


class Conflict(PipelineError):
    """Updates go elsewhere: another process polls with this token, or a webhook is set."""


class Unreadable(PipelineError):
    """A successful answer of getUpdates that is no list of updates; `text` is what came."""

    def __init__(self, text: bytes) -> None:
        super().__init__("the answer is no list of updates")
        self.text = text


class BotApi:
    def __init__(self, client: httpx.AsyncClient, api_url: str) -> None:
        self._client = client
        self._url = api_url.rstrip("/")

    async def me(self) -> Bot:
        """The bot that the token belongs to. It stays the same, so one asks once."""
        return _bot(await self._call("getMe", {}, CALL_SECONDS))

    async def updates(self, offset: int | None, wait_seconds: int, limit: int = BATCH) -> list[dict[str, Any]]:
        """What is new, after waiting for it. Confirms everything below `offset`: Telegram forgets it.

        Raises Unreadable for an answer that cannot be parsed: then all updates but one may be in order.
        """
        fields: dict[str, Any] = {"timeout": wait_seconds, "allowed_updates": KINDS, "limit": limit}
        if offset is not None:
            fields["offset"] = offset
        response = await self._post("getUpdates", fields, wait_seconds + CALL_SECONDS)
        found = _object(response).get("result")
        if not isinstance(found, list) or not all(_is_update(update) for update in found):
            raise Unreadable(response.content)
        return found

    async def _call(self, method: str, fields: dict[str, Any], seconds: float) -> Any:
        answer = _object(await self._post(method, fields, seconds))
        if answer.get("ok") is not True:
            raise Unavailable("Telegram: HTTP 200 and no answer")
        return answer.get("result")

    async def _post(self, method: str, fields: dict[str, Any], seconds: float) -> httpx.Response:
        """A successful answer; Unavailable, RateLimited, Conflict, or Denied when the token is no good."""
        headers = {"content-type": "application/json"}
        try:
            response = await self._client.post(
                f"{self._url}/bot/{method}",
                content=orjson.dumps(fields),
                headers=headers,
                timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
            )
        except httpx.HTTPError as error:
            raise Unavailable(f"Telegram: {type(error).__name__}") from None
        if response.status_code in (401, 403, 404):
            raise Denied(f"Telegram refuses the token ({response.status_code})")
        if response.status_code == 409:
            raise Conflict("another process polls with this token, or a webhook is set")
        if response.status_code == 429:
            raise RateLimited(_retry_after(_object(response)))
        if response.status_code != 200:
            raise Unavailable(f"Telegram: HTTP {response.status_code}")
        return response


@asynccontextmanager
async def open_bot_api(settings: Telegram) -> AsyncIterator[BotApi]:
    assert settings.token is not None
    transport = PathSecret(httpx.AsyncHTTPTransport(trust_env=False), "/bot", settings.token)
    async with httpx.AsyncClient(transport=transport, follow_redirects=False, trust_env=False) as client:
        yield BotApi(client, settings.api_url)


def _bot(fields: Any) -> Bot:
    try:
        return Bot(str(int(fields["id"])), str(fields["username"]))
    except (KeyError, TypeError, ValueError):
        raise Unavailable("Telegram: getMe says something else") from None


def _is_update(update: Any) -> bool:
    return isinstance(update, dict) and type(update.get("update_id")) is int


def _object(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _retry_after(answer: dict[str, Any]) -> timedelta:
    try:
        return timedelta(seconds=max(0.0, float(answer["parameters"]["retry_after"])))
    except (KeyError, TypeError, ValueError, OverflowError):
        return DEFAULT_WAIT
