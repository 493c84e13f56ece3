"""Ids and times in Feishu's JSON. An id goes into addresses, so nothing else passes for one."""

from __future__ import annotations

import re
from typing import Any

from producers.fields import text
from shared.errors import Malformed
from shared.platforms.feishu import ID

_MILLISECONDS = re.compile(r"[0-9]{1,15}")


def id_(fields: dict[str, Any], field: str) -> str:
    value = text(fields, field)
    if value is None or not ID.fullmatch(value):
        raise Malformed(f"{field} is not an id")
    return value


def optional_id(fields: dict[str, Any], field: str) -> str | None:
    return id_(fields, field) if fields.get(field) not in (None, "") else None


def milliseconds(fields: dict[str, Any], field: str) -> int | None:
    """A time as Feishu writes it: text."""
    value = text(fields, field)
    if value is None:
        return None
    if not _MILLISECONDS.fullmatch(value):
        raise Malformed(f"{field} is not a time")
    return int(value)
