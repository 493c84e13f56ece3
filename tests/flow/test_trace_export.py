"""Traces on their way to a collector: what OTEL_* variables promise, whoever encodes the spans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry import trace

from shared import span_sender, spans, tracing
from shared.pipeline import open_pipeline
from shared.settings import Settings
from shared.settings.watching import TraceBlock
from shared.stages import stage
from tests.support.collector import Collector, open_collector

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with open_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.url)
        yield collector


@pytest.fixture
def exporting(make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Tracing as a worker opens it. What was recorded has left when it ends."""
    monkeypatch.setattr(trace, "set_tracer_provider", lambda _: None)  # it can be set once in a process

    @asynccontextmanager
    async def opened(**variables: str) -> AsyncIterator[None]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        settings = make_settings(trace=TraceBlock(enabled=True, sample=1.0))
        async with open_pipeline(settings) as pipe, tracing.open_tracing(pipe, "work"):
            yield

    return opened


def a_message(count: int = 1) -> None:
    for _ in range(count):
        with stage("receive", "api"), stage("accept"):
            tracing.annotate("key", attempt=1)


def test_the_installed_versions_are_those_whose_inside_we_know(database_url: str) -> None:
    assert span_sender.KNOWS_VERSIONS


@pytest.mark.parametrize("known", [True, False])
async def test_spans_reach_the_collector_with_any_version_of_the_exporter(
    collector: Collector, exporting: Any, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    by_ours, encoded = list[spans.MessageSpan](), spans.MessageSpan.encoded

    def counted(span: spans.MessageSpan) -> bytes:
        by_ours.append(span)
        return encoded(span)

    monkeypatch.setattr(spans.MessageSpan, "encoded", counted)
    monkeypatch.setattr(spans, "KNOWS_VERSIONS", known)
    async with exporting():
        a_message()
    assert len(by_ours) == (2 if known else 0)
    accept, receive = collector.spans()
    assert (accept.name, receive.name) == ("send turns", "receive api")
    assert accept.parent_span_id == receive.span_id and accept.trace_id == receive.trace_id
    assert [attribute.key for attribute in accept.attributes] == ["keyturn.session", "keyturn.attempt"]
    [of_resource] = collector.taken[0].resource_spans
    said = {attribute.key: attribute.value.string_value for attribute in of_resource.resource.attributes}
    assert said["service.name"] == "keyturn-work"
    assert of_resource.scope_spans[0].scope.name == "keyturn"


@pytest.mark.parametrize("compression", ["none", "gzip", "deflate"])
async def test_headers_and_compression_are_those_of_the_variables(
    collector: Collector, exporting: Any, compression: str
) -> None:
    async with exporting(
        OTEL_EXPORTER_OTLP_HEADERS="x-team=chat,authorization=Bearer%20s3cret",
        OTEL_EXPORTER_OTLP_COMPRESSION=compression,
    ):
        a_message()
    [headers] = collector.headers
    assert headers["x-team"] == "chat" and headers["authorization"] == "Bearer s3cret"
    assert headers["content-type"] == "application/x-protobuf"
    assert headers.get("content-encoding", "none") == compression
    assert len(collector.spans()) == 2


@pytest.mark.parametrize("status", [429, 503])
async def test_a_collector_that_is_busy_is_asked_again(collector: Collector, exporting: Any, status: int) -> None:
    collector.answers += [status, status]
    async with exporting():
        a_message()
        assert tracing.active is not None
        tracing.active._processor.force_flush()  # at the end, nothing is tried again
    assert len(collector.headers) == 3 and len(collector.spans()) == 2


async def test_a_collector_that_refuses_is_not_asked_again(collector: Collector, exporting: Any) -> None:
    collector.answers += [400]
    async with exporting():
        a_message()
    assert len(collector.headers) == 1 and not collector.spans()


async def test_a_request_has_as_many_spans_as_the_variable_allows(collector: Collector, exporting: Any) -> None:
    async with exporting(OTEL_BSP_MAX_EXPORT_BATCH_SIZE="3"):
        a_message(5)
    sizes = [len(sent.resource_spans[0].scope_spans[0].spans) for sent in collector.taken]
    assert max(sizes) == 3 and sum(sizes) == 10


async def test_a_span_of_an_agents_own_library_is_sent_below_ours(collector: Collector, exporting: Any) -> None:
    async with exporting():
        assert tracing.active is not None
        library = tracing.active._provider.get_tracer("a library")
        with stage("receive", "api"), library.start_as_current_span("theirs") as span:
            span.add_event("seen", {"list": ["a", "b"], "none": []})
    found = {span.name: span for span in collector.spans()}
    assert set(found) == {"receive api", "theirs"}
    assert found["theirs"].parent_span_id == found["receive api"].span_id
    assert found["theirs"].events[0].name == "seen"
