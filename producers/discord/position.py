"""How far a gateway session was seen, kept in Redis: after a crash the next listener resumes it from there, and Discord
brings what was not seen again. Lost with Redis; then a new session begins, and what was said meanwhile is not heard of.

A listener that resumes sends the bot's token to the address in the record. So each record is signed with the token: one that
somebody else wrote to Redis counts as none.
"""

from __future__ import annotations

import hmac

import orjson

from shared import keys, log
from shared.errors import Unavailable
from shared.pipeline import Pipeline
from shared.platforms.discord import NAME, DiscordSettings
from shared.redis_servers import kept_text
from shared.value import value

KEPT_SECONDS = 3600  # no session lives that long without a connection


@value
class Position:
    """A session, and the last event of it that is kept or settled."""

    session: str
    url: str  # where it can be resumed
    intents: int  # what it brings
    seq: int


class Positions:
    """The position of one bot. A Redis that is away costs nothing but the position."""

    def __init__(self, pipe: Pipeline, settings: DiscordSettings) -> None:
        assert settings.token is not None
        self._token = settings.token
        self._name = keys.position(NAME, settings.credential)
        self._servers = pipe.servers

    async def load(self) -> Position | None:
        kept = await kept_text(self._servers, self._name)
        return self._read(kept) if kept is not None else None

    async def save(self, position: Position) -> None:
        record = orjson.dumps(position)
        signed = self._signature(record) + b" " + record
        server = self._servers.of_key(self._name)
        try:
            await server.asked(server.client.set(self._name, signed, ex=KEPT_SECONDS))
        except Unavailable as error:
            log.get().warning("the gateway's position is not kept", platform=NAME, error=str(error))

    def _read(self, kept: bytes) -> Position | None:
        """None for anything that no listener of this bot wrote."""
        signature, _, record = kept.partition(b" ")
        if not hmac.compare_digest(signature, self._signature(record)):
            log.get().warning("the gateway's position was not written by this bot: it is not used", platform=NAME)
            return None
        return _position(record)

    def _signature(self, record: bytes) -> bytes:
        return hmac.digest(self._token.get_secret_value().encode(), b"position " + record, "sha256").hex().encode()


def _position(record: bytes) -> Position | None:
    """None for what another version wrote."""
    try:
        fields = orjson.loads(record)
        session, url, intents, seq = fields["session"], fields["url"], fields["intents"], fields["seq"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    if not isinstance(session, str) or not isinstance(url, str) or type(seq) is not int or type(intents) is not int:
        return None
    return Position(session, url, intents, seq)
