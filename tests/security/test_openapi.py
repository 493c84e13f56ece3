"""The description at /openapi.json is true: schemathesis makes requests from it and holds the answers of a real receiver to it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.applications import Starlette

from producers.server.app import build_app
from shared.embedded import child
from shared.pipeline import Pipeline
from shared.settings import Settings
from tests.support.door import API_KEY
from tests.support.outage import start_process

SECONDS = 20.0  # for all operations together; when they are over, fewer examples were tried
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
KEY = {"authorization": f"Bearer {API_KEY}"}


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    process = start_process(settings, "receive", "--port", "0", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    worker = start_process(settings, "work", stderr=subprocess.DEVNULL)  # a chat completion waits for its answer
    try:
        assert process.stdout is not None
        yield process.stdout.readline().decode().removeprefix("ready ").strip()
    finally:
        child.stop(process, signal.SIGTERM, 20)
        child.stop(worker, signal.SIGTERM, 20)


def test_every_operation_answers_as_described_whatever_is_asked(url: str, subtests: pytest.Subtests) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    assert len(operations) >= 7
    for operation in operations:
        with subtests.test(operation.label):
            # The good and the bad are both to be among them.
            wanted = frozenset({202, 401, 422} if operation.label == "POST /v1/messages" else ())
            assert _ask(operation, url, time.monotonic() + SECONDS / len(operations), wanted) >= wanted


def _ask(operation: Any, url: str, until: float, wanted: frozenset[int] = frozenset()) -> set[int]:
    """The statuses that came, each with an answer that fits the description. `wanted` ones are waited for."""
    statuses: set[int] = set()
    with requests.Session() as session:
        session.trust_env = False

        @hypothesis_settings(
            max_examples=60,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
        def ask(case: Any) -> None:
            if time.monotonic() > until and statuses >= wanted:
                return
            keys = [KEY, {}] if "/v1/" in operation.label else [{}]
            for key in keys:
                kwargs = case.as_transport_kwargs(base_url=url)
                kwargs["headers"] = {**dict(kwargs["headers"]), **key}
                with session.request(**kwargs, stream=True, timeout=60) as response:
                    statuses.add(response.status_code)
                    if response.status_code == 200 and "event-stream" in response.headers["content-type"]:
                        continue  # it goes on for ever
                    case.validate_response(response, checks=CHECKS)

        ask()
    return statuses


async def test_the_description_names_the_routes_that_are_there_and_no_others(pipe: Pipeline) -> None:
    app = build_app(pipe)
    document = await _document(app)
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    there = {
        (route.path.replace(":path", ""), method)  # type: ignore[attr-defined]
        for route in app.routes
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
    }
    assert described == there - {("/openapi.json", "GET"), ("/", "GET")}


async def _document(app: Starlette) -> Any:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return (await client.get("/openapi.json")).json()
