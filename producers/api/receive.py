"""Step 1 for the HTTP API: a bearer key, then the message. What cannot be understood is refused: the caller is there to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from producers import message_body
from producers.api import openapi
from producers.api.chat.completions import Completions
from producers.api.chat.form import with_errors_in_form
from producers.api.chat.models import Models
from producers.api.cors import Cors
from producers.api.deliveries import ApiDeliveries
from producers.api.keys import ApiKeys, Caller
from producers.api.messages import ApiReader
from producers.api.open_requests import OpenRequests
from producers.api.scale import ApiScale
from producers.heard import Event, parse_json
from producers.receiving import Receiver, Reception
from producers.server.http import answering, json_answer
from producers.server.route import PlatformRoute
from producers.settling import Settled
from shared.door import Acceptance
from shared.messages import Inbound
from shared.pipeline import Pipeline
from shared.platforms.api import NAME, ApiSettings


def routes(pipe: Pipeline) -> Iterator[PlatformRoute]:
    """Mounted without keys too: then everybody is answered 401."""
    settings = pipe.settings.block(ApiSettings)
    if settings.enabled is False:
        return
    keys = ApiKeys(settings)
    open_requests = OpenRequests(settings.open_in_all)
    cors, models = Cors(settings.cors_origins), Models(pipe.settings, keys)
    reader, completions = ApiReader(pipe, keys, open_requests), Completions(pipe, keys, models, open_requests)
    receive = Reception(pipe, ApiReceiver(keys)).receive
    offered = (
        PlatformRoute("/v1/messages", receive, operation=openapi.POST_MESSAGE),
        PlatformRoute("/v1/deliveries", ApiDeliveries(pipe, keys).deliver, operation=openapi.POST_DELIVERY),
        PlatformRoute("/v1/messages/{id}", reader.get_message, "GET", openapi.GET_MESSAGE),
        PlatformRoute("/v1/sessions/{key:path}/events", reader.follow, "GET", openapi.FOLLOW),
        PlatformRoute("/v1/chat/completions", with_errors_in_form(completions.create), operation=openapi.COMPLETE),
        PlatformRoute("/v1/scale", ApiScale(pipe, keys).get, "GET", openapi.GET_SCALE),
        PlatformRoute("/v1/models", with_errors_in_form(models.list), "GET", openapi.LIST_MODELS),
        PlatformRoute("/v1/models/{id}", with_errors_in_form(models.get), "GET", openapi.GET_MODEL),
    )
    for route in offered:
        yield replace(route, endpoint=cors.around(answering(route.endpoint)))
        if cors.on:
            yield PlatformRoute(route.path, cors.around(cors.preflight), "OPTIONS", openapi.PREFLIGHT)


class ApiReceiver(Receiver[Caller]):
    """202 once the message is kept, 200 when it was before."""

    name = NAME
    body_is_signed = False
    records_malformed = False

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

    def check_head(self, request: Request) -> Caller:
        return self._keys.check(request, "messages")

    def sender(self, head: Caller, body: bytes) -> str:
        return head.sender

    async def parse(self, head: Caller, body: bytes) -> Sequence[Event]:
        fields = parse_json(body)
        return (Event(message_body.event_id_of(fields) or f"evt_{uuid4().hex}", fields, account=head.name),)

    def normalise(self, event: Event, received_at: int) -> Inbound:
        return message_body.normalise(event.fields, NAME, event.ref, received_at, event.account)

    def answer(self, settled: Sequence[Settled]) -> Response:
        [acceptance] = settled
        assert isinstance(acceptance, Acceptance)
        body = {"id": acceptance.id, "state": acceptance.state, "session_key": acceptance.session_key}
        return json_answer(body, 202 if acceptance.fresh else 200)
