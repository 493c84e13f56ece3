"""For APIs that want their key in the path: the key is put there below everything that logs, raises or prints a URL."""

from __future__ import annotations

import aiohttp
from aiohttp.client import RequestInfo
from aiohttp.connector import Connection
from pydantic import SecretStr


def path_secret(place: str, secret: SecretStr) -> type[aiohttp.ClientRequest]:
    """The kind of request that goes out with `secret` after the last `place` in its path.

    What aiohttp raises, and what its answers say of their request, has only `place`.
    """

    class PathSecret(aiohttp.ClientRequest):
        """Sends the secret, and shows its place only."""

        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            shown = self.url
            before, found, after = shown.raw_path.rpartition(place)
            path = before + found + secret.get_secret_value() + after
            self.url = shown.with_path(path, encoded=True)
            try:
                return await super().send(conn)
            finally:
                self.url = shown

        @property
        def request_info(self) -> RequestInfo:
            return super().request_info._replace(url=self.original_url)

    return PathSecret
