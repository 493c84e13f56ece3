"""The app that mounts every receiver, and the health routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from producers.api import Api
from producers.http import answer_error
from producers.webhook.webhook import WebhookReceiver
from shared import metrics, signing
from shared.errors import PipelineError, Unavailable
from shared.gauges import render_gauges
from shared.pipeline import Pipeline


def build_app(pipe: Pipeline) -> Starlette:
    """Routes for what the settings configure: a receiver without its secret is not there at all."""
    api, health = Api(pipe), Health(pipe)
    routes = [
        Route("/healthz", health.live),
        Route("/readyz", health.ready),
        Route("/metrics", health.metrics),
        Route("/v1/messages", api.post_message, methods=["POST"]),
        Route("/v1/messages/{id}", api.get_message),
        Route("/v1/sessions/{key:path}/events", api.follow),
    ]
    if pipe.settings.webhook.secrets and pipe.settings.webhook.enabled is not False:
        receiver = WebhookReceiver(pipe, [signing.decode_secret(secret) for secret in pipe.settings.webhook.secrets])
        routes.append(Route("/webhooks/webhook", receiver.receive, methods=["POST"]))
    handlers: dict[Any, Any] = {PipelineError: answer_error, Exception: answer_error, HTTPException: _http_error}
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=_no_lifespan)


class Health:
    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe

    async def live(self, _: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def ready(self, _: Request) -> Response:
        """Red while a store is away, though messages may still be accepted: see the table in ARCHITECTURE.md."""
        redis_up = all([await server.ping() for server in self._pipe.servers.all])
        try:
            await self._pipe.store.backlog()
            database_up = True
        except Unavailable:
            database_up = False
        checks = {"redis": "up" if redis_up else "down", "database": "up" if database_up else "down"}
        return JSONResponse({"ready": redis_up and database_up, **checks}, 200 if redis_up and database_up else 503)

    async def metrics(self, _: Request) -> Response:
        return PlainTextResponse(
            metrics.render() + await render_gauges(self._pipe), media_type="text/plain; version=0.0.4"
        )


async def _http_error(_: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail.lower()}, error.status_code, error.headers)


@asynccontextmanager
async def _no_lifespan(_: Starlette) -> AsyncIterator[None]:
    yield
