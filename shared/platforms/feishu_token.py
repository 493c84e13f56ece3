"""The tenant access token that Feishu's open platform wants with every call. It lives for about two hours, in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from shared.errors import Transient
from shared.value import value

EARLY_SECONDS = 1200.0  # before its end a token is renewed


@value
class Token:
    """A token, and when it is to be renewed and is over, by the monotonic clock."""

    text: str
    renew_at: float
    ends_at: float


def lasting(text: str, seconds: float) -> Token:
    now = time.monotonic()
    return Token(text, now + max(seconds - EARLY_SECONDS, seconds / 2), now + seconds)


class FeishuTokens:
    """The token of one app. However many want it, it is fetched once."""

    def __init__(self, fetch: Callable[[], Awaitable[Token]]) -> None:
        self._fetch = fetch
        self._fetching = asyncio.Lock()
        self._token: Token | None = None

    async def current(self) -> str:
        """A token that should be good. Raises what fetching one raises, unless the old one still lasts."""
        if (token := self._token) is not None and time.monotonic() < token.renew_at:
            return token.text
        async with self._fetching:
            token = self._token
            if token is not None and time.monotonic() < token.renew_at:
                return token.text  # somebody fetched it meanwhile
            try:
                self._token = await self._fetch()
            except Transient:
                if token is None or time.monotonic() >= token.ends_at:
                    raise
                return token.text
            return self._token.text

    def refused(self, text: str) -> None:
        """Feishu does not take this token any more: the next call fetches another."""
        if self._token is not None and self._token.text == text:
            self._token = None
