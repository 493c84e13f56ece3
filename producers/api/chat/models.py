"""The agents of a deployment as the models that callers may choose from."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from producers.api.chat.form import model_of, refused
from producers.api.keys import ApiKeys, Caller
from shared.messages import Source
from shared.platforms.api import NAME
from shared.routing import agent_for
from shared.session_key import MAIN
from shared.settings import Settings


class Models:
    """A key sees every agent, unless a rule of ROUTING sends all that comes with it to one."""

    def __init__(self, settings: Settings, keys: ApiKeys) -> None:
        self._settings = settings
        self._keys = keys
        self._since = int(time.time())

    async def list(self, request: Request) -> Response:
        caller = self._keys.check(request, "chat")
        models = [model_of(name, self._since) for name in self.of(caller)]
        return JSONResponse({"object": "list", "data": models})

    async def get(self, request: Request) -> Response:
        caller, name = self._keys.check(request, "chat"), request.path_params["id"]
        return JSONResponse(model_of(name, self._since)) if name in self.of(caller) else no_such_model(name)

    def of(self, caller: Caller) -> tuple[str, ...]:
        """The agents that a caller may choose from, the usual one first."""
        ruled = agent_for(Source(NAME, "", account=caller.name), self._settings)
        return (ruled,) if ruled != MAIN else (MAIN, *self._settings.agents)


def no_such_model(name: str) -> Response:
    return refused(404, f"There is no model {name!a:.80}; GET /v1/models lists them.")
