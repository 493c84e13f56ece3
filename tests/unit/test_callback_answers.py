"""What a callback's answer means for a reply: delivered, later, or never. And what is posted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from shared import signing
from shared.backoff import backoff
from shared.errors import ConfigurationError, RateLimited, Transient, Undeliverable
from shared.http_client import DEFAULT_WAIT, HttpAnswer, retry_after
from shared.messages import Part, Receipt, Source
from shared.platforms.webhook import WebhookSettings
from shared.settings import Settings
from tests.conftest import WEBHOOK_SECRET
from workers.delivery.webhook import LONGEST_WAIT, WebhookSender

SETTINGS = WebhookSettings(secrets=(SecretStr(WEBHOOK_SECRET),), callback_url="https://example.org/replies")


class Client:
    """Notes what is posted and answers with one thing."""

    def __init__(self, status: int, **headers: str) -> None:
        self._answer = HttpAnswer(status, headers)
        self.posted: list[tuple[str, bytes, Mapping[str, str]]] = []

    async def post_unread(self, url: Any, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        self.posted.append((str(url), body, headers))
        return self._answer


def a_part() -> Part:
    source = Source("webhook", "c1", "group", thread="t1", user="u1")
    return Part(
        id=1,
        idempotency_key="out_1",
        session_key="agent:main:webhook:group:c1",
        source=source,
        in_reply_to=("evt_1",),
        part=1,
        parts=2,
        text="hello",
        media=(),
        attempts=0,
        sending=False,
    )


async def sent(status: int, **headers: str) -> Receipt:
    client: Any = Client(status, **headers)
    return await WebhookSender(client, SETTINGS).send(a_part())


@pytest.mark.parametrize("status", [200, 202, 299])
async def test_any_2xx_is_a_delivery(status: int) -> None:
    assert await sent(status) == Receipt()


@pytest.mark.parametrize("status", [500, 502, 503, 599, 408, 425, 429])
async def test_what_passes_by_itself_is_tried_again(status: int) -> None:
    with pytest.raises(Transient, match=f"HTTP {status}") as raised:
        await sent(status)
    assert not isinstance(raised.value, RateLimited)


@pytest.mark.parametrize("status", [199, 300, 301, 304, 400, 401, 403, 404, 410, 422, 499])
async def test_what_a_repetition_would_not_change_is_given_up(status: int) -> None:
    with pytest.raises(Undeliverable, match=f"HTTP {status}"):
        await sent(status)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_wait_that_is_asked_for_is_kept(status: int) -> None:
    with pytest.raises(RateLimited) as raised:
        await sent(status, **{"retry-after": "7"})
    assert raised.value.retry_after == timedelta(seconds=7)
    with pytest.raises(RateLimited) as raised:
        await sent(status, **{"retry-after": "100000"})
    assert raised.value.retry_after == LONGEST_WAIT == timedelta(hours=1)


async def test_other_errors_ask_for_no_wait() -> None:
    with pytest.raises(Transient) as raised:
        await sent(500, **{"retry-after": "7"})
    assert not isinstance(raised.value, RateLimited)


async def test_a_callback_says_what_it_answers_and_is_signed() -> None:
    client: Any = Client(200)
    await WebhookSender(client, SETTINGS).send(a_part())
    [(url, body, headers)] = client.posted
    assert url == "https://example.org/replies" and headers["content-type"] == "application/json"
    assert orjson.loads(body) == {
        "id": "out_1",
        "in_reply_to": ["evt_1"],
        "session_key": "agent:main:webhook:group:c1",
        "chat": {"id": "c1", "type": "group"},
        "thread": "t1",
        "part": 1,
        "parts": 2,
        "text": "hello",
        "media": [],
    }
    assert headers["webhook-id"] == headers["idempotency-key"] == "out_1"
    [key] = SETTINGS.signing_keys()
    assert headers["webhook-signature"] == signing.sign(key, "out_1", int(headers["webhook-timestamp"]), body)


@pytest.mark.parametrize("url", ["ftp://example.org", "example.org", "https://", "http://[", "/replies"])
def test_an_address_that_nobody_can_post_to_is_refused_and_not_repeated(url: str) -> None:
    client: Any = Client(200)
    with pytest.raises(ConfigurationError, match="not an http") as raised:
        WebhookSender(client, SETTINGS.model_copy(update={"callback_url": url}))
    assert url not in str(raised.value).replace("http(s)", "")


@pytest.mark.parametrize(
    ("said", "wait"),
    [
        (("3",), timedelta(seconds=3)),
        ((None, 2), timedelta(seconds=2)),
        (("soon", 2), timedelta(seconds=2)),
        ((-5,), timedelta(0)),
        (("1e400",), DEFAULT_WAIT),
        ((), DEFAULT_WAIT),
        ((999,), timedelta(seconds=60)),
        (("Wed, 01 Jan 2200 00:00:00 GMT",), timedelta(seconds=60)),
        (("Thu, 01 Jan 1970 00:00:00 GMT", 2), timedelta(0)),
        (("Thu, 01 Jan 1970 00:00:00 -0000",), timedelta(0)),
        (("Thu, 99 Jan 1970 00:00:00 GMT", 2), timedelta(seconds=2)),
        (("Thu, 01 Jan 99999 00:00:00 GMT", 2), timedelta(seconds=2)),
        (("nan", 2), timedelta(seconds=2)),
    ],
)
def test_a_wait_is_read_from_whatever_says_it_first_and_never_longer_than_allowed(
    said: tuple[Any, ...], wait: timedelta
) -> None:
    assert retry_after(*said, longest=timedelta(seconds=60)) == wait


def test_the_wait_after_failures_doubles_up_to_its_limit_and_spreads_around_that() -> None:
    settings = Settings(_env_file=None, backoff_seconds=2, backoff_max_seconds=30)  # type: ignore[call-arg]
    waits = [backoff(settings, failures).total_seconds() for failures in (0, 1, 2, 3, 4, 5, 1000)]
    assert waits == [2, 2, 4, 8, 16, 30, 30]
    spread = {backoff(settings, 2, spread=0.25).total_seconds() for _ in range(200)}
    assert len(spread) > 100 and min(spread) >= 3 and max(spread) <= 5
    assert min(spread) < 3.5 and max(spread) > 4.5
