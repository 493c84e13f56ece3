"""When a schedule is due: what people write, what is kept, and both nights when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from shared.errors import Malformed
from shared.schedules.rule import NICKNAMES, At, Cron, Every, Rule, next_times, parse_rule, read_rule

NOW = int(datetime(2026, 11, 17, 12, 0, tzinfo=UTC).timestamp() * 1000)
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
BERLIN = "Europe/Berlin"


def at(*when: int, zone: str = "UTC") -> int:
    return int(datetime(*when, tzinfo=ZoneInfo(zone)).timestamp() * 1000)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("20m", At(NOW + 20 * MINUTE)),
        ("in 2 hours", At(NOW + 2 * HOUR)),
        ("2026-11-18 09:00", At(at(2026, 11, 18, 9, zone=BERLIN))),
        ("2026-11-18T09:00:00Z", At(at(2026, 11, 18, 9))),
        ("every 2h", Every(2 * HOUR, NOW)),
        ("Every 90 seconds", Every(90_000, NOW)),
        ("every 1d at 09:30", Cron("30 9 * * *", BERLIN)),
        ("every day at 9:05", Cron("5 9 * * *", BERLIN)),
        ("*/5  8-17 * * mon-fri", Cron("*/5 8-17 * * mon-fri", BERLIN)),
        ("@daily", Cron("0 0 * * *", BERLIN)),
        ("every 1d at 09:30 in America/New_York", Cron("30 9 * * *", "America/New_York")),
        ("0 9 * * * in UTC", Cron("0 9 * * *", "UTC")),
        ("@Yearly", Cron("0 0 1 1 *", BERLIN)),
    ],
)
def test_a_rule_is_understood_as_people_write_it_and_read_back_as_it_was(text: str, rule: Rule) -> None:
    understood = parse_rule(text, BERLIN, NOW)
    assert understood == rule and read_rule(str(understood)) == rule
    assert understood.words


@pytest.mark.parametrize(
    ("every_ms", "said"), [(2 * HOUR, "2h"), (90 * MINUTE, "90m"), (7 * DAY, "1w"), (1_500, "1500ms")]
)
def test_a_repeated_rule_is_said_as_people_write_it(every_ms: int, said: str) -> None:
    assert Every(every_ms, NOW).words.startswith(f"every {said}, counted from ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "every",
        "every soon",
        "every 0s",
        "every 999999999w",
        "61 * * * *",
        "* * 31 2 *",
        "@sometimes",
        "every 1d at 25:00",
        "2026-02-30 09:00",
        "* * * *",
        "9999-12-31",
    ],
)
def test_what_says_no_time_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(Malformed, match=r".{10}"):
        parse_rule(text, "UTC", NOW)


def test_a_wrong_time_of_day_is_named_as_it_was_written() -> None:
    with pytest.raises(Malformed, match="25:00 is no time of day"):
        parse_rule("every 1d at 25:00", "UTC", NOW)


def test_a_zone_must_exist() -> None:
    with pytest.raises(Malformed, match="time zone"):
        parse_rule("@daily", "Europe/Nowhere", NOW)


@pytest.mark.parametrize("kept", ["", "at soon", "every 5", "cron * * * * *", "cron * * in UTC", "never"])
def test_a_text_that_was_never_kept_is_no_rule(kept: str) -> None:
    with pytest.raises(Malformed):
        read_rule(kept)


@pytest.mark.parametrize("name", NICKNAMES)
def test_a_nickname_names_times_for_ever(name: str) -> None:
    rule = parse_rule(name, "UTC", NOW)
    assert len(next_times(rule, NOW, 3)) == 3


@pytest.mark.parametrize(
    ("day", "night"),
    [
        ((2026, 3, 29), [at(2026, 3, 28, 1, 30), at(2026, 3, 29, 1), at(2026, 3, 30, 0, 30)]),  # 2:30 does not exist
        ((2026, 10, 25), [at(2026, 10, 24, 0, 30), at(2026, 10, 25, 0, 30), at(2026, 10, 26, 1, 30)]),  # it comes twice
    ],
)
def test_ag52_a_daily_job_runs_once_in_both_nights_when_clocks_change(
    day: tuple[int, int, int], night: list[int]
) -> None:
    rule = Cron("30 2 * * *", BERLIN)
    before = at(day[0], day[1], day[2] - 1, zone=BERLIN)
    assert list(next_times(rule, before, 3)) == night


def test_ag52_an_hourly_job_runs_every_hour_in_both_nights() -> None:
    for day in ((2026, 3, 29), (2026, 10, 25)):
        times = next_times(Cron("0 * * * *", BERLIN), at(*day, zone=BERLIN) - 1, 30)
        assert {second - first for first, second in pairwise(times)} == {HOUR}


def test_every_counts_from_its_start_and_not_from_now() -> None:
    rule = Every(HOUR, NOW)
    assert rule.next_after(NOW) == NOW + HOUR
    assert rule.next_after(NOW + HOUR + 1) == NOW + 2 * HOUR
    assert rule.next_after(NOW + 10 * HOUR - 1) == NOW + 10 * HOUR
    assert rule.next_after(NOW - 5 * HOUR) == NOW + HOUR


def test_a_day_of_the_month_or_of_the_week_is_enough_where_both_are_given() -> None:
    days = {
        datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()
        for ms in next_times(Cron("0 0 13 * fri", "UTC"), NOW, 5)
    }
    assert days == {"2026-11-20", "2026-11-27", "2026-12-04", "2026-12-11", "2026-12-13"}


def test_what_comes_once_has_no_time_after_it_and_no_period() -> None:
    rule = At(NOW)
    assert (rule.next_after(NOW), rule.next_after(NOW - 1), rule.period_ms(NOW)) == (None, NOW, None)
    assert (Every(5, 0).period_ms(0), Cron("0 0 * * *", "UTC").period_ms(NOW)) == (5, DAY)
