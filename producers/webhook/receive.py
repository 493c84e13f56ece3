"""Step 1 for the generic webhook: the request is proved over its raw bytes, by Standard Webhooks or by the scheme that is set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response

from producers import message_body
from producers.heard import Event, parse_json
from producers.receiving import Receiver, Reception, secret_name
from producers.server.http import json_answer
from producers.server.route import PlatformRoute
from producers.settling import Recorded, Settled
from producers.webhook.openapi import receive_operation
from producers.webhook.proofs import WebhookProof, WebhookSigned, proof_by
from shared.door import Acceptance
from shared.errors import Malformed
from shared.messages import Inbound
from shared.pipeline import Pipeline
from shared.platforms.webhook import NAME, WebhookSettings


def routes(pipe: Pipeline) -> Iterator[PlatformRoute]:
    settings = pipe.settings.block(WebhookSettings)
    if settings.on:
        scheme = settings.verified_by
        reception = Reception(pipe, WebhookReceiver(proof_by(scheme, settings.signing_keys())))
        yield PlatformRoute(f"/webhooks/{NAME}", reception.receive, operation=receive_operation(scheme))


class WebhookReceiver(Receiver[WebhookSigned]):
    """Any of the secrets proves a request, so that a sender can rotate its own."""

    name = NAME

    def __init__(self, proof: WebhookProof) -> None:
        self._proof = proof
        self.body_is_signed = proof.needs_body

    def check_head(self, request: Request) -> WebhookSigned:
        return self._proof.head(request)

    def check_body(self, head: WebhookSigned, body: bytes) -> None:
        self._proof.check(head, body)

    def sender(self, head: WebhookSigned, body: bytes) -> str:
        return secret_name(self._proof.key(head, body))

    async def parse(self, head: WebhookSigned, body: bytes) -> Sequence[Event]:
        try:
            return (Event(head.id, parse_json(body), raw=body),)
        except Malformed as error:
            return (Event(head.id, {}, raw=body, broken=str(error)),)

    def normalise(self, event: Event, received_at: int) -> Inbound:
        event_id = message_body.event_id_of(event.fields) or event.ref  # the latter is what a header named
        if not event_id:
            raise Malformed("id is needed: in the body, or in the header that WEBHOOK__ID_HEADER names")
        return message_body.normalise(event.fields, NAME, event_id, received_at)

    def answer(self, settled: Sequence[Settled]) -> Response:
        [outcome] = settled
        if isinstance(outcome, Acceptance):
            return json_answer({"status": "accepted" if outcome.fresh else "duplicate", "id": outcome.id})
        assert isinstance(outcome, Recorded)
        return json_answer({"status": "recorded", "reason": outcome.reason})
