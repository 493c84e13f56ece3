"""Everything among the settings that must never be shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, SecretStr


def secrets_of(settings: BaseModel, addresses: Iterable[str]) -> tuple[str, ...]:
    """Every secret of every block, and the passwords in URLs, so that log lines can be searched for them."""
    found = [*_secrets_in(settings), *addresses]
    listed = [part for text in found for part in (text.split(",") if "://" in text else [text])]
    passwords = [text.rpartition("@")[0].partition("://")[2].partition(":")[2] for text in listed if "://" in text]
    secrets = [text for text in listed if "://" not in text]
    halves = [text.partition(":")[2] for text in secrets]  # a token may be an id, a colon and the secret
    return tuple(value for value in (*passwords, *secrets, *halves) if value)


def _secrets_in(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets_in(getattr(value, name))
    elif isinstance(value, tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _secrets_in(item)
