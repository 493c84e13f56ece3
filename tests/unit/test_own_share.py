"""What a worker lets through by itself while Redis is away: a share of each limit, and never nothing at all."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from shared.settings.provider_limits import ProviderLimits
from workers.agents.model.admission import Permit, ProviderAccount
from workers.limits import own_share
from workers.limits.own_share import BURST_SECONDS, LOOK_AGAIN_SECONDS, PATIENCE_SECONDS, LocalLimits
from workers.limits.verdict import AdmissionVerdict, Obstacle

LET_IN = AdmissionVerdict(None, 0.0)
FULL = AdmissionVerdict(Obstacle.FULL, LOOK_AGAIN_SECONDS)
_ids = count(1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What time it is, in seconds: `now`."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(own_share, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def a_permit(tokens: int = 0, of: str = "a1", **limits: Any) -> Permit:
    account = ProviderAccount(of, "provider", "model", ProviderLimits(share_without_redis=0.1, **limits))
    return Permit(account, f"p{next(_ids)}", tokens)


def test_without_a_limit_everything_is_let_through() -> None:
    local = LocalLimits()
    assert [local.ask(a_permit(10**9)) for _ in range(100)] == [LET_IN] * 100


@pytest.mark.parametrize(("limit", "own"), [(30, 3), (29, 2), (9, 1), (1, 1)])
def test_a_worker_has_its_share_of_open_requests_rounded_down_and_one_at_least(limit: int, own: int) -> None:
    local = LocalLimits()
    permits = [a_permit(concurrency=limit) for _ in range(own)]
    assert [local.ask(permit) for permit in permits] == [LET_IN] * own
    assert local.ask(a_permit(concurrency=limit)) == FULL
    assert local.ask(a_permit(of="a2", concurrency=limit)) == LET_IN  # another account is not concerned


def test_a_request_that_has_ended_makes_room_for_one_other_and_one_that_was_not_let_in_here_for_none() -> None:
    local = LocalLimits()
    first, second = a_permit(concurrency=10), a_permit(concurrency=10)
    assert not local.leave(first)  # nothing was let in yet
    assert local.ask(first) == LET_IN
    assert not local.leave(second) and local.ask(second) == FULL
    assert local.leave(first) and not local.leave(first)
    assert (local.ask(second), local.ask(first)) == (LET_IN, FULL)


def test_after_ten_seconds_worth_of_requests_each_waits_for_its_moment(clock: SimpleNamespace) -> None:
    local, limit = LocalLimits(), 1200  # our share: two in a second
    assert [local.ask(a_permit(requests_per_minute=limit)) for _ in range(20)] == [LET_IN] * 20
    waits = [local.ask(a_permit(requests_per_minute=limit)) for _ in range(5)]
    assert waits == [AdmissionVerdict(None, wait) for wait in (0.5, 1.0, 1.5, PATIENCE_SECONDS)] + [
        AdmissionVerdict(Obstacle.RATE, 2.5)
    ]
    clock.now += 1  # what was refused took nothing
    assert local.ask(a_permit(requests_per_minute=limit)) == AdmissionVerdict(None, 1.5)


def test_a_rate_that_was_not_used_for_long_allows_ten_seconds_worth_and_no_more(clock: SimpleNamespace) -> None:
    local, limit = LocalLimits(), 600  # our share: one in a second
    for _ in range(int(BURST_SECONDS)):
        local.ask(a_permit(requests_per_minute=limit))
    clock.now += 3600
    answers = [local.ask(a_permit(requests_per_minute=limit)) for _ in range(11)]
    assert answers == [LET_IN] * 10 + [AdmissionVerdict(None, 1.0)]


def test_a_share_of_less_than_one_request_in_ten_seconds_still_lets_one_through(clock: SimpleNamespace) -> None:
    local, limit = LocalLimits(), 30  # our share: one in twenty seconds
    assert local.ask(a_permit(requests_per_minute=limit)) == LET_IN
    assert local.ask(a_permit(requests_per_minute=limit)) == AdmissionVerdict(Obstacle.RATE, 20.0)
    clock.now += 3600
    assert local.ask(a_permit(requests_per_minute=limit)) == LET_IN
    assert local.ask(a_permit(requests_per_minute=limit)) == AdmissionVerdict(Obstacle.RATE, 20.0)


def test_a_request_larger_than_the_share_is_let_in_once_it_is_whole_and_the_next_one_waits_for_all_of_it(
    clock: SimpleNamespace,
) -> None:
    local, limit = LocalLimits(), 6000  # our share: ten tokens in a second, and a hundred at once
    assert local.ask(a_permit(1000, tokens_per_minute=limit)) == LET_IN
    assert local.ask(a_permit(10, tokens_per_minute=limit)) == AdmissionVerdict(Obstacle.RATE, 91.0)
    clock.now += 89
    assert local.ask(a_permit(10, tokens_per_minute=limit)) == AdmissionVerdict(None, 2.0)


def test_of_two_rates_the_one_that_is_used_up_decides_and_a_refusal_takes_from_neither(clock: SimpleNamespace) -> None:
    local, limits = LocalLimits(), dict[str, Any](requests_per_minute=1200, tokens_per_minute=6000)
    assert local.ask(a_permit(100, **limits)) == LET_IN
    assert [local.ask(a_permit(100, **limits)).obstacle for _ in range(50)] == [Obstacle.RATE] * 50
    assert [local.ask(a_permit(0, **limits)) for _ in range(19)] == [LET_IN] * 19
    assert local.ask(a_permit(0, **limits)) == AdmissionVerdict(None, 0.5)
    assert local.ask(a_permit(0, of="a2", **limits)) == LET_IN  # another account has rates of its own
