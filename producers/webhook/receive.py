"""Step 1 for the generic webhook: signature over the raw bytes, then parse, normalise, accept."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.server import http
from producers.webhook.normalise import event_id_of, normalise, parse
from shared import log, metrics, signing
from shared.clock import now_ms
from shared.door import accept
from shared.errors import Denied, Malformed
from shared.pipeline import Pipeline

PLATFORM = "webhook"


class WebhookReceiver:
    def __init__(self, pipe: Pipeline, secrets: Sequence[bytes]) -> None:
        self._pipe = pipe
        self._secrets = secrets

    async def receive(self, request: Request) -> Response:
        """2xx once the message is kept, or recorded as not understandable: sending it again would change nothing."""
        id, timestamp = _only(request, "webhook-id"), _only(request, "webhook-timestamp")
        signatures = _only(request, "webhook-signature")
        signing.check_head(id, timestamp)  # before the body is read
        signing.check_form(signatures)
        body = await http.read_unverified_body(request, self._pipe.settings)
        signing.verify(self._secrets, id, timestamp, signatures, body)
        try:
            fields = parse(body)
            acceptance = await accept(
                self._pipe, normalise(fields, PLATFORM, event_id_of(fields) or id, received_at=now_ms())
            )
        except Malformed as error:
            return await self._set_aside(id, body, str(error))
        return JSONResponse({"status": "accepted" if acceptance.fresh else "duplicate", "id": acceptance.id})

    async def _set_aside(self, id: str, body: bytes, reason: str) -> Response:
        payload = body.decode(errors="replace")
        await self._pipe.store.dead.set_aside("request", id, None, "malformed", reason, payload)
        metrics.REFUSED.labels("malformed").inc()
        log.get().warning("malformed but signed: recorded", request=id, reason=reason)
        return JSONResponse({"status": "recorded", "reason": reason})


def _only(request: Request, name: str) -> str:
    """A header that must be there once: of two, nobody could say which one was signed."""
    values = request.headers.getlist(name)
    if len(values) != 1:
        raise Denied(name)
    return values[0]
