"""Values that settings are written in."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import BeforeValidator, SecretStr
from pydantic_settings import NoDecode


def _listed(value: Any) -> Any:
    """A list may be written as JSON or separated by commas."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            return orjson.loads(text)
        return [item.strip() for item in text.split(",") if item.strip()]
    return value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]
Secrets = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_listed)]
