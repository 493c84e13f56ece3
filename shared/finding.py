"""What a check of the deployment found, and what to do about it."""

from __future__ import annotations

from enum import StrEnum

from shared.value import value


class Level(StrEnum):
    """FAIL means that Keyturn cannot work so; WARN that it works, and not as somebody may expect."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@value
class Finding:
    """One line of `keyturn doctor`. It holds no secret."""

    check: str
    level: Level
    detail: str
    fix: str = ""


def ok(check: str, detail: str) -> Finding:
    return Finding(check, Level.OK, detail)


def warn(check: str, detail: str, fix: str) -> Finding:
    return Finding(check, Level.WARN, detail, fix)


def fail(check: str, detail: str, fix: str) -> Finding:
    return Finding(check, Level.FAIL, detail, fix)


def counted(count: int, one: str, many: str) -> str:
    """So many of something, in words that fit the number: "1 key waits", "2 keys wait"."""
    return f"{count} {one if count == 1 else many}"
