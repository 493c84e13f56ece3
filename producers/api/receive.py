"""Step 1 for the HTTP API: a bearer key, then the message. What cannot be understood is refused: the caller is there to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.api import openapi
from producers.api.keys import ApiKeys
from producers.api.messages import ApiReader
from producers.api.normalise import normalise
from producers.heard import Event, parse_json
from producers.message_body import event_id_of
from producers.receiving import Receiver, Reception
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
    keys = ApiKeys(settings.keys)
    reader = ApiReader(pipe, keys)
    yield PlatformRoute("/v1/messages", Reception(pipe, ApiReceiver(keys)).receive, operation=openapi.POST_MESSAGE)
    yield PlatformRoute("/v1/messages/{id}", reader.get_message, "GET", openapi.GET_MESSAGE)
    yield PlatformRoute("/v1/sessions/{key:path}/events", reader.follow, "GET", openapi.FOLLOW)


class ApiReceiver(Receiver[None]):
    """202 once the message is kept, 200 when it was before."""

    name = NAME
    body_is_signed = False
    records_malformed = False

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

    def check_head(self, request: Request) -> None:
        self._keys.check(request)

    async def parse(self, head: None, body: bytes) -> Sequence[Event]:
        fields = parse_json(body)
        return (Event(event_id_of(fields) or f"evt_{uuid4().hex}", fields),)

    def normalise(self, event: Event, received_at: int) -> Inbound:
        return normalise(event, received_at)

    def answer(self, settled: Sequence[Settled]) -> Response:
        [acceptance] = settled
        assert isinstance(acceptance, Acceptance)
        body = {"id": acceptance.id, "state": acceptance.state, "session_key": acceptance.session_key}
        return JSONResponse(body, 202 if acceptance.fresh else 200)
