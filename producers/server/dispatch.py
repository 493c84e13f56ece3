"""The app of a receiver: what is posted to a known path is answered here, and everything else by Starlette's routes.

Starlette tries one route after another and wraps each call four times, which took 20 µs of CPU instead of 4.
See docs/decisions/posts-are-dispatched-by-path.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from producers.server.http import Endpoint


class ReceiverApp(Starlette):
    """Starlette's app, with a short way for POST routes whose path has no parameters. Their endpoints raise nothing:
    `http.answering` is around each."""

    _posts: Mapping[str, Endpoint] = {}

    def replace_routes(self, routes: Iterable[Route]) -> None:
        """Offer these routes instead of those before. Requests that were begun end as they began."""
        offered = list[Route](routes)
        posts = [route for route in offered if route.methods == {"POST"} and not route.param_convertors]
        self.router.routes = list[BaseRoute](offered)
        self._posts = {route.path: route.endpoint for route in reversed(posts)}  # of two, the first counts, as above

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        posted = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self._posts.get(scope["path"]) if posted else None
        if endpoint is None:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)
