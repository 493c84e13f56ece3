"""The bytes of our spans say what OpenTelemetry's encoder says of the same spans."""

from __future__ import annotations

import sys
from enum import IntEnum

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, TraceFlags

from shared import spans
from shared.otlp import encoded_attributes
from shared.settings.watching import TraceBlock
from shared.span_sender import SpanSender

Value = str | int | float
INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.one_of(st.text(), INT64, st.floats(allow_nan=False), st.booleans())
CONTEXTS = st.builds(
    lambda trace_id, span_id, remote: SpanContext(trace_id, span_id, remote, TraceFlags(TraceFlags.SAMPLED)),
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.booleans(),
)
REMOTE = CONTEXTS.filter(lambda context: context.is_remote)
LONG = "ü" * 100_000


class Number(IntEnum):
    SEVEN = 7


class Caught:
    """An exporter's client that keeps what it would send."""

    def __init__(self) -> None:
        self.request = ExportTraceServiceRequest()

    def export(self, data: bytes) -> Caught:
        self.request = ExportTraceServiceRequest.FromString(data)
        return self

    success = True


@pytest.fixture(scope="module")
def tracing() -> spans.Tracing:
    return spans.Tracing("test", TraceBlock(enabled=True), "key", InMemorySpanExporter())


def ended(
    tracing: spans.Tracing,
    attributes: dict[str, Value],
    stage: str = "agent",
    about: str = "",
    parent: SpanContext | None = None,
    links: tuple[SpanContext, ...] = (),
    error: BaseException | None = None,
) -> spans.MessageSpan:
    span = spans.MessageSpan(tracing, spans._shape(stage, about), parent, links)
    span.attributes.update(attributes)
    span.end(error)
    return span


def sent(tracing: spans.Tracing, *given: spans.MessageSpan) -> ExportTraceServiceRequest:
    sender, caught = SpanSender(tracing.resource, spans._SCOPE), Caught()
    sender._client = caught  # type: ignore[assignment]
    sender.export(given)
    return caught.request


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine takes its time
@given(
    attributes=st.dictionaries(st.text(), VALUES),
    stage=st.sampled_from(sorted(spans.SPANS)),
    about=st.text(max_size=70),
    parent=st.none() | CONTEXTS,
    links=st.lists(REMOTE, max_size=3).map(tuple),
    error=st.sampled_from([None, LookupError("x"), GeneratorExit()]),
)
def test_a_span_is_sent_as_opentelemetry_would_send_it(
    tracing: spans.Tracing,
    attributes: dict[str, Value],
    stage: str,
    about: str,
    parent: SpanContext | None,
    links: tuple[SpanContext, ...],
    error: BaseException | None,
) -> None:
    span = ended(tracing, attributes, stage, about, parent, links, error)
    assert sent(tracing, span) == encode_spans([span.readable()])


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        1,
        True,
        False,
        127,
        128,
        2**63 - 1,
        -(2**63),
        0.0,
        -0.0,
        1e308,
        float("inf"),
        "",
        "\0",
        LONG,
        Number.SEVEN,
    ],
)
def test_a_value_at_an_edge_is_sent_as_opentelemetry_would_send_it(tracing: spans.Tracing, value: Value) -> None:
    span = ended(tracing, {"keyturn.value": value, LONG: value})
    assert sent(tracing, span) == encode_spans([span.readable()])


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**100])
def test_a_number_without_a_place_in_64_bits_is_left_out_as_opentelemetry_does(
    tracing: spans.Tracing, value: int
) -> None:
    span = ended(tracing, {"keyturn.before": 1, "keyturn.value": value, "keyturn.after": 2})
    assert sent(tracing, span) == encode_spans([span.readable()])


def test_of_a_text_that_is_no_unicode_the_rest_is_sent(tracing: spans.Tracing) -> None:
    """OpenTelemetry's encoder leaves the whole attribute out and logs an error."""
    span = ended(tracing, {"keyturn.value": "a\ud800b"}, "tool", "no \udfff")
    [of_resource] = sent(tracing, span).resource_spans
    [of_scope] = of_resource.scope_spans
    found = {attribute.key: attribute.value.string_value for attribute in of_scope.spans[0].attributes}
    assert found == {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "no ?", "keyturn.value": "a?b"}


def test_spans_of_one_request_stand_in_it_together(tracing: spans.Tracing) -> None:
    given = [ended(tracing, {"keyturn.n": n}) for n in range(1000)]
    assert sent(tracing, *given) == encode_spans([span.readable() for span in given])


def test_the_example_in_the_file_is_right() -> None:
    example = bytes.fromhex("4a15 0a0f") + b"keyturn.attempt" + bytes.fromhex("1202 1801")
    assert encoded_attributes([("keyturn.attempt", 1)]) == example
    assert Span.FromString(example).attributes[0].value.int_value == 1
    assert sys.modules["shared.otlp"].__doc__ and "4a 15" in sys.modules["shared.otlp"].__doc__
