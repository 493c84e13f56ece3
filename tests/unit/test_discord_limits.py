"""Discord's rate limits as its headers tell them: a request that would be refused is not made."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shared.errors import RateLimited
from shared.platforms import discord_limits
from shared.platforms.discord_limits import DiscordLimits, Route

HERE, THERE = Route("POST", "/channels/1/messages"), Route("POST", "/channels/2/messages")
HOOK = Route("PATCH", "/webhooks/99/secret-token/messages/@original")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("shared.platforms.discord_limits.time.monotonic", lambda: now[0])
    return now


def exhausted(seconds: str, bucket: str = "b1") -> dict[str, str]:
    named = {"x-ratelimit-bucket": bucket, "x-ratelimit-remaining": "0", "x-ratelimit-reset-after": seconds}
    return {**named, "x-ratelimit-limit": "5"}


def test_an_exhausted_channel_waits_and_others_do_not(clock: list[float]) -> None:
    limits = DiscordLimits()
    limits.note(HERE, exhausted("2.5"))
    with pytest.raises(RateLimited) as caught:
        limits.check(HERE)
    assert caught.value.retry_after == timedelta(seconds=2.5)
    limits.check(THERE)
    clock[0] += 2.6
    limits.check(HERE)


def test_routes_that_share_a_bucket_wait_together(clock: list[float]) -> None:
    limits, edit = DiscordLimits(), Route("PATCH", "/channels/1/messages/7")
    limits.note(edit, {"x-ratelimit-bucket": "b1", "x-ratelimit-remaining": "3"})
    limits.note(HERE, exhausted("2"))
    with pytest.raises(RateLimited):
        limits.check(edit)
    limits.check(Route("PATCH", "/channels/2/messages/7"))


def test_a_limit_for_everything_holds_back_all_but_interactions(clock: list[float]) -> None:
    limits = DiscordLimits()
    limits.refused_everywhere(timedelta(seconds=3))
    for route in (HERE, THERE, Route("GET", "/gateway/bot")):
        with pytest.raises(RateLimited):
            limits.check(route)
    limits.check(HOOK)
    clock[0] += 3.1
    limits.check(HERE)


@pytest.mark.parametrize("odd", ["", "soon", "nan", "1e999", "-5"])
def test_headers_that_make_no_sense_hold_back_nothing_for_ever(clock: list[float], odd: str) -> None:
    limits = DiscordLimits()
    limits.note(HERE, exhausted(odd))
    clock[0] += 86_401
    limits.check(HERE)


def test_an_exhausted_route_that_does_not_say_for_how_long_is_asked_again(clock: list[float]) -> None:
    limits = DiscordLimits()
    limits.note(HERE, {"x-ratelimit-bucket": "b1", "x-ratelimit-remaining": "0"})
    limits.check(HERE)


def test_what_is_remembered_is_bounded(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discord_limits, "REMEMBERED", 10)
    limits = DiscordLimits()
    for n in range(100):
        limits.note(Route("POST", f"/channels/{n}/messages"), exhausted("1"))
        clock[0] += 0.5
    assert len(limits._free_at) <= 10


def test_the_token_of_an_interaction_is_in_no_name() -> None:
    callback = Route("POST", "/interactions/5/secret-token/callback")
    assert (HOOK.name, callback.name) == ("PATCH /webhooks/99/…/messages/@original", "POST /interactions/5/…/callback")
    assert "secret" not in HOOK.kind + callback.kind
