"""Step 1 for Plainchat: the signature over time and body, then the event."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response

from producers.heard import Event, Heard, parse_json
from producers.plainchat.normalise import normalise
from producers.receiving import Receiver, Reception, only_header, require_equal, require_fresh
from producers.server.route import PlatformRoute
from producers.settling import Settled
from shared.pipeline import Pipeline
from shared.platforms.plainchat import NAME, PlainchatSettings
from shared.value import value

OLDEST_SECONDS = 300


def routes(pipe: Pipeline) -> Iterator[PlatformRoute]:
    settings = pipe.settings.block(PlainchatSettings)
    if settings.on:
        secrets = [secret.get_secret_value().encode() for secret in settings.secrets]
        yield PlatformRoute(f"/webhooks/{NAME}", Reception(pipe, PlainchatReceiver(secrets)).receive)


@value
class Signed:
    """What the head of a request says was signed."""

    time: str
    signature: str


class PlainchatReceiver(Receiver[Signed]):
    name = NAME
    body_is_signed = True

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = secrets

    def check_head(self, request: Request) -> Signed:
        signed = Signed(only_header(request, "x-plainchat-time"), only_header(request, "x-plainchat-signature"))
        require_fresh(signed.time, OLDEST_SECONDS)
        return signed

    def check_body(self, head: Signed, body: bytes) -> None:
        signed = head.time.encode() + b"." + body
        expected = (hmac.digest(secret, signed, "sha256").hex().encode() for secret in self._secrets)
        require_equal("signature", head.signature, expected)

    async def parse(self, head: Signed, body: bytes) -> Sequence[Event]:
        event = parse_json(body)
        return (Event(str(event.get("id")), event, raw=body),)

    def normalise(self, event: Event, received_at: int) -> Heard:
        return normalise(event.fields, received_at)

    def answer(self, settled: Sequence[Settled]) -> Response:
        return Response()
