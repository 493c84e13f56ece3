"""Sends spans to a collector: OpenTelemetry's exporter, with an encoder of our own for our own spans (shared/otlp.py).

Endpoint, headers, compression, certificates, timeout and retries are the exporter's, as its OTEL_* variables say. It has no
public way to send bytes, so this one knows its inside, and that of the queue before it, in the versions that the tests run with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.otlp.proto.http.version import __version__ as exporter_version
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.sdk.version import __version__ as sdk_version
from opentelemetry.trace import SpanContext, TraceFlags

from shared.otlp import encoded_request

_KNOWN = "1.45."
KNOWS_VERSIONS = exporter_version.startswith(_KNOWN) and sdk_version.startswith(_KNOWN)


class OwnSpan(Protocol):
    """A span that is none of the SDK's."""

    @property
    def context(self) -> SpanContext:
        """The queue asks it whether the span is sampled, and nothing else."""

    def encoded(self) -> bytes: ...


class SpanSender(OTLPSpanExporter):
    """Takes the SDK's spans, and our own where KNOWS_VERSIONS. An agent's own library adds the former to the latter."""

    def __init__(self, resource: Resource, scope: InstrumentationScope) -> None:
        super().__init__()
        self._resource, self._scope = _heads(resource, scope)

    def export(self, spans: Sequence[ReadableSpan | OwnSpan]) -> SpanExportResult:
        theirs = [span for span in spans if isinstance(span, ReadableSpan)]
        ours = [span.encoded() for span in spans if not isinstance(span, ReadableSpan)]
        results = []
        if theirs:
            results.append(super().export(theirs))
        if ours:
            sent = self._client.export(encoded_request(self._resource, self._scope, ours))
            results.append(SpanExportResult.SUCCESS if sent.success else SpanExportResult.FAILURE)
        return max(results, key=lambda result: result.value, default=SpanExportResult.SUCCESS)


def _heads(resource: Resource, scope: InstrumentationScope) -> tuple[bytes, bytes]:
    """What every request says beside its spans: a ResourceSpans and a ScopeSpans without spans."""
    context = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    request = encode_spans(
        [ReadableSpan("", context, resource=resource, instrumentation_scope=scope, start_time=0, end_time=0)]
    )
    [of_resource] = request.resource_spans
    [of_scope] = of_resource.scope_spans
    of_scope.ClearField("spans")
    scoped = of_scope.SerializeToString()
    of_resource.ClearField("scope_spans")
    return of_resource.SerializeToString(), scoped
