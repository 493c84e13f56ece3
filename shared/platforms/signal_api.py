"""signal-cli's daemon: calls by JSON-RPC, and what its answers mean; and the events that it sends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import orjson
from yarl import URL

from shared import log
from shared.errors import Ambiguous, BotRefused, Denied, PipelineError, RateLimited, Transient, Undeliverable
from shared.http_client import HttpClient, open_http_client, retry_after
from shared.platforms.signal import NAME, SignalSettings

LONGEST_WAIT = timedelta(days=1)
IO_ERROR, UNTRUSTED_KEY, RATE_LIMIT, CAPTCHA_REJECTED = -3, -4, -5, -6
UNKNOWN_OUTCOMES = frozenset({-2, -32603})  # unexpected inside the daemon: it may have been sent before
_MISCONFIGURED = frozenset(
    {401, 403, 404, 405, 415, 421}
)  # a proxy, a wrong address, or a host that it does not answer to
_HEADERS = {"content-type": "application/json"}


class Daemon:
    """One account of the daemon's."""

    def __init__(self, client: HttpClient, settings: SignalSettings) -> None:
        assert settings.http_url is not None and settings.account is not None
        self._client = client
        self._url = URL(settings.http_url.rstrip("/"))
        self._account = settings.account
        self._silent_seconds = settings.silent_seconds
        self._first_wait = timedelta(seconds=settings.rate_limit_seconds)

    async def call(
        self, method: str, fields: dict[str, Any], *, waits: int = 0, seconds: float | None = None
    ) -> dict[str, Any]:
        """The result of a method. Raises what a Sender raises; `waits` is how often we were asked to wait with it before."""
        request = {"jsonrpc": "2.0", "id": method, "method": method, "params": {"account": self._account, **fields}}
        answer = await self._client.post(self._url / "api/v1/rpc", orjson.dumps(request), _HEADERS, seconds=seconds)
        log.get().debug("asked", platform=NAME, method=method, status=answer.status)
        if answer.status == 429:
            wait = retry_after(answer.headers.get("retry-after"), longest=LONGEST_WAIT)
            raise RateLimited(wait, whole_bot=True)
        if not 200 <= answer.status < 300:
            raise _refusal(answer.status)
        found = _object(answer.body)
        error = found.get("error")
        if isinstance(error, dict):
            raise self._error(error, waits)
        result = found.get("result")
        if not isinstance(result, dict):
            raise Ambiguous("an answer that is none of signal-cli's")
        return result

    def lines(self, last_event: str | None) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The lines of the stream of events. Daemons that remember some of them begin behind `last_event`; None: with what
        comes from now on."""
        headers = {"accept": "text/event-stream"}
        if last_event is not None:
            headers["last-event-id"] = last_event
        url = (self._url / "api/v1/events").with_query(account=self._account)
        return self._client.lines(url, headers, silent_seconds=self._silent_seconds)

    def wait(self, result: dict[str, Any], waits: int, *, whole_bot: bool = False) -> RateLimited:
        """How long Signal asks us to wait, in the result of one recipient, or for the whole account. Where it wants a captcha, an operator must act."""
        if result.get("token"):
            log.get().error(
                "Signal demands a captcha: answer it with signal-cli's submitRateLimitChallenge", platform=NAME
            )
        growing = (self._first_wait * (1 << min(waits, 20))).total_seconds()
        wait = retry_after(result.get("retryAfterSeconds"), growing, longest=LONGEST_WAIT)
        return RateLimited(wait, whole_bot=whole_bot)

    def _error(self, error: dict[str, Any], waits: int) -> PipelineError:
        code, said = error.get("code"), str(error.get("message", ""))[:200]
        if code == RATE_LIMIT:
            limited = [result for result in results_in(_response(error)) if "retryAfterSeconds" in result]
            return self.wait(limited[0] if limited else {}, waits, whole_bot=True)
        if code == CAPTCHA_REJECTED:
            return Denied("Signal rejected the captcha")
        if code == IO_ERROR:
            return Transient(f"signal-cli: {code} {said}")
        if code in UNKNOWN_OUTCOMES:
            return Ambiguous(f"signal-cli: {code} {said}")
        if code == UNTRUSTED_KEY:
            return Undeliverable("the person's identity key changed: trust it in signal-cli")
        return Undeliverable(f"signal-cli: {code} {said}")


@asynccontextmanager
async def open_daemon(settings: SignalSettings, connections: int = 2) -> AsyncIterator[Daemon]:
    async with open_http_client(connections=connections, seconds=settings.send_timeout_seconds) as client:
        yield Daemon(client, settings)


def results_in(result: dict[str, Any]) -> list[dict[str, Any]]:
    """How a send went, recipient by recipient."""
    found = result.get("results")
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _response(error: dict[str, Any]) -> dict[str, Any]:
    data = error.get("data")
    response = data.get("response") if isinstance(data, dict) else None
    return response if isinstance(response, dict) else {}


def _refusal(status: int) -> PipelineError:
    if status in _MISCONFIGURED:
        return BotRefused(f"signal-cli's daemon refuses us (HTTP {status})")
    return Transient(f"HTTP {status}") if status >= 500 or status == 408 else Undeliverable(f"HTTP {status}")


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
