"""Traces of messages, by OpenTelemetry. Off unless TRACE__ENABLED: then `active` is None, nothing is imported, and a stage
pays one comparison.

| span | kind | begins |
|---|---|---|
| `receive <platform>` | SERVER | a trace, for the sampled part of messages |
| `send turns` | PRODUCER | when a message is accepted; its `traceparent` travels in the message's record |
| `process turns` | CONSUMER | a trace of its own that links to the message's, or with TRACE__JOIN a part of that |
| `fetch files`, `invoke_agent`, `commit` | INTERNAL | inside a turn |
| `chat <model>`, `execute_tool <tool>` | CLIENT, INTERNAL | inside `invoke_agent` |
| `process deliveries` | CONSUMER | links to the commit that decided the reply, whose `traceparent` its record holds |
| `send <platform>` | CLIENT | inside a delivery |

We draw ourselves which messages are sampled, once, where they come in: a message that is not has no spans at all, instead of
six that the SDK drops at 7 µs each. No text is ever recorded, and a session key only as a keyed hash.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar, Token
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any

from shared import VERSION, log
from shared.errors import ConfigurationError
from shared.value import value

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

    from shared.pipeline import Pipeline
    from shared.settings.watching import TraceBlock

SECRET = "trace_key"
_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-01")
_ORDINARY_NAME = re.compile(r"[\w./:-]{1,64}", re.ASCII)


@value
class SpanForm:
    """How a stage's span looks. `draws`: it may begin a trace. `follows`: it belongs to the record whose trace it is given.
    Not `holds`: what happens inside is no part of it, because it may end in another task than it began in."""

    name: str
    kind: str = "INTERNAL"
    draws: bool = False
    follows: bool = False
    holds: bool = True


SPANS: Mapping[str, SpanForm] = {
    "receive": SpanForm("receive", "SERVER", draws=True),
    "accept": SpanForm("send turns", "PRODUCER", draws=True),
    "turn": SpanForm("process turns", "CONSUMER", follows=True),
    "fetch": SpanForm("fetch files"),
    "agent": SpanForm("invoke_agent"),
    "model": SpanForm("chat", "CLIENT", holds=False),
    "tool": SpanForm("execute_tool"),
    "commit": SpanForm("commit"),
    "delivery": SpanForm("process deliveries", "CONSUMER", follows=True),
    "send": SpanForm("send", "CLIENT"),
}
_NAMED_BY_STAGE = {
    "delivery": "keyturn.platform",
    "turn": "keyturn.platform",
}  # what `about` is, where no span name says it
_current: ContextVar[Span | None] = ContextVar("span", default=None)
_decided: ContextVar[bool] = ContextVar("sampled", default=False)  # whether this task's message was drawn, or not
active: Tracing | None = None


class OpenSpan:
    """A span that has begun, or the decision that a message has none. `end` once, in the same task if it holds others."""

    __slots__ = ("_otel", "_span", "_tokens")

    def __init__(self, span: Span | None, *, holds: bool) -> None:
        self._span = span
        self._otel: Token[Any] | None = None
        self._tokens: tuple[Token[Any], ...] = ()
        if holds:
            self._tokens = (_current.set(span), _decided.set(True))
            if span is not None:
                from opentelemetry import context, trace

                self._otel = context.attach(trace.set_span_in_context(span))

    def end(self, error: BaseException | None) -> None:
        """End it. Of an error its kind is kept, and not its text, which may quote a message."""
        if self._otel is not None:
            from opentelemetry import context

            context.detach(self._otel)
        if self._tokens:
            current, decided = self._tokens
            _current.reset(current)
            _decided.reset(decided)
        if (span := self._span) is not None:
            if error is not None and not isinstance(error, GeneratorExit):
                from opentelemetry.trace import Status, StatusCode

                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR))
            span.end()


class Tracing:
    """Makes the spans of one process."""

    def __init__(self, tracer: Tracer, block: TraceBlock, key: str) -> None:
        self._tracer = tracer
        self._sample = block.sample
        self._join = block.join
        self._key = key.encode()[:64]
        self._random = Random()

    def begin(self, stage: str, about: str, trace: str | None) -> OpenSpan | None:
        """The span of a stage that begins; None where the message has none. `trace` is what its record holds."""
        form = SPANS.get(stage)
        if form is None:  # it is outside of the spans of its message
            return None
        parent = _current.get()
        if parent is None:
            if form.draws and not _decided.get():
                return OpenSpan(self._root(form, about) if self._random.random() < self._sample else None, holds=True)
            if not form.follows or (followed := _remote(trace)) is None:
                return None
            return OpenSpan(self._following(form, about, stage, followed), holds=True)
        if form.follows:
            return None  # one that is inside another already
        from opentelemetry import trace as api

        span = self._tracer.start_span(_named(form, about), api.set_span_in_context(parent), _kind(form))
        _describe(span, stage, about)
        return OpenSpan(span, holds=form.holds)

    def hashed(self, session_key: str) -> str:
        """A session key that tells conversations apart and nobody who they are."""
        return blake2b(session_key.encode(errors="replace"), digest_size=8, key=self._key).hexdigest()

    def _root(self, form: SpanForm, about: str) -> Span:
        from opentelemetry.context import Context

        return self._tracer.start_span(_named(form, about), Context(), _kind(form))

    def _following(self, form: SpanForm, about: str, stage: str, followed: Any) -> Span:
        from opentelemetry import trace as api
        from opentelemetry.context import Context

        if self._join:
            parent = api.set_span_in_context(api.NonRecordingSpan(followed), Context())
            span = self._tracer.start_span(form.name, parent, _kind(form))
        else:
            span = self._tracer.start_span(form.name, Context(), _kind(form), links=[api.Link(followed)])
        _describe(span, stage, about)
        return span


def traceparent() -> str | None:
    """What a record is given, so that whoever takes it up can say where it came from. None: it is not traced."""
    if active is None or (span := _current.get()) is None:
        return None
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


def annotate(session_key: str | None = None, **numbers: float) -> None:
    """Add to the span of the stage that runs, if there is one: `keyturn.<name>`, and the key as a hash."""
    if active is None or (span := _current.get()) is None:
        return
    if session_key is not None:
        span.set_attribute("keyturn.session", active.hashed(session_key))
    if (message := log.correlation.get()) is not None:
        span.set_attribute("keyturn.message", message)
    for name, number in numbers.items():
        span.set_attribute(f"keyturn.{name}", number)


def _named(form: SpanForm, about: str) -> str:
    """Few names in all: what a model made up is no name of a span."""
    if not about or form.name == "send turns":
        return form.name
    return f"{form.name} {about}" if _ORDINARY_NAME.fullmatch(about) else form.name


def _kind(form: SpanForm) -> Any:
    from opentelemetry.trace import SpanKind

    return SpanKind[form.kind]


def _describe(span: Span, stage: str, about: str) -> None:
    if stage == "model":
        span.set_attributes({"gen_ai.operation.name": "chat", "gen_ai.request.model": about})
    elif stage == "tool":
        span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": about[:64]})
    elif stage == "agent":
        span.set_attribute("gen_ai.operation.name", "invoke_agent")
    elif stage in _NAMED_BY_STAGE and about:
        span.set_attribute(_NAMED_BY_STAGE[stage], about)


def _remote(trace: str | None) -> Any:
    """The span that a record names; None for anything else, which a stranger may have put there."""
    if trace is None or (found := _TRACEPARENT.fullmatch(trace)) is None:
        return None
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=TraceFlags(1))


@asynccontextmanager
async def open_tracing(pipe: Pipeline, process: str, exporter: SpanExporter | None = None) -> AsyncIterator[None]:
    """Trace while the block runs, where the settings ask for it; what was recorded leaves before it ends. `exporter` stands
    in for the one that OTEL_* variables describe."""
    global active
    block = pipe.settings.trace
    if not block.enabled:
        yield
        return
    provider = _provider(process, exporter)
    active = Tracing(provider.get_tracer("keyturn", VERSION), block, await pipe.store.secrets.of(SECRET))
    try:
        yield
    finally:
        active = None
        provider.shutdown()


def _provider(process: str, exporter: SpanExporter | None) -> Any:
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        if exporter is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise ConfigurationError(f"TRACE__ENABLED needs OpenTelemetry: install keyturn[otel] ({error})") from None
    resource = Resource.create({"service.name": f"keyturn-{process.replace(' ', '-')}", "service.version": VERSION})
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
    if exporter is not None:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    else:
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)  # an agent's own library may add its spans to ours
    return provider
