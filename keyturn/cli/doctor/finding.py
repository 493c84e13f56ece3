"""Words for what a check found: addresses and errors without secrets, versions as numbers."""

from __future__ import annotations

from urllib.parse import unquote

from shared.finding import Finding, Level, counted, fail, ok, warn

__all__ = ["Finding", "Level", "counted", "fail", "ok", "redacted", "said", "version_tuple", "warn"]


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
    if kind == "MasterNotFoundError":  # what redis-py says of each Sentinel fills the screen
        return "no Sentinel answers, or none knows a primary of that service"
    lines = str(error).strip().splitlines()
    secret = url.partition("://")[2].rpartition("@")[0].partition(":")[2]
    hidden = url.count("@") > 1 or (secret and lines and (secret in lines[0] or unquote(secret) in lines[0]))
    return kind if hidden or not lines else f"{kind}: {lines[0][:200]}"


def version_tuple(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
