"""Reading a platform's JSON: each function gives the kind of value it names, or Malformed says which field is something else."""

from __future__ import annotations

from typing import Any

from shared.codec import storable
from shared.errors import Malformed

NAME_LIMIT = 256
TEXT_LIMIT = 200_000
ITEM_LIMIT = 1000
_LARGEST = 2**63


def object_(fields: dict[str, Any], field: str) -> dict[str, Any]:
    value = fields.get(field)
    if not isinstance(value, dict):
        raise Malformed(f"{field} is not an object")
    return value


def number(fields: dict[str, Any], field: str) -> int:
    value = fields.get(field)
    if type(value) is not int or not -_LARGEST < value < _LARGEST:
        raise Malformed(f"{field} is not a number")
    return value


def flag(fields: dict[str, Any], field: str) -> bool:
    return fields.get(field) is True


def items(fields: dict[str, Any], field: str) -> list[dict[str, Any]]:
    """A list of objects; empty where there is none."""
    value = fields.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > ITEM_LIMIT:
        raise Malformed(f"{field} is not a list of objects")
    for item in value:  # a third of the time that a generator takes
        if not isinstance(item, dict):
            raise Malformed(f"{field} is not a list of objects")
    return value


def text(fields: dict[str, Any], field: str) -> str | None:
    """Text as it was sent: offsets count in it. None where there is none."""
    value = fields.get(field)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > TEXT_LIMIT:
        raise Malformed(f"{field} is not text")
    return value


def name(fields: dict[str, Any], field: str) -> str | None:
    """A label, fit to be kept; what is too long is cut."""
    value = text(fields, field)
    return storable(value)[:NAME_LIMIT] if value is not None else None
