"""Step 1 for the generic webhook: signature over the raw bytes, then parse, normalise, accept."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers import http
from producers.intake import accept
from producers.webhook.normalise import normalise, parse
from shared import log, metrics, signing
from shared.clock import now_ms
from shared.errors import Denied, Malformed
from shared.pipeline import Pipeline

PLATFORM = "webhook"


class WebhookReceiver:
    def __init__(self, pipe: Pipeline, secrets: Sequence[bytes]) -> None:
        self._pipe = pipe
        self._secrets = secrets

    async def receive(self, request: Request) -> Response:
        """2xx once the message is kept, or recorded as not understandable: sending it again would change nothing."""
        headers = request.headers
        id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        signatures = headers.get("webhook-signature", "")
        if not (id and timestamp and signatures):
            raise Denied("headers")  # before the body is read
        body = await http.read_body(request, self._pipe.settings)
        signing.verify(self._secrets, id, timestamp, signatures, body)
        try:
            fields = parse(body)
            event_id = fields.setdefault("id", id)
            if event_id != id and not isinstance(event_id, str):
                raise Malformed("id is not text")
            inbound = normalise(fields, PLATFORM, id, now_ms())
            acceptance = await accept(self._pipe, inbound)
        except Malformed as error:
            metrics.REFUSED.labels("malformed").inc()
            log.get().warning("malformed but signed: recorded", reason=str(error))
            await self._pipe.store.dead.set_aside(
                "request", id, None, "malformed", str(error), body.decode(errors="replace")
            )
            return JSONResponse({"status": "recorded", "reason": str(error)})
        return JSONResponse({"status": "accepted" if acceptance.fresh else "duplicate", "id": acceptance.id})
