"""Lists of people that count on every platform: `<platform>:42`, or bare ids.

A bare id is meant for chat platforms, whose ids nobody can choose. Where a program makes up the user ids, only an entry that
names the platform counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from shared.setting_values import EVERYBODY

_BARE = re.compile(r"[^\s:@,][^\s:,]*")  # no handle: names can be changed, ids cannot


def ids_on(platform: str, entries: Iterable[str], *, bare: bool) -> set[str]:
    """The ids that the entries of a global list name on one platform; `bare`: those without a platform count there."""
    named = {entry.removeprefix(f"{platform}:") for entry in entries if entry.startswith(f"{platform}:")}
    return {*named, *(entry for entry in entries if bare and ":" not in entry)}


def check_entries(name: str, entries: Iterable[str], platforms: Collection[str], *, everybody: bool) -> None:
    """ValueError for an entry that could never match anybody, or that would match everybody where people are meant.

    Entries are told by their place: what was written there by mistake may be a secret.
    """
    for place, entry in enumerate(entries, 1):
        platform, named, id = entry.rpartition(":") if entry.count(":") == 1 else ("", "", entry)
        if named and platform not in platforms:
            raise ValueError(
                f"{name}: entry {place} names a platform that is not there; there are {', '.join(platforms)}"
            )
        if id == EVERYBODY and not everybody:
            raise ValueError(f"{name}: entry {place} is everybody; list people")
        if id != EVERYBODY and not _BARE.fullmatch(id):
            raise ValueError(
                f"{name}: entry {place} is neither a user id nor platform:id, such as {_example(platforms)}:42"
            )


def _example(platforms: Collection[str]) -> str:
    return next(iter(platforms), "platform")
