"""When a conversation ends by itself. Tests with an id are rows of the behaviour list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.context.reset import NEVER, ResetPolicies, ResetPolicy
from shared.messages import Source

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def ago(**time: float) -> datetime:
    return NOW - timedelta(**time)


def test_R1_a_conversation_that_goes_on_is_not_reset() -> None:
    assert ResetPolicy("both", idle_minutes=60).reason(NOW, NOW, UTC) is None


def test_R2_after_the_idle_time_the_reason_is_idle() -> None:
    policy = ResetPolicy("idle", idle_minutes=30)
    assert policy.reason(ago(minutes=60), NOW, UTC) == "idle"
    assert policy.reason(ago(minutes=30, microseconds=1), NOW, UTC) == "idle"


def test_R3_exactly_at_the_idle_deadline_a_conversation_still_goes_on() -> None:
    policy = ResetPolicy("both", idle_minutes=30)
    assert policy.reason(ago(minutes=30), NOW, UTC) is None
    assert policy.reason(ago(minutes=29, seconds=59), NOW, UTC) is None
    assert policy.horizon(NOW, UTC) == ago(minutes=30)  # the watcher takes what was active before it, not at it


def test_R4_after_the_hour_of_the_day_the_reason_is_daily() -> None:
    assert ResetPolicy("daily", at_hour=4).reason(ago(hours=9), NOW, UTC) == "daily"


def test_R5_before_the_hour_of_the_day_yesterdays_counts() -> None:
    policy, early = ResetPolicy("daily", at_hour=4), NOW.replace(hour=3)
    assert policy.boundary(early, UTC) == NOW.replace(day=15, hour=4)
    assert policy.reason(NOW.replace(day=15, hour=5), early, UTC) is None
    assert policy.reason(NOW.replace(day=15, hour=3), early, UTC) == "daily"


def test_R7_idle_is_looked_at_first() -> None:
    assert ResetPolicy("both", idle_minutes=60).reason(ago(days=2), NOW, UTC) == "idle"


def test_R8_none_never_ends_anything() -> None:
    assert ResetPolicy("none").reason(ago(days=30), NOW, UTC) is None
    assert ResetPolicy().mode == "none"


def test_R15_what_a_file_leaves_empty_is_the_default() -> None:
    """Our names for the two platforms that are not told: api and webhook."""
    written: dict[str, Any] = dict.fromkeys(["mode", "at_hour", "idle_minutes", "notify", "notify_exclude"])
    assert ResetPolicy.of(written) == ResetPolicy.of({}) == ResetPolicy()
    policy = ResetPolicy.of({"mode": "both", "idle_minutes": None})
    assert (policy.at_hour, policy.idle_minutes, policy.notify) == (4, 1440, True)
    assert [policy.tells(platform) for platform in ("telegram", "api", "webhook")] == [True, False, False]
    assert not ResetPolicy.of({"notify": False}).tells("telegram")


def test_R16_a_thread_is_reset_by_a_policy_for_threads_only() -> None:
    thread = Source("discord", "c1", "thread", thread="t1", user="u1")
    both = ResetPolicy("both", idle_minutes=60)
    default = ResetPolicies(both, by_platform={"discord": both})
    assert default.of(thread).reason(ago(hours=8), NOW, UTC) is None
    named = ResetPolicies(both, by_type={"thread": both})
    assert named.of(thread).reason(ago(hours=8), NOW, UTC) == "idle"
    assert default.of(Source("telegram", "c1", "group", thread="17")) == NEVER
    assert default.of(Source("telegram", "c1", "dm", thread="17")) == both


def test_the_platforms_policy_goes_before_the_chat_types_and_that_before_the_default() -> None:
    default, group, telegram = ResetPolicy("daily"), ResetPolicy("idle"), ResetPolicy("both", at_hour=6)
    policies = ResetPolicies(default, by_type={"group": group}, by_platform={"telegram": telegram})
    assert policies.of(Source("telegram", "c", "group")) is telegram
    assert policies.of(Source("slack", "c", "group")) is group
    assert policies.of(Source("slack", "c", "dm")) is default


def test_the_hour_is_one_of_the_deployments_time_zone() -> None:
    policy = ResetPolicy("daily", at_hour=4)
    assert policy.boundary(NOW, BERLIN) == datetime(2026, 11, 16, 3, tzinfo=UTC)
    assert policy.boundary(NOW, ZoneInfo("Asia/Tokyo")) == datetime(2026, 11, 15, 19, tzinfo=UTC)


def test_the_hour_holds_on_the_days_when_the_clocks_change() -> None:
    policy = ResetPolicy("daily", at_hour=4)
    for day, hour in ((24, 2), (25, 3)):  # from the 25th of October 2026 on, 4 o'clock is an hour later in UTC
        noon = datetime(2026, 10, day, 12, tzinfo=UTC)
        assert policy.boundary(noon, BERLIN) == datetime(2026, 10, day, hour, tzinfo=UTC)
    skipped = ResetPolicy("daily", at_hour=2)  # 2 o'clock does not exist on the 29th of March
    noon = datetime(2026, 3, 29, 12, tzinfo=UTC)
    assert skipped.reason(datetime(2026, 3, 28, 12, tzinfo=UTC), noon, BERLIN) == "daily"
    assert skipped.reason(datetime(2026, 3, 29, 11, tzinfo=UTC), noon, BERLIN) is None


@given(st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)), st.integers(0, 23))
def test_the_last_daily_boundary_is_never_ahead_and_never_far_behind(now: datetime, hour: int) -> None:
    boundary = ResetPolicy("daily", at_hour=hour).boundary(now, BERLIN)
    assert timedelta(0) <= now - boundary <= timedelta(hours=25)


@pytest.mark.parametrize("values", [{"mode": "often"}, {"at_hour": 24}, {"idle_minutes": 0}, {"hour": 4}])
def test_a_policy_that_cannot_work_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a reset policy"):
        ResetPolicy.of(values)
