"""The app that mounts every receiver, and the health routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from producers.server import http
from producers.server.dispatch import ReceiverApp
from producers.server.openapi import OPERATIONS, describe
from producers.server.route import platform_routes
from producers.server.unverified import UnverifiedRequests
from shared import VERSION, metrics
from shared.errors import PipelineError
from shared.pipeline import Pipeline
from shared.reading.gauges import GaugeCollector

LOOK_SECONDS = 8.0  # how long a store may take before a health route goes on without it


def build_app(pipe: Pipeline) -> ReceiverApp:
    """The app with its routes."""
    handlers: dict[Any, Any] = {HTTPException: _no_route}
    app = ReceiverApp(exception_handlers=handlers, lifespan=_no_lifespan)
    app.state.stopping = asyncio.Event()  # set when open streams should end
    app.state.unverified = UnverifiedRequests()
    mount(app, pipe)
    return app


def mount(app: ReceiverApp, pipe: Pipeline) -> None:
    """Routes for what the settings configure, instead of those that are there: a receiver without its secret is not there
    at all. Requests that were begun end with the settings that they began with."""
    app.replace_routes(_routes(pipe))


def _routes(pipe: Pipeline) -> list[Route]:
    health, ours = Health(pipe), platform_routes(pipe)
    described = [route for route in ours if route.operation is not None]
    routes = [
        _route("/healthz", health.live),
        _route("/readyz", health.ready),
        _route("/metrics", health.metrics),
        *(_route(route.path, route.endpoint, route.method) for route in described),
    ]
    operations = {(route.path, route.method): route.operation for route in described if route.operation is not None}
    description = describe({**OPERATIONS, **operations})

    async def openapi(_: Request) -> Response:
        return JSONResponse(description)

    routes.append(_route("/openapi.json", openapi))
    routes.append(_route("/", _front_page(routes)))
    routes += (_route(route.path, route.endpoint, route.method) for route in ours if route.operation is None)
    return routes


class Health:
    """The routes /healthz, /readyz and /metrics. All answer while stores are away."""

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        self._gauges = GaugeCollector(pipe)

    async def live(self, _: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def ready(self, _: Request) -> Response:
        """Red while a store is away, though messages may still be accepted: see docs/architecture.md, "Durability". A Redis
        server that is drained is not needed."""
        servers = self._pipe.servers
        needed = [server for server in servers.all if server not in servers.draining]
        *redis_up, database_up = await asyncio.gather(*(server.ping() for server in needed), self._database_up())
        checks = {"redis": "up" if all(redis_up) else "down", "database": "up" if database_up else "down"}
        ready = all(redis_up) and database_up
        return JSONResponse({"ready": ready, **checks}, 200 if ready else 503)

    async def metrics(self, _: Request) -> Response:
        gauges = await self._gauges.render()  # first: what it could not read is counted
        return PlainTextResponse(metrics.render() + gauges, media_type="text/plain; version=0.0.4")

    async def _database_up(self) -> bool:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._pipe.store.overview.counts(1)
        except (PipelineError, TimeoutError):
            return False
        return True


def _route(path: str, endpoint: http.Endpoint, method: str = "GET") -> Route:
    return Route(path, http.answering(endpoint), methods=[method])


def _front_page(routes: list[Route]) -> http.Endpoint:
    """What there is, for a person who opens the address in a browser."""
    lines = [
        f"{method:<5} {route.path}" for route in routes for method in sorted(route.methods or ()) if method != "HEAD"
    ]
    text = "\n".join(
        [f"Keyturn {VERSION}", "", *lines, "", "/openapi.json describes what takes and gives messages.", ""]
    )

    async def front_page(_: Request) -> Response:
        return PlainTextResponse(text)

    return front_page


async def _no_route(request: Request, error: HTTPException) -> Response:
    response = http.refusal(request, error.status_code, error.detail.lower(), "no route")
    response.headers.update(error.headers or {})
    return response


@asynccontextmanager
async def _no_lifespan(_: Starlette) -> AsyncIterator[None]:
    yield
