"""Step 1 for WhatsApp: the handshake by GET, and requests that are signed over their raw bytes."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from producers.heard import Event, Heard, parse_json
from producers.mac import Mac
from producers.receiving import Receiver, Reception, only_header
from producers.server import http
from producers.server.answer import WholeAnswer
from producers.server.route import PlatformRoute
from producers.settling import Settled
from producers.whatsapp.normalise import normalise
from producers.whatsapp.notifications import events_in, number_of
from shared import log
from shared.errors import Denied
from shared.pipeline import Pipeline
from shared.platforms.whatsapp import NAME, WhatsAppSettings

HEADER = "x-hub-signature-256"
CHALLENGE_LIMIT = 1024
_SIGNATURE = re.compile(r"sha256=[0-9a-f]{64}")
_TAKEN = WholeAnswer()  # the same for every request


def routes(pipe: Pipeline) -> Iterator[PlatformRoute]:
    """One address for all numbers. Meta describes it, not we."""
    settings = pipe.settings.block(WhatsAppSettings)
    if settings.on:
        path = f"/webhooks/{NAME}"
        yield PlatformRoute(path, Reception(pipe, WhatsAppReceiver(settings)).receive)
        yield PlatformRoute(path, Handshake(settings).answer, "GET")


class Handshake:
    """Meta asks once, when the address is entered, whether we know the verify token."""

    def __init__(self, settings: WhatsAppSettings) -> None:
        assert settings.verify_token is not None
        self._token = settings.verify_token.get_secret_value().encode()

    async def answer(self, request: Request) -> Response:
        mode, token, challenge = (_only(request, f"hub.{name}") for name in ("mode", "verify_token", "challenge"))
        matches = hmac.compare_digest(token.encode("utf-8", "replace"), self._token)
        if not matches or mode != "subscribe" or not 0 < len(challenge) <= CHALLENGE_LIMIT:
            return http.refusal(request, 403, "not authorised", "handshake")
        return PlainTextResponse(challenge, headers={"x-content-type-options": "nosniff"})


class WhatsAppReceiver(Receiver[bytes]):
    """The receiver of all our numbers. Any of the app secrets verifies a request, so that they can be rotated."""

    name = NAME
    body_is_signed = True
    brings_several = True

    def __init__(self, settings: WhatsAppSettings) -> None:
        self._macs = [Mac(secret.get_secret_value().encode()) for secret in settings.app_secret]
        self._accounts = {id: account for account, id in settings.numbers.items()}
        self._known_numbers = {"", *self._accounts}

    def check_head(self, request: Request) -> bytes:
        signature = only_header(request, HEADER)
        if not _SIGNATURE.fullmatch(signature):
            raise Denied("signature")
        return bytes.fromhex(signature.removeprefix("sha256="))

    def check_body(self, head: bytes, body: bytes) -> None:
        matches = [hmac.compare_digest(head, mac.of(body)) for mac in self._macs]
        if not any(matches):
            raise Denied("signature")

    async def parse(self, head: bytes, body: bytes) -> Sequence[Event]:
        events = events_in(parse_json(body))
        numbers = {number_of(event) for event in events}
        for number in numbers - self._known_numbers:
            log.get().warning("a message for a phone number that is not ours", platform=NAME, phone_number_id=number)
        return events

    def normalise(self, event: Event, received_at: int) -> Heard:
        return normalise(event.fields, self._accounts, received_at)

    def answer(self, settled: Sequence[Settled]) -> Response:
        return _TAKEN


def _only(request: Request, name: str) -> str:
    """A parameter that is there once; of two, nobody could say which one was meant."""
    values = request.query_params.getlist(name)
    return values[0] if len(values) == 1 else ""
