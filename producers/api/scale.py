"""GET /v1/scale: the numbers that an autoscaler of workers needs, without Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.api.keys import ApiKeys
from shared.pipeline import Pipeline
from shared.reading.scale import work_to_scale


class ApiScale:
    """Speaks for the whole deployment, whichever receiver is asked."""

    def __init__(self, pipe: Pipeline, keys: ApiKeys) -> None:
        self._pipe = pipe
        self._keys = keys

    async def get(self, request: Request) -> Response:
        """Needs a key with the scope `scale`. 503 while a Redis server is away: the scaler then keeps what it has."""
        self._keys.check(request, "scale")
        found = await work_to_scale(self._pipe)
        numbers = {"work": found.work, "running": found.running, "ready": found.ready}
        return JSONResponse({**numbers, "ready_seconds": found.ready_seconds})
