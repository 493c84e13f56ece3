"""The spans of messages. Only this file and span_sender.py import OpenTelemetry, and they are imported only where TRACE__ENABLED.

A span is kept as the few values that it has. The thread that sends it makes its bytes (shared/otlp.py). Only an exporter that is
none of ours is given OpenTelemetry's `ReadableSpan`: with it, and with OpenTelemetry's encoder, a span costs three times as much.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar, Token
from functools import lru_cache
from hashlib import blake2b
from random import Random
from time import time_ns
from typing import TYPE_CHECKING, cast

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from shared import VERSION
from shared.otlp import EndedSpan, encoded_form, encoded_span
from shared.span_sender import KNOWS_VERSIONS, SpanSender
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
_left_out: ContextVar[bool] = ContextVar("left out", default=False)  # this task's message was not drawn


@value
class Shape:
    """What the spans of a stage have in common that deals with the same platform, model or tool."""

    name: str
    form: SpanForm
    attributes: Mapping[str, str]
    encoded: bytes


class MessageSpan:
    """What is recorded of a stage that runs. `end` once, in the same task if it holds others."""

    __slots__ = (
        "_began_ns", "_ended_ns", "_failed", "_links", "_parent", "_shape", "_tokens", "_tracing", "attributes", "context"
    )  # fmt: skip

    def __init__(
        self, tracing: Tracing, shape: Shape, parent: SpanContext | None, links: tuple[SpanContext, ...] = ()
    ) -> None:
        trace_id = tracing.random.getrandbits(128) or 1 if parent is None else parent.trace_id
        self.context = SpanContext(trace_id, tracing.random.getrandbits(64) or 1, is_remote=False, trace_flags=_SAMPLED)
        self.attributes: dict[str, str | int | float] = {}
        self._tracing = tracing
        self._shape = shape
        self._parent = parent
        self._links = links
        self._tokens: tuple[Token[MessageSpan | None], Token[Context]] | None = None
        if shape.form.holds:
            below_ours = trace.set_span_in_context(NonRecordingSpan(self.context))  # spans of an agent's own library
            self._tokens = (current.set(self), context.attach(below_ours))
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
        if self._tokens is not None:
            held, otel = self._tokens
            context.detach(otel)
            current.reset(held)
            self._tokens = None
        self._failed = error is not None and not isinstance(error, GeneratorExit)
        if self._failed:
            self.attributes["error.type"] = type(error).__name__
        self._ended_ns = time_ns()
        self._tracing.keep(self)

    def encoded(self) -> bytes:
        """As OTLP has it, once it has ended."""
        parent, links = self._parent, self._links
        return encoded_span(
            EndedSpan(
                (self.context.trace_id, self.context.span_id),
                None if parent is None else parent.span_id,
                parent is not None and parent.is_remote,
                self._shape.encoded,
                (self._began_ns, self._ended_ns),
                self.attributes.items(),
                [(link.trace_id, link.span_id) for link in links] if links else (),
                self._failed,
            )
        )

    def readable(self) -> ReadableSpan:
        """As the SDK has it, once it has ended."""
        return ReadableSpan(
            self._shape.name,
            self.context,
            self._parent,
            self._tracing.resource,
            {**self._shape.attributes, **self.attributes},
            links=[Link(link) for link in self._links],
            kind=self._shape.form.kind,
            instrumentation_scope=_SCOPE,
            status=_ERROR if self._failed else _UNSET,
            start_time=self._began_ns,
            end_time=self._ended_ns,
        )


class NotDrawn:
    """A message that has no spans. `end` once, in the same task."""

    __slots__ = ("_token",)

    def __init__(self) -> None:
        self._token = _left_out.set(True)

    def end(self, error: BaseException | None) -> None:
        _left_out.reset(self._token)


class Tracing:
    """Makes the spans of one process."""

    def __init__(self, process: str, block: TraceBlock, key: str, exporter: SpanExporter | None) -> None:
        self.resource = Resource.create(
            {"service.name": f"keyturn-{process.replace(' ', '-')}", "service.version": VERSION}
        )
        self._processor: SpanProcessor = (
            BatchSpanProcessor(SpanSender(self.resource, _SCOPE)) if exporter is None else SimpleSpanProcessor(exporter)
        )
        self._sends_ours = exporter is None and KNOWS_VERSIONS
        self.random = Random()
        self._sample = block.sample
        self._join = block.join
        self._key = key.encode()[:64]
        # An agent's own library may add its spans to ours.
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=self.resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._processor)
        if exporter is None:
            trace.set_tracer_provider(self._provider)

    def begin(self, stage: str, about: str, traceparent: str | None) -> MessageSpan | NotDrawn | None:
        """The span of a stage that begins; None where the message has none. `traceparent` is what its record holds."""
        form = SPANS.get(stage)
        if form is None:  # it is outside of the spans of its message
            return None
        if (inside := current.get()) is not None:  # one that follows is inside another already
            return None if form.follows else MessageSpan(self, _shape(stage, about), inside.context)
        if form.draws and not _left_out.get():
            drawn = self.random.random() < self._sample
            return MessageSpan(self, _shape(stage, about), None) if drawn else NotDrawn()
        if not form.follows or (followed := _remote(traceparent)) is None:
            return None
        parent, links = (followed, ()) if self._join else (None, (followed,))
        return MessageSpan(self, _shape(stage, about), parent, links)

    def keep(self, span: MessageSpan) -> None:
        """Have a span sent that has ended."""
        self._processor.on_end(cast(ReadableSpan, span) if self._sends_ours else span.readable())

    def hashed(self, session_key: str) -> str:
        """A session key that tells conversations apart and nobody who they are."""
        return blake2b(session_key.encode(errors="replace"), digest_size=8, key=self._key).hexdigest()

    def close(self) -> None:
        """What was recorded leaves before this returns."""
        self._provider.shutdown()


def _shape(stage: str, about: str) -> Shape:
    """Shapes are kept, but 256 at most and none with a long name: a model may make names of tools up."""
    return _kept_shape(stage, about) if len(about) <= 64 else _new_shape(stage, about)


def _new_shape(stage: str, about: str) -> Shape:
    form, attributes = SPANS[stage], _described(stage, about)
    name = _named(form, about)
    otlp_kind = form.kind.value + 1
    return Shape(name, form, attributes, encoded_form(name, otlp_kind, attributes.items()))


_kept_shape = lru_cache(256)(_new_shape)


def _named(form: SpanForm, about: str) -> str:
    """Few names in all: what a model made up is no name of a span."""
    if not about or form.follows or form.name == "send turns":
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
