"""Traces: the spans of a message and how they belong together, read from an exporter in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from shared import spans, tracing
from shared.lane_key import Destination
from shared.mail import decode_mail, encode_mail
from shared.messages import Inbound
from shared.pipeline import open_pipeline
from shared.settings import Settings
from shared.settings.watching import TraceBlock
from shared.stages import STAGES, stage
from tests.flow.test_tools import calling, config, says
from tests.support.openai import MODEL, a_call, open_provider
from tests.support.pipe import Rig, an_inbound, key_of
from tests.support.place import ROOT
from workers.agents.llm import LlmAgent
from workers.delivery.deliver import deliver_parts
from workers.process.parts import open_parts

SECRET_TEXT = "the canary sings"


@dataclass
class Traced:
    """A pipeline that traces, and what it has recorded."""

    rig: Rig
    exporter: InMemorySpanExporter

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    async def answer(self, text: str = "hello", *, receive: bool = True) -> None:
        """A message from its receiver to its delivery."""
        if receive:
            with stage("receive", "api"):
                await self.rig.accept(text, platform="api")
        else:
            await self.rig.accept(text, platform="api")
        await self.rig.run_turns(key_of(platform="api"))
        async with open_parts(self.rig.pipe, self.rig.agent, "test") as parts:
            _, lease = await self.rig.start(self.rig.pipe.deliveries, str(Destination("api", "", "c1")))
            assert lease is not None
            await deliver_parts(lease, parts.deliveries)


@pytest.fixture
def tracing_pipe(make_settings: Callable[..., Settings]) -> Any:
    @asynccontextmanager
    async def opened(**block: Any) -> AsyncIterator[Traced]:
        exporter = InMemorySpanExporter()
        settings = make_settings(trace=TraceBlock(enabled=True, **{"sample": 1.0, **block}))
        async with open_pipeline(settings) as pipe, tracing.open_tracing(pipe, "test", exporter):
            yield Traced(Rig(pipe), exporter)

    return opened


def parent_of(span: ReadableSpan, spans: dict[str, ReadableSpan]) -> str | None:
    names = {found.context.span_id: name for name, found in spans.items() if found.context is not None}
    return names.get(span.parent.span_id) if span.parent is not None else None


def linked_to(span: ReadableSpan, spans: dict[str, ReadableSpan]) -> list[str]:
    names = {found.context.span_id: name for name, found in spans.items() if found.context is not None}
    return [names[link.context.span_id] for link in span.links]


async def test_a_message_with_a_tool_call_has_its_spans_linked_as_documented(tracing_pipe: Any) -> None:
    async with (
        open_provider(answer=says(calling(a_call("add", '{"a": 2, "b": 3}')), "It is 5.")) as provider,
        tracing_pipe() as traced,
    ):
        traced.rig.agent = LlmAgent(config(provider))
        await traced.answer(SECRET_TEXT)
        spans = traced.spans()
    belongs = {name: parent_of(span, spans) for name, span in spans.items()}
    assert belongs == {
        "receive api": None,
        "send turns": "receive api",
        "process turns": None,
        "invoke_agent": "process turns",
        f"chat {MODEL}": "invoke_agent",
        "execute_tool add": "invoke_agent",
        "commit": "process turns",
        "process deliveries": None,
        "send api": "process deliveries",
    }
    assert linked_to(spans["process turns"], spans) == ["send turns"]
    assert linked_to(spans["process deliveries"], spans) == ["commit"]
    traces = {name: span.context.trace_id for name, span in spans.items() if span.context is not None}
    assert len({traces[name] for name in ("receive api", "process turns", "process deliveries")}) == 3
    kinds = {"receive api": SpanKind.SERVER, "send turns": SpanKind.PRODUCER, "process turns": SpanKind.CONSUMER}
    assert all(spans[name].kind is kind for name, kind in kinds.items())
    turn = dict(spans["process turns"].attributes or {})
    assert turn["keyturn.attempt"] == 1 and "keyturn.wait_worker_ms" in turn and turn["keyturn.platform"] == "api"
    everything = " ".join(span.to_json() for span in spans.values())
    assert SECRET_TEXT not in everything and "It is 5." not in everything
    assert key_of(platform="api") not in everything and turn["keyturn.session"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_joined_a_message_is_one_trace(tracing_pipe: Any) -> None:
    async with tracing_pipe(join=True) as traced:
        await traced.answer()
        spans = traced.spans()
    assert len({span.context.trace_id for span in spans.values()}) == 1
    assert parent_of(spans["process turns"], spans) == "send turns"
    assert parent_of(spans["process deliveries"], spans) == "commit"
    assert not any(span.links for span in spans.values())


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_message_that_is_not_sampled_has_no_span_and_no_trace_in_its_record(tracing_pipe: Any) -> None:
    async with tracing_pipe(sample=0.0) as traced:
        with stage("receive", "api"):
            accepted = await traced.rig.accept("hello", platform="api")
        row = await traced.rig.pipe.store.journal.find(accepted.id)
        assert "trace" not in row["payload"]
        await traced.rig.run_turns(key_of(platform="api"))
        assert traced.spans() == {}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_part_of_messages_that_is_asked_for_is_sampled_once_each(tracing_pipe: Any) -> None:
    async with tracing_pipe(sample=0.3) as traced:
        for _ in range(500):
            with stage("receive", "api"), stage("accept"), stage("commit"):
                pass
        names = [span.name for span in traced.exporter.get_finished_spans()]
    assert 75 < names.count("receive api") < 225
    assert names.count("receive api") == names.count("send turns") == names.count("commit")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_of_an_error_its_kind_is_kept_and_not_its_text(tracing_pipe: Any) -> None:
    async with tracing_pipe() as traced:
        with pytest.raises(LookupError), stage("accept"):
            raise LookupError(SECRET_TEXT)
        [span] = traced.exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR and span.attributes["error.type"] == "LookupError"
    assert SECRET_TEXT not in span.to_json() and not span.events


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["x" * 65, "a b", "\n", "näm", 'add"'])
async def test_a_name_that_a_model_made_up_is_no_name_of_a_span(tracing_pipe: Any, name: str) -> None:
    async with tracing_pipe() as traced:
        with stage("accept"), stage("tool", name):
            pass
        assert "execute_tool" in traced.spans()


@pytest.mark.parametrize(
    "trace",
    [
        "",
        "junk",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "1" * 16 + "-00",
        "01-" + "1" * 49,
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_trace_that_is_none_is_followed_by_nobody(tracing_pipe: Any, trace: str) -> None:
    async with tracing_pipe() as traced:
        with stage("turn", "api", trace), stage("commit"):
            pass
        assert traced.spans() == {}


def test_the_stages_that_may_begin_a_trace_are_those_whose_spans_do() -> None:
    assert {name for name, watched in STAGES.items() if watched.draws} == {
        name for name, form in spans.SPANS.items() if form.draws
    }


def test_a_trace_travels_in_a_record_and_takes_no_place_where_there_is_none() -> None:
    plain = an_inbound()
    assert b"trace" not in encode_mail(plain)
    traced = Inbound(plain.id, plain.event_id, plain.source, plain.text, trace="00-" + "1" * 49)
    assert decode_mail(encode_mail(traced)) == traced


async def test_off_nothing_of_opentelemetry_is_touched(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object) -> None:
        raise AssertionError("a span was begun")

    monkeypatch.setattr(spans.Tracing, "begin", touched)
    async with tracing.open_tracing(rig.pipe, "test"):
        await rig.accept("hello")
        await rig.run_turns()
    assert tracing.active is None and tracing.traceparent() is None


def test_off_nothing_of_opentelemetry_is_imported() -> None:
    """redis-py imports some of it by itself, where it is installed."""
    looks = (
        "import sys, redis.asyncio; before = set(sys.modules); import shared.stages, shared.pipeline;"
        " print([name for name in sys.modules if 'opentelemetry' in name and name not in before])"
    )
    found = subprocess.run([sys.executable, "-c", looks], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
