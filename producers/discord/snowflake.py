"""Discord's ids: numbers as text, which say when they were given."""

from __future__ import annotations

from typing import Any

from shared.errors import Malformed

_EPOCH_MS = 1_420_070_400_000  # Discord's time begins in 2015
_LONGEST = 20


def is_snowflake(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isascii() and value.isdigit()


def snowflake(fields: dict[str, Any], field: str) -> str:
    """An id; Malformed where there is none."""
    value = fields.get(field)
    if not is_snowflake(value):
        raise Malformed(f"{field} is not an id")
    return str(value)


def optional_snowflake(fields: dict[str, Any], field: str) -> str | None:
    return snowflake(fields, field) if fields.get(field) is not None else None


def given_at(id: str) -> int:
    """When an id was given, in ms: when its message was sent."""
    return (int(id) >> 22) + _EPOCH_MS
