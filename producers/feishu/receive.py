"""Step 1 for Feishu by webhook: the signature over the raw bytes, or the token in them; then decryption, and the event.

Feishu waits for three seconds, then repeats an event four times within seven hours. Nobody says whether a repetition is
signed anew, so a signature does not go stale: a request that is replayed ends as a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from producers.feishu.events import Events
from producers.feishu.secrecy import is_encrypted, opened, sign
from producers.heard import Event, parse_json
from producers.introduction import Introduction
from producers.receiving import Receiver, Reception, require_equal
from producers.server.answer import WholeAnswer
from producers.server.body import header_values
from producers.server.route import PlatformRoute
from producers.settling import Settled
from shared.errors import Denied, Malformed
from shared.pipeline import Pipeline
from shared.platforms.feishu import NAME, FeishuSettings
from shared.platforms.feishu_api import open_api
from shared.value import value

TIMESTAMP, NONCE, SIGNATURE = "x-lark-request-timestamp", "x-lark-request-nonce", "x-lark-signature"
CHALLENGE_LIMIT = 1000
ASK_SECONDS = 2.0  # Feishu waits for three
_TAKEN = WholeAnswer(b"{}", media_type="application/json")  # the same for every request


def routes(pipe: Pipeline) -> Iterator[PlatformRoute]:
    """One, where there is a verification token or an encrypt key. Feishu describes it, not we."""
    settings = pipe.settings.block(FeishuSettings)
    if settings.on and settings.is_told:
        yield PlatformRoute(f"/webhooks/{NAME}", Reception(pipe, FeishuReceiver(settings)).receive)


@value
class FeishuSigned:
    """What a request says was signed."""

    timestamp: str
    nonce: str
    signature: str


class FeishuReceiver(Events, Receiver[FeishuSigned | None]):
    """With an encrypt key, a request is proved by its signature; without one, by the token in it. Any that is listed will do.

    The handshake need not be signed: it is proved by being encrypted with our key, and by the token.
    """

    body_is_signed = True

    def __init__(self, settings: FeishuSettings) -> None:
        super().__init__(settings)
        self._settings = settings
        self._introduction = Introduction(self._ask)
        self._keys = [key.get_secret_value().encode() for key in settings.encrypt_key]
        self._tokens = [token.get_secret_value().encode() for token in settings.verification_token]

    def check_head(self, request: Request) -> FeishuSigned | None:
        """All three headers, once each; or none of them."""
        given = [header_values(request, name) for name in (TIMESTAMP, NONCE, SIGNATURE)]
        if not self._keys or not any(given):
            return None
        if not all(len(values) == 1 for values in given):
            raise Denied("signature")
        [timestamp], [nonce], [signature] = given
        return FeishuSigned(timestamp, nonce, signature)

    def check_body(self, head: FeishuSigned | None, body: bytes) -> None:
        if head is not None and self._is_signed(head, body):
            return
        try:
            fields = parse_json(body)
            payload = opened(self._keys, fields)
        except Malformed:
            raise Denied("no proof") from None
        if self._keys and not (is_encrypted(fields) and _is_handshake(payload)):
            raise Denied("signature")
        self._check_token(payload)

    async def parse(self, head: FeishuSigned | None, body: bytes) -> Sequence[Event] | Response:
        payload = opened(self._keys, parse_json(body))
        if _is_handshake(payload):
            self._check_token(payload)
            return _challenged(payload)
        await self._introduction.require()
        return (self.event(payload),)

    def answer(self, settled: Sequence[Settled]) -> Response:
        return _TAKEN

    def _check_token(self, payload: dict[str, Any]) -> None:
        """Denied unless it has our token. Where there is none, it was encrypted with our key."""
        if self._tokens:
            require_equal("token", _token(payload), self._tokens)

    def _is_signed(self, head: FeishuSigned, body: bytes) -> bool:
        expected = [sign(key, head.timestamp, head.nonce, body).encode() for key in self._keys]
        try:
            require_equal("signature", head.signature, expected)
        except Denied:
            return False
        return True

    async def _ask(self) -> None:
        async with open_api(self._settings) as api:
            await self.introduce(api, ASK_SECONDS)


def _is_handshake(payload: dict[str, Any]) -> bool:
    return payload.get("type") == "url_verification"


def _token(payload: dict[str, Any]) -> str:
    """The token of a request: in the header of an event, and at the top of a handshake and of an event of the first form."""
    header = payload.get("header")
    found = header.get("token") if isinstance(header, dict) else payload.get("token")
    return found if isinstance(found, str) else ""


def _challenged(payload: dict[str, Any]) -> Response:
    """The handshake of the app's settings page: we say what only a receiver of the request can know."""
    challenge = payload.get("challenge")
    if not isinstance(challenge, str) or len(challenge) > CHALLENGE_LIMIT:
        raise Malformed("challenge is not text")
    return Response(orjson.dumps({"challenge": challenge}), media_type="application/json")
