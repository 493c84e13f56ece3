"""What is posted to a known path is answered without Starlette's routes; everything else by them."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from producers.server.dispatch import ReceiverApp
from producers.server.http import Endpoint, answering


def saying(text: str) -> Endpoint:
    async def answer(request: Request) -> Response:
        return PlainTextResponse(f"{text} {request.path_params.get('id', '')}".strip())

    return answering(answer)


def route(path: str, text: str, method: str = "POST") -> Route:
    return Route(path, saying(text), methods=[method])


async def answer_of(app: Starlette, method: str, path: str) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [], "root_path": ""}
    await app(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


def routes() -> list[Route]:
    return [
        route("/hook", "posted"),
        route("/hook", "asked", "GET"),
        route("/hook", "posted, but listed later"),
        route("/hook/{id}", "with parameter"),
        route("/page", "page", "GET"),
    ]


@pytest.fixture
def app() -> ReceiverApp:
    app = ReceiverApp()
    app.replace_routes(routes())
    return app


@pytest.mark.parametrize("method", ["POST", "GET", "HEAD", "PUT", "post"])
@pytest.mark.parametrize("path", ["/hook", "/hook/", "/hook/7", "/page", "/nowhere", "/HOOK", "", "/hook\n", "//hook"])
async def test_every_request_is_answered_as_by_starlette_alone(app: ReceiverApp, method: str, path: str) -> None:
    alone = Starlette(routes=routes())
    assert await answer_of(app, method, path) == await answer_of(alone, method, path)


async def test_what_is_posted_to_a_known_path_passes_no_route(
    app: ReceiverApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tried(*_: object) -> None:
        raise AssertionError("a route was tried")

    monkeypatch.setattr(Route, "matches", tried)
    assert await answer_of(app, "POST", "/hook") == (200, b"posted")


async def test_routes_that_were_replaced_are_gone(app: ReceiverApp) -> None:
    app.replace_routes([route("/other", "other")])
    assert await answer_of(app, "POST", "/hook") == (404, b"Not Found")
    assert await answer_of(app, "POST", "/other") == (200, b"other")
