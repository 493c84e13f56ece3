"""Who may use the API: whoever shows one of its keys."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from pydantic import SecretStr
from starlette.requests import Request

from shared.errors import Denied


class ApiKeys:
    """The bearer keys of the settings. Where there are none, nobody gets in."""

    def __init__(self, keys: Sequence[SecretStr]) -> None:
        self._keys = [key.get_secret_value().encode() for key in keys]

    def check(self, request: Request) -> None:
        """Denied unless the one Authorization header carries one of our keys. How long it takes tells nothing of a key."""
        given = request.headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        matches = [hmac.compare_digest(token.strip().encode("latin-1"), key) for key in self._keys]
        if scheme.lower() != "bearer" or not any(matches):
            raise Denied("bearer key")
