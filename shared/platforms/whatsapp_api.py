"""WhatsApp's Cloud API: calls, and what its answers mean. The codes are Meta's; the sender and the receiver of statuses
sort them alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import orjson

from shared import log
from shared.errors import Ambiguous, BotRefused, Denied, PipelineError, RateLimited, Transient, Undeliverable
from shared.http_client import HttpAnswer, HttpClient, HttpStream, open_http_client, retry_after
from shared.multipart import Multipart, Upload
from shared.origin import require_own
from shared.platforms.whatsapp import WhatsAppSettings

LONGEST_WAIT = timedelta(days=1)
_FILE_DOMAINS = ("facebook.com", "fbsbx.com", "fbcdn.net", "whatsapp.net")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TOO_MANY = frozenset({4, 80007, 130429, 131056})  # for the app, the account, the number, this person
SPAM = 131048  # passes after hours
NOT_TODAY = frozenset({131049, 131064})  # not to be tried again for a day
OF_PERSON = NOT_TODAY | {131056}  # too many for this person; the others are about the number or the app
PASSING = frozenset({1, 2, 131000, 131016, 131057})
REFUSED_TOKEN = frozenset({0, 190})
MISSING_PERMISSION = frozenset({3, 10, *range(200, 300)})
REFUSED_ACCOUNT = {131031: "the account is locked", 368: "the account is blocked"}
MISSING_PAYMENT = {131042: "payment is missing"}  # of what costs something: other messages may pass
PERMANENT = {
    100: "a parameter is wrong",
    130472: "the person is part of an experiment of Meta's",
    130497: "the account may not write to this country",
    131008: "a parameter is missing",
    131009: "a parameter is wrong",
    131021: "sender and recipient are the same",
    131026: "not on WhatsApp, blocked, or too old a version",
    131030: "the number is not on the test account's list",
    131047: "more than 24 hours since the person last wrote; WhatsApp takes only templates then",
    131050: "the person has opted out",
    131051: "WhatsApp does not take this kind of message",
}
CLOSED = frozenset({131026, 131030, 131047, 131050})  # nothing is taken there before the person writes


def reason_of(code: int) -> str:
    """What a code means, in words for an operator."""
    known = (
        PERMANENT.get(code)
        or (REFUSED_ACCOUNT | MISSING_PAYMENT).get(code)
        or ("a template is wrong" if _is_template(code) else "")
    )
    return f"code {code}: {known}" if known else f"code {code}"


class CloudApi:
    """The numbers that one token may send for. The token is in nothing that is logged, raised or printed."""

    def __init__(self, client: HttpClient, settings: WhatsAppSettings) -> None:
        assert settings.access_token is not None
        self._client = client
        self._url = settings.api_url.rstrip("/")
        self._first_wait = timedelta(seconds=settings.rate_limit_seconds)
        token = settings.access_token.get_secret_value()
        self._headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}

    async def post(self, number: str, fields: dict[str, Any], *, waits: int = 0, seconds: float | None = None) -> Any:
        """The answer to a post to a number's messages. Raises what a Sender raises; `waits` is how often the platform has
        asked to wait with this one before."""
        url = f"{self._url}/{number}/messages"
        body = orjson.dumps({"messaging_product": "whatsapp", **fields})
        answer = await self._client.post(url, body, self._headers, seconds=seconds)
        log.get().debug("asked", url=url, status=answer.status)
        found = _object(answer.body)
        if 200 <= answer.status < 300 and "error" not in found:
            return found
        raise self._error(answer, found, waits)

    async def media(self, id: str) -> dict[str, Any]:
        """What WhatsApp says of a file that somebody sent: its address for the next minutes, its size, its type."""
        return await self._get(quote(id, safe=""))

    async def number(self, id: str) -> dict[str, Any]:
        """What WhatsApp says of a phone number of ours. Raises as `post` does."""
        return await self._get(f"{quote(id, safe='')}?fields=display_phone_number,verified_name")

    async def _get(self, path: str) -> dict[str, Any]:
        answer = await self._client.request("GET", f"{self._url}/{path}", b"", self._headers)
        found = _object(answer.body)
        if answer.status == 200 and "error" not in found:
            return found
        raise self._error(answer, found, 0)

    def download(self, address: str, seconds: float) -> AbstractAsyncContextManager[HttpStream]:
        """The file at an address that `media` gave. Undeliverable for one that is none of Meta's: it gets no token."""
        url = require_own(address, self._url, *_FILE_DOMAINS)
        return self._client.get_stream(url, {"authorization": self._headers["authorization"]}, seconds=seconds)

    async def upload(self, number: str, file: Upload) -> str:
        """Give WhatsApp a file, and return its id. Nobody sees it yet, so it may be repeated. Raises as `post` does."""
        form = Multipart({"messaging_product": "whatsapp", "type": file.type}, "file", file)
        headers = {"authorization": self._headers["authorization"], **form.headers}
        try:
            answer = await self._client.request("POST", f"{self._url}/{number}/media", form.chunks(), headers)
        except Ambiguous as error:
            raise Transient(str(error)) from None
        found = _object(answer.body)
        id = found.get("id")
        if 200 <= answer.status < 300 and isinstance(id, str) and id:
            return id
        raise self._error(answer, found, 0)

    def _error(self, answer: HttpAnswer, found: dict[str, Any], waits: int) -> PipelineError:
        """By the code where there is one we know, else by the status."""
        code, status = _code(found), answer.status
        if status == 429 or code in TOO_MANY or code == SPAM or code in NOT_TODAY:
            return RateLimited(self._wait(answer, code, waits), whole_bot=code not in OF_PERSON)
        if code in PASSING or status >= 500 or status == 408:
            return Transient(f"HTTP {status}, {reason_of(code)}" if code is not None else f"HTTP {status}")
        if code in REFUSED_ACCOUNT:
            return BotRefused(f"WhatsApp refuses the account ({reason_of(code)})")
        if code in MISSING_PAYMENT:
            return Denied(f"WhatsApp refuses the account ({reason_of(code)})")
        known = code in PERMANENT or (code is not None and _is_template(code))
        said = f"WhatsApp refuses the token ({status}{f', code {code}' if code is not None else ''})"
        if code in MISSING_PERMISSION or (not known and code not in REFUSED_TOKEN and status == 403):
            return Denied(said)
        if code in REFUSED_TOKEN or (not known and status == 401):
            return BotRefused(said)
        what = f"HTTP {status}, {reason_of(code)}" if code is not None else f"HTTP {status}"
        return Undeliverable(what, closes_chat=code in CLOSED)

    def _wait(self, answer: HttpAnswer, code: int | None, waits: int) -> timedelta:
        """WhatsApp does not say how long: four times as long each time."""
        if code in NOT_TODAY:
            return DAY
        if "retry-after" in answer.headers:
            return retry_after(answer.headers["retry-after"], longest=LONGEST_WAIT)
        growing = min(self._first_wait * (1 << 2 * min(waits, 10)), HOUR)
        return max(growing, HOUR) if code == SPAM else growing


@asynccontextmanager
async def open_cloud_api(settings: WhatsAppSettings, connections: int) -> AsyncIterator[CloudApi]:
    async with open_http_client(connections=connections, seconds=settings.send_timeout_seconds) as client:
        yield CloudApi(client, settings)


def message_id_in(found: dict[str, Any]) -> str:
    """The id of the message that was sent; Ambiguous where an answer of success names none."""
    messages = found.get("messages")
    first = messages[0] if isinstance(messages, list) and messages else None
    id = first.get("id") if isinstance(first, dict) else None
    if not isinstance(id, str) or not id:
        raise Ambiguous("an answer that is none of WhatsApp's")
    return id


def _is_template(code: int) -> bool:
    return 132000 <= code < 133000


def _code(found: dict[str, Any]) -> int | None:
    error = found.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if type(code) is int else None


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
