"""The spans of messages. Only this file imports OpenTelemetry, and it is imported only where TRACE__ENABLED.

A span is kept as the few values that it has, and becomes OpenTelemetry's when it ends. A span of the SDK costs four times as much,
because it has locks, limits and lists of events that ours do not need.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar, Token
from hashlib import blake2b
from random import Random
from time import time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from shared import VERSION
from shared.tracing import current
from shared.value import value

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from shared.settings.watching import TraceBlock

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-01")
_ORDINARY_NAME = re.compile(r"[\w./:-]{1,64}", re.ASCII)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID)
_UNSET, _ERROR = Status(StatusCode.UNSET), Status(StatusCode.ERROR)
_SCOPE = InstrumentationScope("keyturn", VERSION)


@value
class SpanForm:
    """How a stage's span looks. `draws`: it may begin a trace. `follows`: it belongs to the record whose trace it is given.
    Not `holds`: what happens inside is no part of it, because it may end in another task than it began in."""

    name: str
    kind: SpanKind = SpanKind.INTERNAL
    draws: bool = False
    follows: bool = False
    holds: bool = True


SPANS: Mapping[str, SpanForm] = {
    "receive": SpanForm("receive", SpanKind.SERVER, draws=True),
    "accept": SpanForm("send turns", SpanKind.PRODUCER, draws=True),
    "turn": SpanForm("process turns", SpanKind.CONSUMER, follows=True),
    "fetch": SpanForm("fetch files"),
    "agent": SpanForm("invoke_agent"),
    "model": SpanForm("chat", SpanKind.CLIENT, holds=False),
    "tool": SpanForm("execute_tool"),
    "commit": SpanForm("commit"),
    "delivery": SpanForm("process deliveries", SpanKind.CONSUMER, follows=True),
    "send": SpanForm("send", SpanKind.CLIENT),
}
_decided: ContextVar[bool] = ContextVar("sampled", default=False)  # whether this task's message was drawn, or not


class MessageSpan:
    """What is recorded of a stage that runs."""

    __slots__ = ("_began_ns", "_kind", "_links", "_name", "_parent", "_tracing", "attributes", "context")

    def __init__(
        self, tracing: Tracing, form: SpanForm, about: str, parent: SpanContext | None, links: tuple[Link, ...] = ()
    ) -> None:
        trace_id = tracing.random.getrandbits(128) or 1 if parent is None else parent.trace_id
        self.context = SpanContext(trace_id, tracing.random.getrandbits(64) or 1, is_remote=False, trace_flags=_SAMPLED)
        self.attributes: dict[str, str | int | float] = {}
        self._tracing = tracing
        self._name = _named(form, about)
        self._kind = form.kind
        self._parent = parent
        self._links = links
        self._began_ns = time_ns()

    @property
    def traceparent(self) -> str:
        return f"00-{self.context.trace_id:032x}-{self.context.span_id:016x}-01"

    def annotate(self, session_key: str | None, message: str | None, numbers: Mapping[str, float]) -> None:
        if session_key is not None:
            self.attributes["keyturn.session"] = self._tracing.hashed(session_key)
        if message is not None:
            self.attributes["keyturn.message"] = message
        for name, number in numbers.items():
            self.attributes[f"keyturn.{name}"] = number

    def end(self, error: BaseException | None) -> None:
        """End it. Of an error its kind is kept, and not its text, which may quote a message."""
        failed = error is not None and not isinstance(error, GeneratorExit)
        if failed:
            self.attributes["error.type"] = type(error).__name__
        self._tracing.processor.on_end(
            ReadableSpan(
                self._name,
                self.context,
                self._parent,
                self._tracing.resource,
                self.attributes,
                links=self._links,
                kind=self._kind,
                instrumentation_scope=_SCOPE,
                status=_ERROR if failed else _UNSET,
                start_time=self._began_ns,
                end_time=time_ns(),
            )
        )


class OpenSpan:
    """A span that has begun, or the decision that a message has none. `end` once, in the same task if it holds others."""

    __slots__ = ("_otel", "_span", "_tokens")

    def __init__(self, span: MessageSpan | None, *, holds: bool) -> None:
        self._span = span
        self._otel: Token[Any] | None = None
        self._tokens: tuple[Token[Any], ...] = ()
        if holds:
            self._tokens = (current.set(span), _decided.set(True))
            if span is not None:  # an agent's own library adds its spans below ours
                self._otel = context.attach(trace.set_span_in_context(NonRecordingSpan(span.context)))

    def end(self, error: BaseException | None) -> None:
        if self._otel is not None:
            context.detach(self._otel)
        if self._tokens:
            span, decided = self._tokens
            current.reset(span)
            _decided.reset(decided)
        if self._span is not None:
            self._span.end(error)


class Tracing:
    """Makes the spans of one process."""

    def __init__(self, process: str, block: TraceBlock, key: str, exporter: SpanExporter | None) -> None:
        self.resource = Resource.create(
            {"service.name": f"keyturn-{process.replace(' ', '-')}", "service.version": VERSION}
        )
        self.processor: SpanProcessor = (
            BatchSpanProcessor(OTLPSpanExporter()) if exporter is None else SimpleSpanProcessor(exporter)
        )
        self.random = Random()
        self._sample = block.sample
        self._join = block.join
        self._key = key.encode()[:64]
        # An agent's own library may add its spans to ours.
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=self.resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self.processor)
        if exporter is None:
            trace.set_tracer_provider(self._provider)

    def begin(self, stage: str, about: str, traceparent: str | None) -> OpenSpan | None:
        """The span of a stage that begins; None where the message has none. `traceparent` is what its record holds."""
        form = SPANS.get(stage)
        if form is None:  # it is outside of the spans of its message
            return None
        inside = current.get()
        if inside is None:
            if form.draws and not _decided.get():
                drawn = self.random.random() < self._sample
                return OpenSpan(MessageSpan(self, form, about, None) if drawn else None, holds=True)
            if not form.follows or (followed := _remote(traceparent)) is None:
                return None
            parent, links = (followed, ()) if self._join else (None, (Link(followed),))
            span = MessageSpan(self, form, "", parent, links)
        elif form.follows:
            return None  # one that is inside another already
        else:
            span = MessageSpan(self, form, about, inside.context)
        span.attributes.update(_described(stage, about))
        return OpenSpan(span, holds=form.holds)

    def hashed(self, session_key: str) -> str:
        """A session key that tells conversations apart and nobody who they are."""
        return blake2b(session_key.encode(errors="replace"), digest_size=8, key=self._key).hexdigest()

    def close(self) -> None:
        """What was recorded leaves before this returns."""
        self._provider.shutdown()


def _named(form: SpanForm, about: str) -> str:
    """Few names in all: what a model made up is no name of a span."""
    if not about or form.name == "send turns":
        return form.name
    return f"{form.name} {about}" if _ORDINARY_NAME.fullmatch(about) else form.name


def _described(stage: str, about: str) -> dict[str, str]:
    match stage:
        case "model":
            return {"gen_ai.operation.name": "chat", "gen_ai.request.model": about}
        case "tool":
            return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": about[:64]}
        case "agent":
            return {"gen_ai.operation.name": "invoke_agent"}
        case "turn" | "delivery" if about:  # no name of theirs says it
            return {"keyturn.platform": about}
    return {}


def _remote(traceparent: str | None) -> SpanContext | None:
    """The span that a record names; None for anything else, which a stranger may have put there."""
    if traceparent is None or (found := _TRACEPARENT.fullmatch(traceparent)) is None:
        return None
    return SpanContext(int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
