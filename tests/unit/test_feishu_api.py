"""What Feishu's answers mean, and how its token is kept: fetched once for all, renewed early, and once when it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from shared.errors import Ambiguous, BotRefused, Conflict, Denied, PipelineError, RateLimited, Transient, Undeliverable
from shared.platforms.feishu import FeishuSettings
from shared.platforms.feishu_api import FeishuRefused, OpenApi, open_api
from shared.platforms.feishu_token import FeishuTokens, Token, lasting
from tests.contract.case import Answer
from tests.contract.fake_api import FakeApi, Given, NoAnswer, Request
from tests.contract.fake_api import open_api as open_fake
from tests.support.feishu import APP_ID, APP_SECRET, FakeFeishu, open_feishu

ISSUED = Answer(200, b'{"code":0,"tenant_access_token":"t-1","expire":7200}')


def settings(url: str, **changes: Any) -> FeishuSettings:
    values = {"app_id": APP_ID, "app_secret": SecretStr(APP_SECRET), "api_url": url, **changes}
    return FeishuSettings(**values)


@pytest.fixture
async def fake() -> AsyncIterator[FakeFeishu]:
    async with open_feishu() as opened:
        yield opened


@pytest.fixture
async def platform() -> AsyncIterator[FakeApi]:
    async with open_fake() as opened:
        yield opened


async def outcome(platform: FakeApi, given: Given) -> PipelineError:
    """What a call raises when Feishu answers so."""

    def answer(request: Request) -> Given:
        return ISSUED if request.path.endswith("/internal") else given

    platform.answer = answer
    async with open_api(settings(platform.url)) as api:
        with pytest.raises(PipelineError) as caught:
            await api.call("POST", "/im/v1/messages", {"a": 1})
    return caught.value


def said(code: Any, status: int = 400, *headers: tuple[str, str]) -> Answer:
    return Answer(status, orjson.dumps({"code": code, "msg": "no"}), headers)


@pytest.mark.parametrize("code", [99991400, 99991402, 230020, 11232])
@pytest.mark.parametrize("status", [200, 400, 429])
async def test_a_frequency_limit_is_waited_for(platform: FakeApi, code: int, status: int) -> None:
    error = await outcome(platform, said(code, status, ("X-Ogw-Ratelimit-Reset", "17")))
    assert isinstance(error, RateLimited) and error.retry_after == timedelta(seconds=17)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (said(0, 429), None),
        (Answer(429, b"slow down"), RateLimited),
        *[(said(code), BotRefused) for code in (99991663, 99991664, 99991665, 99991666, 99991668)],
        *[(said(code), Denied) for code in (99991672, 99991679, 99991680, 99991681)],
        *[
            (said(code, 200), FeishuRefused)
            for code in (230001, 230002, 230006, 230013, 230017, 230018, 230019, 230022)
        ],
        *[(said(code), FeishuRefused) for code in (230025, 230027, 230045, 230050, 230099, 232009, 424242)],
        (said(230049), Ambiguous),
        (said(424242, 401), BotRefused),
        (said(424242, 500), Transient),
        (Answer(502, b"<html>"), Transient),
        (Answer(408, b""), Transient),
        (Answer(302, b""), Transient),
        (Answer(401, b""), BotRefused),
        (Answer(404, b"<html>"), Denied),
        (Answer(413, b"<html>"), Undeliverable),
        (Answer(200, b"<html>"), Ambiguous),
        (said("0", 200), Ambiguous),
        (said(None, 200), Ambiguous),
        (said(False, 200), Ambiguous),
        (said([], 200), Ambiguous),
        (NoAnswer.CUT, Ambiguous),
    ],
)
async def test_each_answer_is_one_of_five_outcomes(
    platform: FakeApi, given: Given, kind: type[Exception] | None
) -> None:
    if kind is None:  # 0 is a success, whatever the HTTP status
        platform.answer = lambda request: ISSUED if request.path.endswith("/internal") else given
        async with open_api(settings(platform.url)) as api:
            assert (await api.call("POST", "/im/v1/messages"))["code"] == 0
        return
    assert type(await outcome(platform, given)) is kind


async def test_a_token_that_is_refused_is_renewed_once(fake: FakeFeishu) -> None:
    async with open_api(settings(fake.url)) as api:
        await api.me()
        fake.expire_token()
        assert (await api.me()).open_id == "ou_bot"
        assert len(fake.of("/internal")) == 2 and len(fake.of("/info")) == 3


async def test_one_token_is_fetched_for_all_who_want_it(fake: FakeFeishu) -> None:
    async with open_api(settings(fake.url), 8) as api:
        await asyncio.gather(*(api.me() for _ in range(8)))
        fake.expire_token()
        await asyncio.gather(*(api.me() for _ in range(8)))
    assert len(fake.of("/internal")) == 2


async def test_a_token_is_renewed_before_its_end_and_the_old_one_serves_while_that_fails() -> None:
    fetched: list[Token | Transient] = [lasting("one", 0.0), Transient("away"), lasting("three", 7200)]

    async def fetch() -> Token:
        token = fetched.pop(0)
        if isinstance(token, Transient):
            raise token
        return Token(token.text, token.renew_at, token.ends_at + 60)

    tokens = FeishuTokens(fetch)
    assert [await tokens.current() for _ in range(4)] == ["one", "one", "three", "three"]
    tokens.refused("one")  # somebody else's call, begun before: the new one stays
    assert await tokens.current() == "three"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (said(10014, 200), BotRefused),
        (said(10003, 400), BotRefused),
        (said(99991400, 400), RateLimited),
        (Answer(502, b"<html>"), Transient),
        (Answer(200, b"<html>"), Transient),
        (Answer(200, b'{"code":0}'), Transient),
        (Answer(200, b'{"code":0,"tenant_access_token":"t\\r\\nx: y","expire":7200}'), Transient),
        (Answer(200, b'{"code":0,"tenant_access_token":"t","expire":"x"}'), Transient),
        (NoAnswer.CUT, Transient),  # nothing was sent: it is not ambiguous
    ],
)
async def test_without_a_token_nothing_is_sent(platform: FakeApi, given: Given, kind: type[Exception]) -> None:
    platform.answer = lambda _: given
    async with open_api(settings(platform.url)) as api:
        with pytest.raises(PipelineError) as caught:
            await api.call("POST", "/im/v1/messages")
    assert type(caught.value) is kind and APP_SECRET not in str(caught.value)
    assert all(request.path.endswith("/internal") for request in platform.requests)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (said(514, 200), Denied),
        (said(403, 200), Denied),
        (said(1000040350, 200), Conflict),
        (said(1000040343, 200), Transient),
        (said(1, 200), Transient),
        (Answer(500, b""), Transient),
        (Answer(200, b'{"code":0,"data":[]}'), Transient),
        (Answer(200, b'{"code":0,"data":{"URL":"https://x.org"}}'), Transient),
    ],
)
async def test_an_endpoint_says_whether_to_come_again(platform: FakeApi, given: Given, kind: type[Exception]) -> None:
    platform.answer = lambda _: given
    async with open_api(settings(platform.url)) as api:
        with pytest.raises(PipelineError) as caught:
            await api.endpoint()
    assert type(caught.value) is kind


async def test_who_we_are_is_found_in_either_place(platform: FakeApi) -> None:
    for body in (
        b'{"code":0,"bot":{"open_id":"ou_1"}}',
        b'{"code":0,"data":{"bot":{"open_id":"ou_1","app_name":"A"}}}',
    ):
        platform.answer = lambda request, body=body: (  # type: ignore[misc]
            ISSUED if request.path.endswith("/internal") else Answer(200, body)
        )
        async with open_api(settings(platform.url)) as api:
            assert (await api.me()).open_id == "ou_1"


def test_a_secret_is_in_no_repr() -> None:
    block = settings("http://127.0.0.1:9")
    assert APP_SECRET not in repr(OpenApi(None, block)) + repr(block)  # type: ignore[arg-type]
