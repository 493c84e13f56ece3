"""When a schedule is due: its rule, as people write it and as it is kept.

| written | kept | means |
|---|---|---|
| `20m`, `in 20m`, `2026-11-18 09:00` | `at 1794992400000` | once |
| `every 2h` | `every 7200000 from 1794992400000` | every two hours, counted from that time |
| `every 1d at 09:00 in Europe/Berlin`, `0 9 * * *`, `@daily` | `cron 0 9 * * * in Europe/Berlin` | by the clocks of a zone |

Cron is read as Debian's cron reads it: where both the day of the month and the day of the week are given, either is enough. A
job at an hour that a change of clocks leaves out runs right after it; one at an hour that comes twice runs once.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from shared.clock import iso, moment
from shared.errors import Malformed
from shared.value import value

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_WORDS = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}
_DURATION = re.compile(r"(\d{1,9})\s*(ms|[smhdw]|sec|second|min|minute|hour|day|week)s?", re.IGNORECASE)
_DAILY = re.compile(r"every\s+(?:1\s*d|day)\s+at\s+(\d{1,2}):(\d\d)", re.IGNORECASE)
_ZONED = re.compile(r"(.+) in ([A-Za-z_]+(?:/[A-Za-z0-9_+-]+)*)")
_LONGEST_MS = 366 * 86_400_000
_LATEST_MS = 253_370_764_800_000  # the year 9999


class Rule(Protocol):
    """When something is due. `str(rule)` is kept, and read back by `read_rule`."""

    def next_after(self, at_ms: int) -> int | None:
        """The first time after that one, or None if there is none."""
        ...

    def period_ms(self, at_ms: int) -> int | None:
        """The time from then to the next, or None for what comes once."""
        ...

    @property
    def words(self) -> str:
        """The rule as a person is told it."""
        ...


@value
class At:
    """Once."""

    at_ms: int

    def next_after(self, at_ms: int) -> int | None:
        return self.at_ms if self.at_ms > at_ms else None

    def period_ms(self, at_ms: int) -> int | None:
        return None

    @property
    def words(self) -> str:
        return f"once, at {iso(self.at_ms)}"

    def __str__(self) -> str:
        return f"at {self.at_ms}"


@value
class Every:
    """Again and again, counted from a fixed start: a run that comes late moves none of the later ones."""

    every_ms: int
    start_ms: int

    def next_after(self, at_ms: int) -> int | None:
        passed = max(0, (at_ms - self.start_ms) // self.every_ms)
        return self.start_ms + (passed + 1) * self.every_ms

    def period_ms(self, at_ms: int) -> int | None:
        return self.every_ms

    @property
    def words(self) -> str:
        return f"every {_written(self.every_ms)}, counted from {iso(self.start_ms)}"

    def __str__(self) -> str:
        return f"every {self.every_ms} from {self.start_ms}"


@value
class Cron:
    """By the clocks of a zone."""

    expression: str
    zone: str

    def next_after(self, at_ms: int) -> int | None:
        try:
            found = next(CronSim(self.expression, moment(at_ms).astimezone(ZoneInfo(self.zone))))
        except StopIteration:
            return None
        return int(found.timestamp() * 1000)

    def period_ms(self, at_ms: int) -> int | None:
        first = self.next_after(at_ms)
        second = self.next_after(first) if first is not None else None
        return None if first is None or second is None else second - first

    @property
    def words(self) -> str:
        return f"{self.expression} by the clocks of {self.zone}"

    def __str__(self) -> str:
        return f"cron {self.expression} in {self.zone}"


def parse_rule(text: str, zone: str, now_ms: int) -> Rule:
    """The rule that a person wrote; a time without a zone is meant by the clocks of `zone`. Malformed says what is wrong."""
    text = " ".join(text.split())
    if (zoned := _ZONED.fullmatch(text)) is not None:
        text, zone = zoned[1], zoned[2]
    zone_info = _zone(zone)
    if (daily := _DAILY.fullmatch(text)) is not None:
        hour, minute = int(daily[1]), int(daily[2])
        if hour > 23 or minute > 59:
            raise Malformed(f"{daily[1]}:{daily[2]} is no time of day: write 00:00 to 23:59")
        return _cron(f"{minute} {hour} * * *", zone)
    if text.lower().startswith("every "):
        return Every(_duration_ms(text[len("every ") :]), now_ms)
    if _DURATION.fullmatch(text) or text.lower().startswith("in "):
        return At(now_ms + _duration_ms(re.sub("^in ", "", text, flags=re.IGNORECASE)))
    if text.startswith("@") or len(text.split(" ")) == 5:
        return _cron(NICKNAMES.get(text.lower(), text), zone)
    return At(_time_ms(text, zone_info))


def read_rule(kept: str) -> Rule:
    """The rule whose text was kept; Malformed for anything else."""
    kind, _, rest = kept.partition(" ")
    try:
        if kind == "at":
            return At(int(rest))
        if kind == "every":
            every, start = rest.split(" from ")
            return Every(int(every), int(start))
        if kind == "cron":
            expression, zone = rest.rsplit(" in ", 1)
            return _cron(expression, zone)
    except ValueError:
        pass
    raise Malformed(f"not a rule: {kept!r:.80}")


def next_times(rule: Rule, after_ms: int, count: int) -> tuple[int, ...]:
    """The next few times that a rule names."""
    found: list[int] = []
    while len(found) < count and (after := rule.next_after(after_ms)) is not None:
        found.append(after)
        after_ms = after
    return tuple(found)


def _cron(expression: str, zone: str) -> Cron:
    _zone(zone)
    try:
        next(CronSim(expression, datetime.now(UTC)))
    except CronSimError as error:
        raise Malformed(f"not a cron expression: {error}") from None
    except StopIteration:
        raise Malformed("the cron expression names no time that ever comes") from None
    return Cron(expression, zone)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Malformed(f"{name!r:.60} is no time zone: use an IANA name such as Europe/Berlin") from None


def _written(duration_ms: int) -> str:
    """A duration as a person writes it: 2h, 90m."""
    unit = next(unit for unit, size_ms in reversed(_UNITS.items()) if duration_ms % size_ms == 0)
    return f"{duration_ms // _UNITS[unit]}{unit}"


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise Malformed(
            f"{text!r:.40} is no duration: write 30s, 20m, 2h, 1d or 1w; for days of the week, cron: 0 9 * * mon-fri"
        )
    unit = found[2].lower()
    duration = int(found[1]) * _UNITS[_WORDS.get(unit, unit)]
    if not 0 < duration <= _LONGEST_MS:
        raise Malformed("a duration is longer than nothing and at most a year")
    return duration


def _time_ms(text: str, zone: ZoneInfo) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        hint = "20m, every 2h, every 1d at 09:00, 2026-11-18 09:00, or five cron fields"
        raise Malformed(f"{text!r:.60} says no time; write for example {hint}") from None
    at_ms = int((at if at.tzinfo else at.replace(tzinfo=zone)).timestamp() * 1000)
    if not 0 < at_ms < _LATEST_MS:
        raise Malformed("that time is too far away")
    return at_ms
