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

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from shared import log
from shared.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from shared.pipeline import Pipeline
    from shared.spans import MessageSpan, Tracing

SECRET = "trace_key"
current: ContextVar[MessageSpan | None] = ContextVar("span", default=None)
active: Tracing | None = None


def traceparent() -> str | None:
    """What a record is given, so that whoever takes it up can say where it came from. None: it is not traced."""
    if active is None or (span := current.get()) is None:
        return None
    return span.traceparent


def annotate(session_key: str | None = None, **numbers: float) -> None:
    """Add to the span of the stage that runs, if there is one: `keyturn.<name>`, and the key as a hash."""
    if active is None or (span := current.get()) is None:
        return
    span.annotate(session_key, log.correlation.get(), numbers)


@asynccontextmanager
async def open_tracing(pipe: Pipeline, process: str, exporter: SpanExporter | None = None) -> AsyncIterator[None]:
    """Trace while the block runs, where the settings ask for it; what was recorded leaves before it ends. `exporter` stands
    in for the one that OTEL_* variables describe."""
    global active
    block = pipe.settings.trace
    if not block.enabled:
        yield
        return
    try:
        from shared.spans import Tracing
    except ImportError as error:
        raise ConfigurationError(f"TRACE__ENABLED needs OpenTelemetry: install keyturn[otel] ({error})") from None
    active = tracing = Tracing(process, block, await pipe.store.secrets.of(SECRET), exporter)
    try:
        yield
    finally:
        active = None
        tracing.close()
