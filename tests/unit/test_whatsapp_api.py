"""What WhatsApp's answers mean: each code leads to one thing that delivery can do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from shared.errors import Ambiguous, BotRefused, Denied, PipelineError, RateLimited, Transient, Undeliverable
from shared.http_client import HttpAnswer
from shared.platforms.whatsapp import WhatsAppSettings
from shared.platforms.whatsapp_api import CloudApi, message_id_in

SETTINGS = WhatsAppSettings(
    access_token=SecretStr("t"), app_secret=(SecretStr("s"),), verify_token=SecretStr("v"), phone_number_id="1"
)
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


class Answering:
    """An HTTP client that always hears the same."""

    def __init__(self, answer: HttpAnswer) -> None:
        self._answer = answer

    async def post(self, *_: Any, **__: Any) -> HttpAnswer:
        return self._answer


async def said(status: int, code: int | None = None, *, waits: int = 0, **headers: str) -> PipelineError:
    body = orjson.dumps({"error": {"message": "no", "code": code}}) if code is not None else b"<html>"
    answer = HttpAnswer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)
    with pytest.raises(PipelineError) as caught:
        await CloudApi(Answering(answer), SETTINGS).post("1", {}, waits=waits)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("code", [4, 80007, 130429, 131056])
async def test_too_many_messages_wait_four_times_as_long_each_time(code: int) -> None:
    waits = [await said(400, code, waits=n) for n in range(3)] + [await said(400, code, waits=50)]
    assert [error.retry_after for error in waits if isinstance(error, RateLimited)] == [
        4 * SECOND,
        16 * SECOND,
        64 * SECOND,
        HOUR,
    ]


async def test_spam_waits_for_hours_and_what_meta_holds_back_for_a_day() -> None:
    spam, *held_back = [await said(400, code) for code in (131048, 131049, 131064)]
    assert isinstance(spam, RateLimited) and spam.retry_after == HOUR
    assert [error.retry_after for error in held_back if isinstance(error, RateLimited)] == [DAY, DAY]


async def test_a_wait_that_is_asked_for_is_as_long_as_asked() -> None:
    for error in (await said(429, retry_after="7"), await said(400, 130429, retry_after="7")):
        assert isinstance(error, RateLimited) and error.retry_after == 7 * SECOND


@pytest.mark.parametrize(
    ("status", "code"), [(400, 1), (500, 2), (400, 131000), (400, 131016), (400, 131057), (503, None), (408, None)]
)
async def test_trouble_that_passes_is_tried_again(status: int, code: int | None) -> None:
    assert type(await said(status, code)) is Transient


@pytest.mark.parametrize(
    "code",
    [100, 130472, 130497, 131008, 131009, 131021, 131026, 131030, 131047, 131050, 131051, 132000, 132999, 999999],
)
async def test_what_is_refused_for_good_is_buried(code: int) -> None:
    assert isinstance(await said(400, code), Undeliverable)
    if code != 999999:
        assert isinstance(await said(403, code), Undeliverable)  # the code says more than the status


async def test_outside_the_24_hours_the_reason_says_so() -> None:
    assert "24 hours" in str(await said(400, 131047))


@pytest.mark.parametrize(
    ("status", "code", "meaning"),
    [
        (401, 0, BotRefused),
        (400, 3, Denied),
        (403, 10, Denied),
        (401, 190, BotRefused),
        (403, 190, BotRefused),
        (403, 200, Denied),
        (403, 299, Denied),
        (400, 131031, BotRefused),
        (400, 368, BotRefused),
        (400, 131042, Denied),
        (401, None, BotRefused),
        (403, 131005, Denied),
    ],
)
async def test_while_the_token_or_the_account_is_refused_replies_wait(
    status: int, code: int | None, meaning: type[Denied]
) -> None:
    assert type(await said(status, code)) is meaning


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (0, BotRefused),
        (190, BotRefused),
        (3, Denied),
        (10, Denied),
        (200, Denied),
        (299, Denied),
        (1999, Undeliverable),
        (199, Undeliverable),
        (300, Undeliverable),
    ],
)
async def test_a_code_says_what_is_refused_where_the_status_does_not(code: int, meaning: type[Exception]) -> None:
    assert type(await said(400, code)) is meaning


@pytest.mark.parametrize("code", [131999, 133000])
async def test_of_a_code_that_nobody_knows_the_status_says_what_it_is(code: int) -> None:
    assert type(await said(403, code)) is Denied


@pytest.mark.parametrize(
    "found",
    [{}, {"messages": []}, {"messages": [5]}, {"messages": [{"id": 5}]}, {"messages": [{"id": ""}]}, {"messages": 1}],
)
def test_a_success_without_a_message_id_may_have_been_sent_or_not(found: dict[str, Any]) -> None:
    with pytest.raises(Ambiguous):
        message_id_in(found)


async def test_the_token_is_in_no_error() -> None:
    for status, code in ((401, 190), (400, 131047), (500, None), (429, None)):
        assert SETTINGS.access_token is not None
        assert "Bearer" not in str(await said(status, code))
