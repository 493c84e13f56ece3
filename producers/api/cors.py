"""Calls from web pages: which pages may make them. A browser asks before it calls, and hides the answer from any other page."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from producers.server.http import Endpoint
from shared.setting_values import EVERYBODY

_ALLOWED = {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "*, authorization",  # the star leaves authorization out
    "access-control-max-age": "600",
}


class Cors:
    """The rule of one deployment. Without origins nothing is added to any answer."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origin.rstrip("/") for origin in origins)

    @property
    def on(self) -> bool:
        return bool(self._origins)

    def around(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint, whose answers say which page may read them. Cookies are never asked for."""
        if not self.on:
            return endpoint

        async def answer(request: Request) -> Response:
            response = await endpoint(request)
            origin = request.headers.get("origin", "")
            if origin in self._origins or EVERYBODY in self._origins:
                response.headers["access-control-allow-origin"] = EVERYBODY if EVERYBODY in self._origins else origin
                response.headers.add_vary_header("origin")
            return response

        return answer

    async def preflight(self, _: Request) -> Response:
        """What a browser asks first. `around` adds whether the page may call at all."""
        return Response(status_code=204, headers=_ALLOWED)
