"""What a check found, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from urllib.parse import unquote

from shared.value import value


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@value
class Finding:
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


def redacted(url: str) -> str:
    """Where a URL points, without user, password or options. One that cannot be told apart shows its scheme only."""
    scheme, _, rest = url.partition("://")
    place, _, options = rest.partition("?")
    if "@" in options or "#" in place:
        return f"{scheme}://…"
    return f"{scheme}://{place.rpartition('@')[2]}"


def said(error: BaseException, url: str) -> str:
    """What a server or a driver said, in one line; its kind only, if the line might repeat a secret."""
    kind = type(error).__name__
    lines = str(error).strip().splitlines()
    secret = url.partition("://")[2].rpartition("@")[0].partition(":")[2]
    hidden = url.count("@") > 1 or (secret and lines and (secret in lines[0] or unquote(secret) in lines[0]))
    return kind if hidden or not lines else f"{kind}: {lines[0][:200]}"


def version_tuple(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())


Facts = Mapping[str, object]
