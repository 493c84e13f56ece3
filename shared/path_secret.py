"""For APIs that want their key in the path: the key is put there below everything that logs, raises or prints a URL."""

from __future__ import annotations

import httpx
from pydantic import SecretStr


class PathSecret(httpx.AsyncBaseTransport):
    """Requests go out with `secret` after the last `place` in their path. What httpx logs and raises has only `place`."""

    def __init__(self, inner: httpx.AsyncBaseTransport, place: str, secret: SecretStr) -> None:
        self._inner = inner
        self._place = place.encode()
        self._secret = secret.get_secret_value().encode()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        before, place, after = request.url.raw_path.rpartition(self._place)
        url = request.url.copy_with(raw_path=before + place + self._secret + after)
        sent = httpx.Request(
            request.method, url, headers=request.headers, stream=request.stream, extensions=request.extensions
        )
        return await self._inner.handle_async_request(sent)

    async def aclose(self) -> None:
        await self._inner.aclose()
