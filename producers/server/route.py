"""A route as a platform offers it to the receiver."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from producers.server.http import Endpoint
from shared.pipeline import Pipeline
from shared.platforms import PLATFORMS
from shared.value import value


@value
class PlatformRoute:
    """Where a platform's requests come in. With an `operation` it is ours to describe: in /openapi.json, on the front page."""

    path: str
    endpoint: Endpoint
    method: str = "POST"
    operation: dict[str, Any] | None = None


def platform_routes(pipe: Pipeline) -> list[PlatformRoute]:
    """The routes of every platform that the settings turn on: one without its secret has none."""
    found: list[PlatformRoute] = []
    for name, facts in PLATFORMS.items():
        if facts.receives:
            offered: Iterable[PlatformRoute] = import_module(f"producers.{name}.receive").routes(pipe)
            found += offered
    return found
