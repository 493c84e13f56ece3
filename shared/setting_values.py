"""Values that settings are written in. Apart from the settings, because the platforms' own settings use them too."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import BeforeValidator, SecretStr
from pydantic_settings import NoDecode

PREFIX = "KEYTURN_"  # how the names of variables begin
FILE_ENCODING = "utf-8-sig"  # of .env and keyturn.toml: editors on Windows begin them with a byte order mark
EVERYBODY = "*"  # in a list of users: all of them


def _listed(value: Any) -> Any:
    """A list may be written as JSON or separated by commas."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            return orjson.loads(text)
        return [item.strip() for item in text.split(",") if item.strip()]
    return value


Listed = BeforeValidator(_listed)
Names = Annotated[tuple[str, ...], NoDecode, Listed]
Secrets = Annotated[tuple[SecretStr, ...], NoDecode, Listed]
