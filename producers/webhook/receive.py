"""Step 1 for the generic webhook: the signature of Standard Webhooks over the raw bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers import message_body
from producers.heard import Event, parse_json
from producers.receiving import Receiver, Reception, only_header, secret_name
from producers.server.route import PlatformRoute
from producers.settling import Recorded, Settled
from producers.webhook.openapi import RECEIVE
from shared import signing
from shared.door import Acceptance
from shared.errors import Malformed
from shared.messages import Inbound
from shared.pipeline import Pipeline
from shared.platforms.webhook import NAME, WebhookSettings
from shared.value import value


def routes(pipe: Pipeline) -> Iterator[PlatformRoute]:
    settings = pipe.settings.block(WebhookSettings)
    if settings.on:
        reception = Reception(pipe, WebhookReceiver(settings.signing_keys()))
        yield PlatformRoute(f"/webhooks/{NAME}", reception.receive, operation=RECEIVE)


@value
class WebhookSigned:
    """What a request says was signed, and how."""

    id: str
    timestamp: str
    signatures: str


class WebhookReceiver(Receiver[WebhookSigned]):
    """Any of the secrets verifies a request, so that a sender can rotate its own."""

    name = NAME
    body_is_signed = True

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys

    def check_head(self, request: Request) -> WebhookSigned:
        id, timestamp = only_header(request, "webhook-id"), only_header(request, "webhook-timestamp")
        signatures = only_header(request, "webhook-signature")
        signing.check_head(id, timestamp)
        signing.check_form(signatures)
        return WebhookSigned(id, timestamp, signatures)

    def check_body(self, head: WebhookSigned, body: bytes) -> None:
        signing.verify(self._keys, head.id, head.timestamp, head.signatures, body)

    def sender(self, head: WebhookSigned, body: bytes) -> str:
        return secret_name(signing.verifier(self._keys, head.id, head.timestamp, head.signatures, body))

    async def parse(self, head: WebhookSigned, body: bytes) -> Sequence[Event]:
        try:
            return (Event(head.id, parse_json(body), raw=body),)
        except Malformed as error:
            return (Event(head.id, {}, raw=body, broken=str(error)),)

    def normalise(self, event: Event, received_at: int) -> Inbound:
        event_id = message_body.event_id_of(event.fields) or event.ref  # the latter is the `webhook-id` header
        return message_body.normalise(event.fields, NAME, event_id, received_at)

    def answer(self, settled: Sequence[Settled]) -> Response:
        [outcome] = settled
        if isinstance(outcome, Acceptance):
            return JSONResponse({"status": "accepted" if outcome.fresh else "duplicate", "id": outcome.id})
        assert isinstance(outcome, Recorded)
        return JSONResponse({"status": "recorded", "reason": outcome.reason})
